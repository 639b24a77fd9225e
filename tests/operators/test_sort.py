"""Sorts and top-n against a plain reference: windows in the order they close, each sorted, then a punctuation."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators import clocked
from tests.operators.clocked import ENDS, cut_at, events, key_order
from tests.oracle import Row, sort_oracle, tumbling_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.windows import Window

WINDOWS: dict[str, tuple[Window, dict[str, Any]]] = {
    "count": (rr.tumbling(tuples=4), {"tuples": 4}),
    "single": (rr.tumbling(tuples=1), {"tuples": 1}),
    "time": (rr.tumbling(time=10e-6, on="ts"), {"time": 10, "on": "ts"}),
    "delta": (rr.tumbling(delta=2, on="seq"), {"delta": 2, "on": "seq"}),
    "clock": (rr.tumbling(time=10e-6), {"time": 10}),
}
ORDERS: dict[str, list[tuple[str, bool, bool]]] = {
    "v": [("v", False, True)],
    "v desc": [("v", True, False)],
    "v nulls last": [("v", False, False)],
    "v desc nulls first, ts desc nulls last": [("v", True, True), ("ts", True, False)],
    "k desc, v": [("k", True, False), ("v", False, True)],
}


@lru_cache
def sorted_windows(window: str, by: str | None, order: str, top: int | None) -> rr.Application:
    """Sort windows, and collect what lies between punctuations."""
    app = rr.Application("sorted")
    source, clock = clocked.add_sources(app, clock=window == "clock")
    what: dict[str, Any] = {"order": order, "window": WINDOWS[window][0], "by": by or (), "clock": clock}
    made = app.top("sorted", source, n=top, **what) if top else app.sort("sorted", source, **what)
    marked = app.aggregate(
        "windows", made, window=rr.tumbling(punctuation=True), select="collect_list(seq) as numbers"
    )
    app.sink("out", marked, rr.memory())
    return app


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=30, deadline=None)
@given(
    data=st.data(),
    rows=clocked.tuples(),
    ticks=clocked.tickings(),
    by=st.sampled_from([None, "k"]),
    order=st.sampled_from(list(ORDERS)),
    top=st.sampled_from([None, None, 1, 3]),
)
def test_each_window_is_put_out_in_order_then_a_punctuation(
    data: st.DataObject,
    window: str,
    rows: list[Row],
    ticks: list[Row],
    by: str | None,
    order: str,
    top: int | None,
) -> None:
    tables = {"source": clocked.table(rows), "clock": clocked.table(ticks, clocked.TICKS)}
    batches = cut_at(tables, data.draw(ENDS))

    got = run_batches(
        sorted_windows(window, by, order, top),
        batches,
        buckets=5,
        tasks=data.draw(dealings(batches, 5)),
    )

    heard = events(rows, ticks if window == "clock" else ())
    closed = tumbling_oracle(heard, by=by, key_order=key_order, **WINDOWS[window][1])
    wanted = [clocked.numbers(sort_oracle(each, ORDERS[order])[:top]) for each in closed]
    assert [row["numbers"] for row in got] == wanted


@lru_cache
def between_punctuations(by: str | None) -> rr.Application:
    app = rr.Application("sorted")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    punctuated = app.sort("threes", source, order="seq", window=rr.tumbling(tuples=3))
    window = rr.tumbling(punctuation=True)
    made = app.sort("sorted", punctuated, by=by or (), order="v, seq desc", window=window)
    app.sink(
        "out",
        app.aggregate("windows", made, window=window, select="collect_list(seq) as numbers"),
        rr.memory(),
    )
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=clocked.tuples(), by=st.sampled_from([None, "k"]))
def test_punctuations_close_windows_and_are_replaced(
    data: st.DataObject, rows: list[Row], by: str | None
) -> None:
    batches = cut(clocked.table(rows), data.draw(cuts(len(rows))))

    got = run_batches(between_punctuations(by), batches, buckets=4, tasks=data.draw(dealings(batches, 4)))

    arrived = []
    for number, row in enumerate(rows, 1):
        arrived += [("tuple", row), *([("punctuation", None)] if number % 3 == 0 else [])]
    closed = tumbling_oracle(arrived, by=by, key_order=key_order, punctuation=True)
    order = [("v", False, True), ("seq", True, False)]
    # A last window that is not full has seen no punctuation.
    assert [row["numbers"] for row in got] == [clocked.numbers(sort_oracle(each, order)) for each in closed]


@lru_cache
def by_change() -> rr.Application:
    app = rr.Application("changes")
    source = app.source("source", rr.rows(parse_schema("x double, k int, seq int").empty_table()))
    made = app.sort("sorted", source, by="k", order="seq desc", window=rr.tumbling(delta=1.5, on="x"))
    app.sink("out", made, rr.memory())
    return app


@settings(max_examples=30, deadline=None)
@given(data=st.data(), size=st.integers(0, 30))
def test_a_window_may_be_by_the_change_of_a_fraction(data: st.DataObject, size: int) -> None:
    numbers = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.75, 2.0]), min_size=size, max_size=size)
    rows = [{"x": x, "k": data.draw(st.integers(0, 1)), "seq": n} for n, x in enumerate(data.draw(numbers))]
    table = pa.Table.from_pylist(rows, by_change().graph()["source"].schema)
    batches = cut(table, data.draw(cuts(len(rows))))

    got = run_batches(by_change(), batches, buckets=2, tasks=data.draw(dealings(batches, 2)))

    closed = tumbling_oracle([("tuple", row) for row in rows], by="k", delta=1.5, on="x")
    assert got == [row for each in closed for row in sort_oracle(each, [("seq", True, False)])]


VALUES: dict[str, list[Any]] = {
    "tinyint": [None, 0, 1, -128, 127],
    "bigint": [None, 0, 2**63 - 1, -(2**63), -1],
    "double": [None, 0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -5e-324],
    "float": [None, 0.0, -0.0, math.nan, 1.5, -1.5],
    "decimal(12,2)": [None, Decimal("0.00"), Decimal("-9999999999.99"), Decimal("1.10"), Decimal("1.01")],
    "decimal(30,10)": [None, Decimal("0E-10"), Decimal("-1E-10"), Decimal("12345678901234567890.5000000000")],
    "boolean": [None, True, False],
    "date": [None, date(1969, 12, 31), date(2024, 2, 29)],
    "timestamp": [None, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 2, 29, tzinfo=UTC)],
    "binary": [None, b"", b"\0", b"\xff", b"a"],
    "string": [None, "", "\0", "é", "e", "\U0001f600", "\uffff"],
}


@lru_cache
def of_kind(kind: str, order: str, columns: str) -> rr.Application:
    app = rr.Application("kinds")
    schema = parse_schema(f"x {kind}, k int, seq int")
    source = app.source("source", rr.rows(schema.empty_table()))
    made = app.sort("sorted", source, by="k", order=order, window=rr.tumbling(tuples=5))
    app.sink("out", app.functor("chosen", made, select=columns), rr.memory())
    return app


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), falls=st.booleans(), nulls=st.sampled_from(["", " nulls first", " nulls last"]))
def test_values_of_any_type_are_put_in_order(data: st.DataObject, kind: str, falls: bool, nulls: str) -> None:
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(VALUES[kind]), st.integers(0, 1)), max_size=40))
    app = of_kind(kind, f"x{' desc' if falls else ''}{nulls}", data.draw(st.sampled_from(["seq", "x, seq"])))
    rows = [{"x": x, "k": k, "seq": n} for n, (x, k) in enumerate(drawn)]
    batches = cut(pa.Table.from_pylist(rows, app.graph()["source"].schema), data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=2, tasks=data.draw(dealings(batches, 2)))

    nulls_first = {"": not falls, " nulls first": True, " nulls last": False}[nulls]
    closed = tumbling_oracle([("tuple", row) for row in rows], by="k", tuples=5)
    wanted = [row for each in closed for row in sort_oracle(each, [("x", falls, nulls_first)])]
    assert clocked.numbers(got) == clocked.numbers(wanted)


def test_an_order_may_compute_and_what_it_reads_need_not_be_put_out() -> None:
    app = rr.Application("computed")
    source = app.source("source", rr.rows(parse_schema("a int, b int, c int").empty_table()))
    made = app.sort("sorted", source, order="a * b desc, -c", window=rr.tumbling(tuples=4))
    app.sink("out", app.functor("chosen", made, select="c"), rr.memory())
    rows = [
        {"a": 2, "b": 3, "c": 0},
        {"a": 1, "b": 7, "c": 1},
        {"a": 6, "b": 1, "c": 2},
        {"a": 9, "b": 0, "c": 3},
    ]
    table = pa.Table.from_pylist(rows, app.graph()["source"].schema)

    got = run_batches(app, [{"source": table.slice(0, 3)}, {"source": table.slice(3)}])

    assert [row["c"] for row in got] == [1, 2, 0, 3]


def test_an_order_that_fails_is_blamed_on_its_tuple() -> None:
    app = rr.Application("failing")
    source = app.source("source", rr.rows(parse_schema("a int, b int").empty_table()))
    app.sink("out", app.sort("sorted", source, order="a / b", window=rr.tumbling(tuples=4)), rr.memory())
    table = pa.Table.from_pylist(
        [{"a": 1, "b": 1}, {"a": 1, "b": 0}, {"a": 2, "b": 2}], app.graph()["source"].schema
    )

    with pytest.raises(
        rr.OperatorError, match="at position 1 of source 'source': EvaluationError: division by zero"
    ):
        run_batches(app, [{"source": table}])


def test_a_window_that_closed_leaves_the_state(tmp_path: Path) -> None:
    app = rr.Application("sorted")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    app.sink("out", app.sort("sorted", source, order="v", window=rr.tumbling(tuples=4)), rr.memory())
    stage = Stage(app, tmp_path)
    row = {"at": 0, "k": "a", "ts": 0, "v": 1, "seq": 0}

    for _ in range(50):
        stage.feed({"source": clocked.table([row] * 3)})

    (manifest,) = stage.record.manifests
    pages = [stage.pages.read(p) for p in manifest.pages["sorted/0"]]
    assert sum(len(w) for page in pages for w in page.column("window").to_pylist()) <= 8


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"order": "w"}, "no column 'w'"),
        ({"order": "v desc asc"}, "not valid SQL"),
        ({"order": " "}, "the order is empty"),
        ({"order": "1"}, "1 is the same for every tuple"),
        ({"order": "v limit 2"}, "limit has no place in an order"),
        ({"order": 3}, "order= is 3"),
        ({"window": rr.sliding(tuples=2)}, r"its window is sliding\(2 tuples\)"),
        ({"window": rr.tumbling(time="1s")}, "its window is by a clock's time"),
        ({"by": "w"}, "by= names column 'w'"),
        ({"n": 0}, "n= is 0"),
        ({"n": True}, "n= is True"),
        ({"protect": "much"}, "protect='much' is not a policy"),
    ],
)
def test_a_sort_that_makes_no_sense_is_refused(what: dict[str, Any], problem: str) -> None:
    app = rr.Application("refused")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    given = {"order": "v", "window": rr.tumbling(tuples=2), **what}

    with pytest.raises(rr.GraphError, match=rf"(Sort|TopN) 'wrong' \(.*test_sort.py:\d+\): {problem}"):
        (app.top if "n" in what else app.sort)("wrong", source, **given)


def test_a_misspelt_order_is_underlined() -> None:
    app = rr.Application("refused")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))

    with pytest.raises(rr.GraphError, match=r"no column 'sek'\n  v desc, sek\n          \^\^\^\n"):
        app.sort("wrong", source, order="v desc, sek", window=rr.tumbling(tuples=2))
