"""Encoding keys: each once, by hash, and a code for every row."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import group_of

from riprap.errors import RunError
from riprap.state import keys as module
from riprap.state.hashing import buckets_of, hash_arrays
from riprap.state.keys import encode_keys, join_tables

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-3, 3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan]),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=2),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1900, 1, 1)),
    pa.timestamp("us"): st.datetimes(datetime(1900, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),
    pa.decimal128(20, 3): st.decimals(-1000, 1000, places=3),
}


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    kind = draw(st.sampled_from(list(VALUES)))
    value = st.none() | VALUES[kind]
    few = draw(st.lists(value, min_size=1, max_size=4))
    array = pa.array(draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows)), kind)
    return array.dictionary_encode() if draw(st.booleans()) else array


def groups(arrays: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*([group_of(v) for v in a.to_pylist()] for a in arrays), strict=True))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), width=st.integers(1, 3), rows=st.integers(0, 20))
def test_codes_map_back_to_the_keys(data: st.DataObject, width: int, rows: int) -> None:
    arrays = [data.draw(columns(rows)) for _ in range(width)]

    table, codes = encode_keys(arrays, rows)

    wanted = groups(arrays)
    found = groups(list(table.columns))
    assert [found[code] for code in codes] == wanted
    assert len(set(found)) == len(found) == len(table)
    assert np.all(table.hashes[1:] > table.hashes[:-1])
    assert table.hashes[codes].tolist() == hash_arrays(arrays).tolist()
    assert table.has_null.tolist() == [None in key for key in found]


def test_without_key_columns_there_is_one_key() -> None:
    table, codes = encode_keys([], 3)

    assert (len(table), codes.tolist(), table.columns) == (1, [0, 0, 0], ())


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.text(max_size=3), max_size=40), buckets=st.integers(1, 9), data=st.data())
def test_a_span_of_buckets_is_a_slice_of_the_table(
    names: list[str], buckets: int, data: st.DataObject
) -> None:
    table, _ = encode_keys([pa.array(names, pa.string())], len(names))
    first = data.draw(st.integers(0, buckets))
    end = data.draw(st.integers(first, buckets))

    low, high = table.span(first, end, buckets)

    mine = [first <= b < end for b in buckets_of(table.hashes, buckets)]
    assert mine == [low <= code < high for code in range(len(table))]
    assert table.slice(low, high).columns[0].to_pylist() == table.columns[0].to_pylist()[low:high]


def test_taking_some_keys_keeps_their_columns_together() -> None:
    table, _ = encode_keys([pa.array(["a", "b", "c", None]), pa.array([1, 2, 3, 4])], 4)

    some = table.take(np.array([1, 3]))

    assert some.hashes.tolist() == table.hashes[[1, 3]].tolist()
    assert [c.to_pylist() for c in some.columns] == [
        [c.to_pylist()[i] for i in (1, 3)] for c in table.columns
    ]
    assert some.has_null.tolist() == table.has_null[[1, 3]].tolist()


def test_two_keys_of_one_hash_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "hash_arrays", lambda columns: np.full(len(columns[0]), 7, np.uint64))

    with pytest.raises(RunError) as caught:
        encode_keys([pa.array(["IBM", "MSFT", "IBM"])], 3)

    assert str(caught.value) == (
        "keys ['IBM'] and ['MSFT'] have the same 64-bit hash. Their states would mix, so the run stops; add a column "
        "to the key to tell them apart"
    )


def test_a_key_that_a_dictionary_holds_twice_is_one_key() -> None:
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 2], pa.int8()), pa.array(["a", "b", "a"]))

    table, codes = encode_keys([twice], 4)

    assert [table.columns[0].to_pylist()[c] for c in codes] == ["a", "b", "a", "a"]
    assert codes[0] == codes[2]


def test_a_null_inside_a_dictionary_is_null() -> None:
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))

    table, codes = encode_keys([inside], 3)

    assert [table.columns[0].to_pylist()[c] for c in codes] == ["a", None, None]
    assert len(table) == 2


def test_a_full_dictionary_of_small_codes_has_room_for_null() -> None:
    names = [f"n{i}" for i in range(127)]
    full = pa.DictionaryArray.from_arrays(pa.array([*range(127), None], pa.int8()), pa.array(names))

    table, codes = encode_keys([full], 128)

    assert [table.columns[0].to_pylist()[c] for c in codes] == [*names, None]


def test_more_combinations_than_64_bits_can_number_stay_apart() -> None:
    # 2**16 values in each of five columns make 2**80 combinations; some rows differ in the first column only.
    many = 2**16
    count, zeros = np.arange(many), np.zeros(many, np.int64)
    first, other = pa.array(np.concatenate([count, count])), pa.array(np.concatenate([zeros, count]))
    arrays = [first, other, other, other, other]

    table, codes = encode_keys(arrays, 2 * many)

    assert len(table) == 2 * many - 1
    for column, array in zip(table.columns, arrays, strict=True):
        assert column.take(pa.array(codes)).equals(array)


@pytest.mark.parametrize(("left", "right"), [((Decimal("1E-10"),), (Decimal("1E-9"),)), ((None,), ("null",))])
def test_near_keys_are_different_keys(left: tuple[Any], right: tuple[Any]) -> None:
    kind = pa.decimal128(20, 10) if isinstance(left[0], Decimal) else pa.string()

    assert len(encode_keys([pa.array([*left, *right], kind)], 2)[0]) == 2


@settings(max_examples=100, deadline=None)
@given(data=st.data(), width=st.integers(1, 2), tables=st.integers(1, 4))
def test_joined_tables_have_every_key_once(data: st.DataObject, width: int, tables: int) -> None:
    kinds = [data.draw(st.sampled_from(list(VALUES))) for _ in range(width)]
    few = [data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=3)) for kind in kinds]
    parts = []
    for _ in range(tables):
        rows = data.draw(st.integers(0, 6))
        values = [data.draw(st.lists(st.sampled_from(f), min_size=rows, max_size=rows)) for f in few]
        parts.append(encode_keys([pa.array(v, k) for v, k in zip(values, kinds, strict=True)], rows)[0])

    joined, places = join_tables(parts)

    found = groups(list(joined.columns))
    assert len(set(found)) == len(found) == len(joined)
    assert np.all(joined.hashes[1:] > joined.hashes[:-1])
    assert joined.has_null.tolist() == [None in key for key in found]
    for part, place in zip(parts, places, strict=True):
        assert [found[p] for p in place] == groups(list(part.columns))
        assert joined.hashes[place].tolist() == part.hashes.tolist()


def test_the_one_key_of_tables_without_columns_is_one_key() -> None:
    table, _ = encode_keys([], 0)

    joined, places = join_tables([table, table])

    assert (len(joined), [p.tolist() for p in places]) == (1, [[0], [0]])
