"""Delays and throttles against a plain reference: queues, and what each event lets go."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators import clocked
from tests.operators.clocked import ENDS, cut_at, events, key_order, numbers
from tests.oracle import Event, Row, hold_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.operators.throttle import Throttle

RULES = [("delay", 1), ("delay", 4), ("delay", 25), ("gap", 1), ("gap", 4), ("gap", 10)]


@lru_cache
def held(kind: str, microseconds: int, by: str | None, on: str | None) -> rr.Application:
    app = rr.Application("held")
    source, clock = clocked.add_sources(app, clock=on is None)
    what: dict[str, Any] = {"by": by or (), "on": on, "clock": clock}
    if kind == "delay":
        made = app.delay("held", source, time=microseconds * 1e-6, **what)
    else:
        made = app.throttle("held", source, rate=1_000_000 / microseconds, **what)
    # What comes in goes on beside it, to show when each tuple leaves.
    app.sink("out", app.functor("chosen", [made, source], select="k, v, seq"), rr.memory())
    return app


def chosen(put_out: list[Event], *kinds: str) -> list[Row]:
    return [{c: what[c] for c in ("k", "v", "seq")} for kind, what in put_out if kind in kinds]


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(), rows=clocked.tuples(), rule=st.sampled_from(RULES), by=st.sampled_from([None, "k", "k"])
)
def test_tuples_let_older_ones_of_their_key_go(
    data: st.DataObject, rows: list[Row], rule: tuple[str, int], by: str | None
) -> None:
    batches = cut(clocked.table(rows), data.draw(cuts(len(rows))))

    got = run_batches(
        held(*rule, by, "ts"),
        batches,
        buckets=5,
        tasks=data.draw(dealings(batches, 5)),
    )

    wanted = hold_oracle(events(rows), by=by, on="ts", **{rule[0]: rule[1]})
    assert got == chosen(wanted, "arrival", "tuple")


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    rows=clocked.tuples(),
    ticks=clocked.tickings(),
    rule=st.sampled_from(RULES),
    by=st.sampled_from([None, "k", "k"]),
)
def test_ticks_let_tuples_go(
    data: st.DataObject, rows: list[Row], ticks: list[Row], rule: tuple[str, int], by: str | None
) -> None:
    tables = {"source": clocked.table(rows), "clock": clocked.table(ticks, clocked.TICKS)}
    batches = cut_at(tables, data.draw(ENDS))

    got = run_batches(
        held(*rule, by, None),
        batches,
        buckets=5,
        tasks=data.draw(dealings(batches, 5)),
    )

    wanted = hold_oracle(events(rows, ticks), by=by, key_order=key_order, **{rule[0]: rule[1]})
    assert got == chosen(wanted, "arrival", "tuple")


@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=clocked.tuples(), ticks=clocked.tickings(), by=st.sampled_from([None, "k"]))
def test_a_tick_comes_after_what_it_let_go(
    data: st.DataObject, rows: list[Row], ticks: list[Row], by: str | None
) -> None:
    app = rr.Application("held")
    source, clock = clocked.add_sources(app, clock=True)
    late = app.delay("late", source, time=3e-6, clock=clock, by="k")
    # Without a key it is in a processing element of its own.
    spaced = app.throttle("spaced", late, rate=500_000, clock=clock, by=by or ())
    app.sink("out", app.functor("chosen", spaced, select="k, v, seq"), rr.memory())
    tables = {"source": clocked.table(rows), "clock": clocked.table(ticks, clocked.TICKS)}
    batches = cut_at(tables, data.draw(ENDS))

    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)))

    first = hold_oracle(events(rows, ticks), by="k", key_order=key_order, delay=3)
    assert got == chosen(hold_oracle(first, by=by, key_order=key_order, gap=2), "tuple")


def test_punctuations_end_here() -> None:
    app = rr.Application("marked")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    punctuated = app.sort("ones", source, order="seq", window=rr.tumbling(tuples=1))
    late = app.delay("late", punctuated, time=1e-6, on="ts")
    windows = app.aggregate("windows", late, window=rr.tumbling(punctuation=True), select="count(*) as n")
    app.sink("out", windows, rr.memory())
    app.sink("late_out", late, rr.memory())
    rows = [{"at": 0, "k": "a", "ts": n, "v": 0, "seq": n} for n in range(5)]

    assert len(run_batches(app, cut(clocked.table(rows), [5]), sink="late_out")) == 4
    assert run_batches(app, cut(clocked.table(rows), [2, 5])) == []


def test_a_key_at_rest_by_a_clock_leaves_no_state(tmp_path: Path) -> None:
    stage = Stage(held("gap", 4, "k", None), tmp_path, buckets=2)
    for time in range(0, 600, 10):
        rows = [{"at": time, "k": f"{time}/{n}", "ts": 0, "v": 0, "seq": n} for n in range(10)]
        tick = clocked.table([{"at": time, "time": time}], clocked.TICKS)
        stage.feed({"source": clocked.table(rows), "clock": tick})

    (manifest,) = stage.record.manifests
    assert sum(stage.pages.read(p).num_rows for p in manifest.pages["held/0"]) <= 60


@pytest.mark.parametrize(
    ("rate", "gap"), [(100.0, 10_000), (3, 333_334), (0.1, 10_000_000), (1e6, 1), (7e6, 1), (0.3, 3_333_334)]
)
def test_a_rate_is_whole_microseconds_rounded_up(rate: float, gap: int) -> None:
    app = rr.Application("spaced")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    app.sink("out", app.throttle("spaced", source, rate=rate, on="ts"), rr.memory())

    throttle = app.graph()["spaced"]

    assert isinstance(throttle, Throttle)
    assert throttle.gap == gap


@pytest.mark.parametrize("on", ["ts", None])
def test_a_rate_as_slow_as_can_be_holds_for_good(on: str | None) -> None:
    app = rr.Application("spaced")
    source, clock = clocked.add_sources(app, clock=on is None)
    app.sink("out", app.throttle("spaced", source, rate=1e-300, on=on, clock=clock), rr.memory())
    rows = [{"at": n, "k": "a", "ts": n, "v": 0, "seq": n} for n in range(1, 30)]
    ticks = [{"at": n, "time": n} for n in range(30)]

    got = run_batches(
        app, cut_at({"source": clocked.table(rows), "clock": clocked.table(ticks, clocked.TICKS)}, [10])
    )

    assert numbers(got) == [1]


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"time": "1s"}, "its time is by a clock's time"),
        ({"time": 0, "on": "ts"}, "time= takes a time such as"),
        ({"time": "1s", "on": "v"}, "time is read off a timestamp, 'v' is int"),
        ({"time": "1s", "on": "w"}, "on= names column 'w', which does not exist"),
        ({"time": "1s", "on": "ts", "by": "w"}, "by= names column 'w'"),
        ({"rate": 0, "on": "ts"}, "rate= is 0"),
        ({"rate": float("inf"), "on": "ts"}, "rate= is inf"),
        ({"rate": "100", "on": "ts"}, "rate= is '100'"),
        ({"rate": 100}, "its time is by a clock's time"),
    ],
)
def test_one_that_makes_no_sense_is_refused(what: dict[str, Any], problem: str) -> None:
    app = rr.Application("refused")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))

    with pytest.raises(rr.GraphError, match=rf"(Delay|Throttle) 'wrong' \(.*test_hold.py:\d+\): {problem}"):
        (app.throttle if "rate" in what else app.delay)("wrong", source, **what)
