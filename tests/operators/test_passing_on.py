"""Operators that pass everything on may stand anywhere and change nothing: not the order, nor the punctuations."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema

SCHEMA = parse_schema("k string, v int")
ROW = st.fixed_dictionaries({"k": st.sampled_from(["a", "b", "c", None]), "v": st.integers(0, 5)})


class Passing(rr.CustomOperator):
    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        self.submit(batch, rows=range(batch.num_rows))


class PassingOne(rr.CustomOperator):
    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.submit(tuple)


NO_NAMES = pa.table({"k": pa.array([], pa.string()), "name": pa.array([], pa.string())})
SCHEMA_OF_COUNTS = "k string, n bigint"

PASSING: dict[str, Callable[[rr.Application, rr.Stream], rr.Stream]] = {
    "union": lambda app, s: app.union("it", s),
    "split": lambda app, s: app.split("it", s, outputs={"all": "n >= 0", "none": "n < 0"})["all"],
    "both": lambda app, s: app.union(
        "it", *app.split("parts", s, outputs={"x": "n > 1", "y": "n <= 1"}).values()
    ),
    "punctor": lambda app, s: app.punctor("it", s, where="n < 0"),
    "lookup": lambda app, s: app.lookup("it", s, table=NO_NAMES, by="k", select="counts.*"),
    "batches": lambda app, s: app.custom("it", Passing, s, schema=SCHEMA_OF_COUNTS, stateless=True),
    "tuples": lambda app, s: app.custom("it", PassingOne, s, schema=SCHEMA_OF_COUNTS, stateless=True),
}


@lru_cache
def counting(passing: str | None) -> rr.Application:
    """Count by key between punctuations, and then the counts between the same punctuations."""
    app = rr.Application("passing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    marked = app.punctor("marked", source, where="v = 1")
    window = rr.tumbling(punctuation=True)
    counts = app.aggregate("counts", marked, by="k", window=window, select="count(*) as n")
    passed = PASSING[passing](app, counts) if passing is not None else counts
    app.sink("passed", passed, rr.memory())
    app.sink(
        "out", app.aggregate("sums", passed, window=window, select="sum(n) as n, first(k) as k"), rr.memory()
    )
    return app


@pytest.mark.parametrize("sink", ["passed", "out"])
@pytest.mark.parametrize("passing", PASSING)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), rows=st.lists(ROW, max_size=30))
def test_nothing_changes(passing: str, sink: str, data: st.DataObject, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    batches = cut(table, data.draw(cuts(len(rows))))

    got = run_batches(counting(passing), batches, sink=sink, buckets=3, tasks=data.draw(dealings(batches, 3)))

    plain = run_batches(counting(None), [{"source": table}], sink=sink)
    assert got == plain
    sums: list[int] = []
    since = 0
    for row in rows:
        since += 1
        if row["v"] == 1:
            sums.append(since)
            since = 0
    if sink == "out":
        assert [row["n"] for row in got] == sums
