"""What fits its declared type comes through; of the rest it is said which and why, and nothing else is hurt."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riprap.adapters.casting import cast_table

INT = pa.schema([("n", pa.int64())])


def test_a_table_of_the_wanted_types_stays_as_it_is() -> None:
    table = pa.table({"n": [1, 2, None], "s": ["a", None, ""]})

    cast = cast_table(table, table.schema)

    assert cast.table.equals(table)
    assert cast.bad == []


def test_columns_are_found_by_name_and_others_left_out() -> None:
    table = pa.table({"x": [9], "s": ["a"], "n": ["1"]})

    cast = cast_table(table, pa.schema([("n", pa.int64()), ("s", pa.string())]))

    assert cast.table.to_pylist() == [{"n": 1, "s": "a"}]


def is_int(text: str | None) -> bool:
    digits = text.removeprefix("-") if text is not None else "0"
    return digits.isascii() and digits.isdigit() and -(2**63) <= int(text or 0) < 2**63


@given(
    st.lists(
        st.none() | st.integers(-(2**64), 2**64).map(str) | st.sampled_from(["", "x", "1.5", " 1", "\u0661"])
    ),
    st.integers(1, 5),
)
def test_of_numbers_written_as_text_exactly_those_that_are_none_are_bad(
    values: list[str | None], chunk: int
) -> None:
    parts = [pa.array(values[i : i + chunk], pa.string()) for i in range(0, len(values), chunk)]
    table = pa.table({"n": pa.chunked_array(parts, pa.string()), "place": range(len(values))})

    cast = cast_table(table, pa.schema([("n", pa.int64()), ("place", pa.int64())]))

    fitting = [(i, v) for i, v in enumerate(values) if is_int(v)]
    assert cast.table.column("place").to_pylist() == [i for i, _ in fitting]
    assert cast.table.column("n").to_pylist() == [None if v is None else int(v) for _, v in fitting]
    assert cast.bad == [
        (i, f"column 'n': {v!r} is not a bigint") for i, v in enumerate(values) if not is_int(v)
    ]


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (pa.array([2**31]), pa.int32(), "2147483648 is not an int"),
        (pa.array([1.5]), pa.int64(), "1.5 is not a bigint"),
        (pa.array([b"\xff"]), pa.string(), r"b'\xff' is not a string"),
        (pa.array([Decimal("1.25")]), pa.decimal128(9, 1), "Decimal('1.25') is not a decimal(9,1)"),
        (
            pa.array(["2024-02-30"]),
            pa.timestamp("us", "UTC"),
            "'2024-02-30' is not a timestamp",
        ),
        (pa.array(["yes!"]), pa.bool_(), "'yes!' is not a boolean"),
        (pa.array(["x" * 500]), pa.int64(), "'" + "x" * 76 + "... is not a bigint"),
    ],
)
def test_what_does_not_fit_is_shown(value: pa.Array, kind: pa.DataType, told: str) -> None:
    cast = cast_table(pa.table({"c": value}), pa.schema([("c", kind)]))

    assert cast.table.num_rows == 0
    assert cast.bad == [(0, f"column 'c': {told}")]


def test_a_row_with_two_faults_is_bad_once_for_the_first_column() -> None:
    table = pa.table({"a": ["x", "1", "2"], "b": ["y", "z", "3"]})

    cast = cast_table(table, pa.schema([("a", pa.int64()), ("b", pa.int64())]))

    assert cast.table.to_pylist() == [{"a": 2, "b": 3}]
    assert cast.bad == [(0, "column 'a': 'x' is not a bigint"), (1, "column 'b': 'z' is not a bigint")]


@pytest.mark.parametrize(
    "values", [[[1], None, [2, 3]], [{"x": 1}, None, {"x": 2}]], ids=["lists", "structs"]
)
def test_where_no_value_can_fit_only_null_does(values: list[Any]) -> None:
    table = pa.table({"n": values, "place": [0, 1, 2]})

    cast = cast_table(table, pa.schema([("n", pa.int64()), ("place", pa.int64())]))

    assert cast.table.to_pylist() == [{"n": None, "place": 1}]
    assert [index for index, _ in cast.bad] == [0, 2]


def test_an_extension_column_counts_as_what_it_is_stored_as() -> None:
    stored = pa.array(["12", "x", None])
    opaque = pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "numeric", "PostgreSQL"), stored)

    cast = cast_table(pa.table({"n": opaque}), INT)

    assert cast.table.column("n").to_pylist() == [12, None]
    assert cast.bad == [(1, "column 'n': 'x' is not a bigint")]


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64())])
def test_no_rows_are_no_rows(kind: pa.DataType) -> None:
    empty = pa.table({"n": pa.chunked_array([], kind)})

    cast = cast_table(empty, INT)

    assert cast.table.schema == INT
    assert (cast.table.num_rows, cast.bad) == (0, [])


def test_many_bad_among_many_good_are_found() -> None:
    values = ["x" if n % 1000 == 7 else str(n) for n in range(20_000)]

    cast = cast_table(pa.table({"n": values}), INT)

    assert [index for index, _ in cast.bad] == list(range(7, 20_000, 1000))
    assert cast.table.column("n").to_pylist() == [n for n in range(20_000) if n % 1000 != 7]
