"""Joins against a plain reference: enter your own window, then meet the other's."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import join_oracle
from tests.stages import PATHS, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.operators import join as kernel

SCHEMA = parse_schema("k string, port int, v int, s string")
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "a", "b", "c", None]),
        "port": st.sampled_from([0, 1, 2]),
        "v": st.none() | st.integers(0, 5),
        "s": st.none() | st.sampled_from(["x", "y"]),
    }
)


@lru_cache
def one_source(sizes: tuple[int, int], where: str | None = "left.v <= right.v") -> rr.Application:
    """Join two functors of one source: a row of port 0 or 1 goes to that one, a row of port 2 to both."""
    app = rr.Application("joined")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    left = app.functor("left", source, where="port <> 1", select="k, v, s")
    right = app.functor("right", source, where="port <> 0", select="k, v, s")
    windows = (rr.sliding(tuples=sizes[0]), rr.sliding(tuples=sizes[1]))
    select = "k, left.v as lv, right.v as rv, left.s as ls, right.s as rs"
    app.sink(
        "out", app.join("both", left, right, by="k", windows=windows, where=where, select=select), rr.memory()
    )
    return app


def pair(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {"k": left["k"], "lv": left["v"], "rv": right["v"], "ls": left["s"], "rs": right["s"]}


def not_greater(left: dict[str, Any], right: dict[str, Any]) -> bool:
    # Null compares as unknown, and unknown does not pass.
    return left["v"] is not None and right["v"] is not None and left["v"] <= right["v"]


SIZES = st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(any)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), rows=st.lists(ROW, max_size=50), sizes=SIZES, free=st.booleans())
def test_each_tuple_meets_the_other_window(
    data: st.DataObject, rows: list[dict[str, Any]], sizes: tuple[int, int], free: bool
) -> None:
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))
    app = one_source(sizes, None if free else "left.v <= right.v")

    got = run_batches(app, batches, buckets=5, tasks=data.draw(dealings(batches, 5)), path=data.draw(PATHS))

    # A row that goes to both ports arrives at the lower one first.
    arrivals = [(port, row) for row in rows for port in (0, 1) if row["port"] in (port, 2)]
    where = (lambda left, right: True) if free else not_greater
    assert got == join_oracle(arrivals, by="k", sizes=sizes, where=where, select=pair)


@lru_cache
def two_sources(sizes: tuple[int, int], ordering: str | None) -> rr.Application:
    app = rr.Application("joined")
    schema = parse_schema("k double, v int, t timestamp_ntz")
    left = app.source("left", rr.rows(schema.empty_table()), ordering=ordering)
    right = app.source("right", rr.rows(schema.empty_table()), ordering=ordering)
    windows = (rr.sliding(tuples=sizes[0]), rr.sliding(tuples=sizes[1]))
    select = "left.v as lv, right.v as rv"
    app.sink("out", app.join("both", left, right, by="k", windows=windows, select=select), rr.memory())
    return app


KEYS = st.sampled_from([0.0, -0.0, math.nan, 1.5, None])
STAMPED = st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=25)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), left=STAMPED, right=STAMPED, sizes=SIZES)
def test_two_sources_interleave_by_their_ordering_column(
    data: st.DataObject, left: list[tuple[float, int]], right: list[tuple[float, int]], sizes: tuple[int, int]
) -> None:
    app = two_sources(sizes, "t")
    schema = app.graph()["left"].schema
    rows = [[{"k": k, "v": n, "t": t} for n, (k, t) in enumerate(side)] for side in (left, right)]
    tables = [pa.table({n: [r[n] for r in side] for n in schema.names}, schema) for side in rows]
    buckets = data.draw(st.integers(1, 4))

    got = run_batches(
        app,
        [{"left": tables[0], "right": tables[1]}],
        buckets=buckets,
        tasks=[data.draw(st.integers(1, buckets))],
        path=data.draw(PATHS),
    )

    arrivals = sorted(
        ((port, row) for port, side in enumerate(rows) for row in side),
        key=lambda a: (a[1]["t"], a[0], a[1]["v"]),
    )
    wanted = join_oracle(
        arrivals,
        by="k",
        sizes=sizes,
        where=lambda left, right: True,
        select=lambda left, right: {"lv": left["v"], "rv": right["v"]},
    )
    assert got == wanted


def test_without_ordering_a_batch_takes_one_source_after_the_other() -> None:
    app = two_sources((1, 1), None)
    schema = app.graph()["left"].schema

    def table(*values: int) -> pa.Table:
        return pa.Table.from_pylist([{"k": 1.0, "v": v} for v in values], schema)

    got = run_batches(
        app, [{"left": table(1, 2), "right": table(3, 4)}, {"left": table(5), "right": table()}]
    )

    assert [(r["lv"], r["rv"]) for r in got] == [(2, 3), (2, 4), (5, 4)]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_pairs_made_some_at_a_time_are_the_same_pairs(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    rows = [{"k": "ab"[n % 2], "port": n % 3, "v": n % 6, "s": None} for n in range(60)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    app = one_source((4, 3))
    at_a_time = run_batches(app, [{"source": table}])

    monkeypatch.setattr(kernel, "_PAIRS_AT_ONCE", at_once)

    assert run_batches(app, [{"source": table}]) == at_a_time
    assert len(at_a_time) > 50


def test_a_key_that_is_dictionary_encoded_at_one_port_joins() -> None:
    table = pa.Table.from_pylist(
        [{"k": "a", "port": 0, "v": 1, "s": "x"}, {"k": "a", "port": 1, "v": 2, "s": "y"}], SCHEMA
    )
    encoded = table.set_column(0, "k", table.column("k").dictionary_encode())
    encoded = encoded.set_column(3, "s", encoded.column("s").dictionary_encode())

    assert run_batches(one_source((1, 0)), [{"source": encoded}]) == [
        {"k": "a", "lv": 1, "rv": 2, "ls": "x", "rs": "y"}
    ]
