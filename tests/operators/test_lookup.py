"""Lookups against a plain dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import group_of, lookup_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.operators import lookup as kernel
from riprap.operators.lookup import Lookup

SCHEMA = parse_schema("id int, part string, v int")
TABLE = parse_schema("name string, id int, part string, price double")
IDS, PARTS = st.none() | st.integers(0, 4), st.sampled_from(["x", "y", None])
ROWS = st.lists(st.fixed_dictionaries({"id": IDS, "part": PARTS, "v": st.integers(0, 9)}), max_size=30)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | st.text(max_size=3),
            "id": IDS,
            "part": PARTS,
            "price": st.none() | st.floats(allow_nan=False),
        }
    ),
    max_size=12,
    unique_by=lambda row: (row["id"], row["part"]),
)


def looked_up(table: pa.Table, missing: str) -> rr.Application:
    app = rr.Application("lookup")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    found = app.lookup("stock", source, table=table, by=["id", "part"], missing=missing)
    app.sink("out", found, rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS, entries=ENTRIES, drop=st.booleans(), encoded=st.booleans())
def test_each_tuple_gets_the_row_of_its_key(
    data: st.DataObject, rows: list[dict[str, Any]], entries: list[dict[str, Any]], drop: bool, encoded: bool
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    if encoded:
        table = table.set_column(1, "part", table.column("part").dictionary_encode())
    app = looked_up(pa.Table.from_pylist(entries, TABLE), "drop" if drop else "null")

    got = run_batches(app, cut(table, data.draw(cuts(len(rows)))))

    by, add = {"id": "id", "part": "part"}, {"name": "name", "price": "price"}
    assert got == lookup_oracle(rows, entries, by=by, add=add, drop=drop)


NUMBERS = st.sampled_from([0.0, -0.0, math.nan, 1.5, math.inf, None])


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(NUMBERS, max_size=12),
    known=st.lists(NUMBERS, max_size=6, unique_by=lambda k: str(abs(k) if k is not None else None)),
)
def test_numbers_are_the_same_as_in_a_join(keys: list[float | None], known: list[float | None]) -> None:
    app = rr.Application("lookup")
    source = app.source("source", rr.rows([], "x double"))
    table = pa.table({"y": pa.array(known, pa.float64()), "n": pa.array(range(len(known)), pa.int64())})
    found = app.lookup("numbers", source, table=table, by={"x": "y"}, select="source.x is null as b, n")
    app.sink("out", found, rr.memory())

    got = run_batches(app, [{"source": pa.table({"x": pa.array(keys, pa.float64())})}])

    places = {group_of(key): n for n, key in enumerate(known) if key is not None}
    assert got == [
        {"b": key is None, "n": places.get(group_of(key)) if key is not None else None} for key in keys
    ]


@settings(max_examples=20, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_a_lookup_before_a_keyed_operator_keeps_its_key(
    data: st.DataObject, rows: list[dict[str, Any]]
) -> None:
    app = rr.Application("lookup")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "weight": [10, 20]})
    found = app.lookup("weights", source, table=table, by="id", missing="drop", select="id, v * weight as w")
    window = rr.sliding(tuples=1000)
    app.sink("out", app.aggregate("sums", found, by="id", window=window, select="sum(w) as w"), rr.memory())
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)))

    sums, wanted = {1: 0, 2: 0}, []
    for row in rows:
        if row["id"] in sums:
            sums[row["id"]] += row["v"] * 10 * row["id"]
            wanted.append({"id": row["id"], "w": sums[row["id"]]})
    assert got == wanted


def write(path: Path, **columns: list[Any]) -> None:
    """Put a Parquet file there whole."""
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.table(columns), hidden)
    hidden.rename(path)


def test_a_changed_table_counts_from_the_next_batch_on(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    write(path, id=[1, 2], name=["one", "two"])
    app = rr.Application("lookup")
    source = app.source("source", rr.rows([], "id bigint"))
    app.sink("out", app.lookup("names", source, table=path, by="id"), rr.memory())
    stage = Stage(app, tmp_path / "run")
    feed = {"source": pa.table({"id": [1, 3]})}

    before = stage.feed(feed)["out"]
    write(path, id=[3, 1], name=["three", "uno"])
    after = stage.feed(feed)["out"]

    assert before == [{"id": 1, "name": "one"}, {"id": 3, "name": None}]
    assert after == [{"id": 1, "name": "uno"}, {"id": 3, "name": "three"}]


def lookup_of(table: pa.Table) -> Lookup:
    operator = looked_up(table, "null").taken("stock")
    assert isinstance(operator, Lookup)
    return operator


def test_a_key_that_the_table_has_twice_is_named() -> None:
    row = {"name": "a", "id": 7, "part": "x", "price": 1.0}
    table = pa.Table.from_pylist([row, {**row, "part": "y"}, {**row, "name": "b"}], TABLE)

    with pytest.raises(rr.RunError, match=r"operator 'stock' .* has 2 rows of key id 7, part 'x'\. "):
        kernel.index_table(lookup_of(table), table)


def test_rows_without_a_key_may_be_many() -> None:
    row = {"name": "a", "id": None, "part": "x", "price": 1.0}
    table = pa.Table.from_pylist([row, row, {**row, "id": 1}], TABLE)

    assert kernel.index_table(lookup_of(table), table).column("id").to_pylist() == [1]


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_pylist([{"name": "a", "id": 1, "part": "x", "price": 1.0}], TABLE)
    indexed = kernel.index_table(lookup_of(table), table)
    other = kernel.encode_keys([pa.array([2], pa.int32()), pa.array(["x"])], 1)[0].hashes
    place = indexed.schema.get_field_index(kernel.HASH)
    clashing = indexed.set_column(place, kernel.HASH, pa.array(other))
    monkeypatch.setattr("riprap.feeds.tables.index_table", lambda operator, table: clashing)

    got = run_batches(
        looked_up(table, "drop"), [{"source": pa.Table.from_pylist([{"id": 2, "part": "x", "v": 1}], SCHEMA)}]
    )

    assert got == []


Build = Callable[[rr.Application, rr.Stream], object]
GOOD = pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]})

REFUSALS: dict[str, tuple[Build, str]] = {
    "a table of another kind": (
        lambda app, s: app.lookup("it", s, table=[1], by="id"),
        "table= is [1]. Give it a path, rr.files(...) or an Arrow table",
    ),
    "a file without a schema": (
        lambda app, s: app.lookup("it", s, table="names.csv", by="id"),
        "its table: files(...) of csv needs schema=",
    ),
    "a table with a rate": (
        lambda app, s: app.lookup("it", s, table=rr.rows(GOOD, rate=3.0), by="id"),
        "its table has a rate=",
    ),
    "no key": (lambda app, s: app.lookup("it", s, table=GOOD, by=()), "a lookup needs a key"),
    "a key the stream lacks": (
        lambda app, s: app.lookup("it", s, table=GOOD, by="name"),
        "by= names column 'name', which its stream lacks. It has: id, part, v",
    ),
    "a key the table lacks": (
        lambda app, s: app.lookup("it", s, table=GOOD, by={"v": "w"}),
        "by= names column 'w', which its table lacks. It has: id, name",
    ),
    "a key of two types": (
        lambda app, s: app.lookup("it", s, table=GOOD, by={"part": "id"}),
        "the key 'part' is string, and 'id' of the table int",
    ),
    "a key twice": (
        lambda app, s: app.lookup("it", s, table=GOOD, by={"id": "id", "v": "id"}),
        "names a column twice",
    ),
    "a strange missing": (
        lambda app, s: app.lookup("it", s, table=GOOD, by="id", missing="error"),
        "missing= is 'error'. It is one of null, drop",
    ),
    "an unknown column": (
        lambda app, s: app.lookup("it", s, table=GOOD, by="id", select="it.price"),
        "no column 'price' in it",
    ),
    "one name for two": (
        lambda app, s: app.composite("part", lambda inner: inner.lookup("source", s, table=GOOD, by="id")),
        "its stream has the same name",
    ),
    "a type nobody has": (
        lambda app, s: app.lookup("it", s, table=pa.table({"id": [{"a": 1}]}), by="id"),
        "its table: rows(...): column 'id' is struct<a: int64>, which a stream cannot hold",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused(case: str) -> None:
    build, said = REFUSALS[case]
    app = rr.Application("wrong")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))

    with pytest.raises(rr.GraphError) as caught:
        build(app, source)

    assert said in str(caught.value)
    assert "Lookup '" in str(caught.value)
