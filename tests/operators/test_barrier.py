"""Barriers against a plain reference: the first tuples of all ports, then the second ones, key by key."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import barrier_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema

# A row goes to the streams that ``port`` has the bits of.
SCHEMA = parse_schema("k string, j int, port int, v int, s string")
Row = dict[str, Any]
# How many streams each port has.
SHAPES = [(1, 1), (2, 1), (1, 1, 1), (1, 2, 1)]


@lru_cache
def application(shape: tuple[int, ...], by: tuple[str, ...], *, apart: bool = False) -> rr.Application:
    app = rr.Application("together")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    streams = iter(
        app.functor(f"s{bit}", source, where=f"port div {1 << bit} % 2 = 1", select="k, j, v, s")
        for bit in range(sum(shape))
    )
    ports = [[next(streams) for _ in range(size)] for size in shape]
    names = [port[0].label if len(port) == 1 else f"port{n}" for n, port in enumerate(ports, 1)]
    columns = [f"{name}.{c} as {c}{n}" for n, name in enumerate(names) for c in "kvs"]
    select = ", ".join([*by, *columns, f"{names[0]}.v + {names[-1]}.v as total"])
    together = app.barrier("together", *ports, by=by, select=select)
    if apart:
        app.place("second", together)
    app.sink("out", together, rr.memory())
    return app


def expected(shape: tuple[int, ...], by: tuple[str, ...], rows: list[Row]) -> list[Row]:
    port_of = [port for port, size in enumerate(shape) for _ in range(size)]
    arrivals = [(port, row) for row in rows for bit, port in enumerate(port_of) if row["port"] >> bit & 1]

    def select(*found: Row) -> Row:
        values = [found[0]["v"], found[-1]["v"]]
        return {
            **{c: found[0][c] for c in by},
            **{f"{c}{n}": row[c] for n, row in enumerate(found) for c in "kvs"},
            "total": None if None in values else sum(values),
        }

    return barrier_oracle(arrivals, ports=len(shape), by=by, select=select)


ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "b", None]),
        "j": st.sampled_from([1, 1, 2, None]),
        "port": st.sampled_from([1, 2, 4, 8, 3, 6, 7, 15]),
        "v": st.none() | st.integers(0, 99),
        "s": st.none() | st.sampled_from(["x", "y"]),
    }
)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    rows=st.integers(0, 40).flatmap(lambda size: st.lists(ROWS, min_size=size, max_size=size)),
    shape=st.sampled_from(SHAPES),
    by=st.sampled_from([(), ("k",), ("k", "j")]),
    apart=st.booleans(),
)
def test_the_nth_tuples_of_all_ports_go_together(
    data: st.DataObject, rows: list[Row], shape: tuple[int, ...], by: tuple[str, ...], apart: bool
) -> None:
    often = st.integers(1, 5).map(lambda step: [*range(step, len(rows), step), len(rows)])
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows)) | often))

    got = run_batches(
        application(shape, by, apart=apart),
        batches,
        buckets=5,
        tasks=data.draw(dealings(batches, 5)),
    )

    assert got == expected(shape, by, rows)


def two_sources(kind: str = "string", select: str = "k, left.v as lv, right.v as rv") -> rr.Application:
    app = rr.Application("together")
    schema = parse_schema(f"k {kind}, v int")
    left, right = (app.source(name, rr.rows(schema.empty_table())) for name in ("left", "right"))
    app.sink("out", app.barrier("both", left, right, by="k", select=select), rr.memory())
    return app


def batch(kind: str, left: list[tuple[Any, int]], right: list[tuple[Any, int]]) -> dict[str, pa.Table]:
    schema = parse_schema(f"k {kind}, v int")
    sides = {"left": left, "right": right}
    return {
        name: pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema)
        for name, rows in sides.items()
    }


def test_floating_keys_are_one_where_sql_says_so_and_show_what_the_tuple_had() -> None:
    app = two_sources("double", "k, right.k as rk, left.v as lv, right.v as rv")
    batches = [
        batch("double", [(-0.0, 1), (math.nan, 2), (None, 3)], []),
        batch("double", [], [(None, 4), (0.0, 5)]),
    ]

    got = run_batches(app, batches)

    assert [(repr(r["k"]), repr(r["rk"]), r["lv"], r["rv"]) for r in got] == [
        ("None", "None", 3, 4),
        ("-0.0", "0.0", 1, 5),
    ]


def test_the_same_key_on_both_sides_may_be_encoded_on_one() -> None:
    both = batch("string", [("a", 1), ("b", 2)], [("b", 3)])
    left = both["left"].set_column(0, "k", both["left"].column("k").dictionary_encode())

    assert run_batches(two_sources(), [{**both, "left": left}, batch("string", [], [("a", 4)])]) == [
        {"k": "b", "lv": 2, "rv": 3},
        {"k": "a", "lv": 1, "rv": 4},
    ]


def test_a_barrier_may_wait_for_tuples_without_reading_any_of_them() -> None:
    app = two_sources(select="1 as one")

    got = run_batches(
        app, [batch("string", [("a", 1), ("a", 2), ("b", 3)], []), batch("string", [], [("a", 4)] * 3)]
    )

    assert got == [{"one": 1}] * 2


def test_state_is_the_tuples_that_wait(tmp_path: Path) -> None:
    stage = Stage(two_sources(), tmp_path)
    waiting = []
    for left, right in ((30, 0), (3, 10), (0, 20), (0, 10), (0, 0)):
        stage.feed(batch("string", [("a", n) for n in range(left)], [("a", n) for n in range(right)]))
        (manifest,) = stage.record.manifests
        held = []
        for slot in ("both/0", "both/1"):
            # The newest page that names the key says how many tuples it holds.
            pages = [stage.pages.read(p) for p in manifest.pages[slot]]
            held.append(next((p.column("held")[0].as_py() for p in pages if p.num_rows), 0))
        waiting.append(tuple(held))

    assert waiting == [(30, 0), (23, 0), (3, 0), (0, 7), (0, 7)]


def test_a_barrier_keeps_the_columns_it_reads_but_not_the_key() -> None:
    app = rr.Application("together")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    left, right = (app.functor(name, source, select="*") for name in ("left", "right"))
    both = app.barrier("both", left, right, by="k", select="k, left.v, right.s, right.k as rk")
    app.sink("out", both, rr.memory())
    operator = app.graph()["both"]

    assert operator.slots == ("0", "1")
    assert operator.layout({}) == "by k: v int32; s string"
    assert operator.reads({}) == ({"k", "v"}, {"k", "s"})
    assert operator.copies() == {
        "k": {(0, "k"), (1, "k")},
        "v": {(0, "v")},
        "s": {(1, "s")},
        "rk": {(0, "k"), (1, "k")},
    }
    assert operator.traits.holds
    assert len(operator.traits.state) == 2
    assert operator.summary() == "left, right by k"


def test_a_barrier_is_checked_when_it_is_added() -> None:
    app = rr.Application("together")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    other = app.functor("other", source, select="j as k")

    with pytest.raises(rr.GraphError, match=r"it has 1 ports\. A barrier brings two or more together"):
        app.barrier("b", source, select="k")
    with pytest.raises(rr.GraphError, match=r"both ports read stream 'source'"):
        app.barrier("b", source, source, select="1 as one")
    with pytest.raises(rr.GraphError, match=r"the key 'k' is string and int"):
        app.barrier("b", source, other, by="k", select="v")
    with pytest.raises(rr.GraphError, match=r"by= names column 'v', which other lacks"):
        app.barrier("b", source, other, by="v", select="v")
    with pytest.raises(rr.GraphError, match=r"column 'k' is ambiguous"):
        app.barrier("b", source, other, select="k")
