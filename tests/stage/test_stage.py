"""Whole graphs through the stage: Bargain Discovery tuple by tuple, and what the stage reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import bargain_oracle
from tests.stages import cuts, dealings, run_batches

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.compiler import compile_graph
from riprap.expressions import parse_schema
from riprap.stage.arrival import ReadRows, arrive
from riprap.stage.fused import OperatorActivity, run_stage

FEED = parse_schema("seq bigint, ticker string, kind string, price double, size bigint")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["IBM", "IBM", "IBM", "T", "F", "GE"]),
        st.sampled_from(["trade", "quote"]),
        st.floats(0.01, 1000) | st.sampled_from([10.0, 10.1, 0.1]),
        st.integers(1, 10_000),
    ),
    max_size=80,
)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), events=EVENTS)
def test_bargains_are_those_of_the_plain_program(data: st.DataObject, events: list[tuple[Any, ...]]) -> None:
    rows = [
        {"seq": 3 * n, "ticker": ticker, "kind": kind, "price": price, "size": size}
        for n, (ticker, kind, price, size) in enumerate(events)
    ]
    ends = data.draw(cuts(len(rows)))
    table = pa.Table.from_pylist(rows, FEED)
    batches = [{"Source": table.slice(low, high - low)} for low, high in zip([0, *ends], ends, strict=False)]
    tasks = data.draw(dealings(batches, 6))

    app = bargain(rr.rows(FEED.empty_table()), rr.memory())
    got = run_batches(app, batches, sink="Sink", buckets=6, tasks=tasks)

    # Bit for bit: sums are exact, so no order of adding can be told from another.
    assert got == bargain_oracle(rows)


def counting() -> rr.Graph:
    app = rr.Application("counting")
    source = app.source("source", rr.rows([], "k string, v int"))
    some = app.functor("some", source, where="v > 1")
    two, second = rr.sliding(tuples=2), rr.every(tuples=2)
    sums = app.aggregate("sums", some, by="k", window=two, emit=second, select="sum(v) as s")
    windows = (rr.sliding(tuples=3), rr.sliding(tuples=0))
    app.sink("out", app.join("both", sums, some, by="k", windows=windows, select="k, s"), rr.memory())
    return app.graph()


def test_the_stage_says_what_each_operator_did() -> None:
    (plan,) = compile_graph(counting(), buckets=1, tasks=1).plans
    rows = ReadRows({"k": pa.array(["a"] * 5), "v": pa.array([1, 2, 3, 4, 5], pa.int32())}, np.arange(5))
    ticks = iter(range(100))

    arrival = arrive(plan.entries, {"source": rows})
    outcome = run_stage(plan, arrival, {}, clock=lambda: float(next(ticks)))

    assert outcome.activity == {
        "source": OperatorActivity(5, 5, 0.0),
        "some": OperatorActivity(5, 4, 1.0),
        "sums": OperatorActivity(4, 2, 1.0),
        "both": OperatorActivity(6, 4, 1.0, ports=(2, 4)),
        "out": OperatorActivity(4, 4, 1.0),
    }
    assert outcome.outputs["out"].columns["s"].to_pylist() == [5, 5, 5, 9]
    assert set(outcome.pages) == {"sums/0", "both/0"}


def test_a_window_of_size_nought_keeps_no_state() -> None:
    (plan,) = compile_graph(counting(), buckets=1, tasks=1).plans

    assert plan.slots == ("sums/0", "both/0")


def test_batches_without_rows_change_nothing() -> None:
    app = rr.Application("quiet")
    source = app.source("source", rr.rows([], "k string, v int"))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=2), select="sum(v) as s")
    app.sink("out", sums, rr.memory())
    schema = source.schema
    full = pa.Table.from_pylist([{"k": "a", "v": 1}, {"k": "b", "v": 2}], schema)
    none = schema.empty_table()

    batches = [{"source": table} for table in (none, full, none, none, full)]

    got = run_batches(app, batches, buckets=4, tasks=[3, 2, 4, 1, 3])

    assert [(r["k"], r["s"]) for r in got] == [("a", 1), ("b", 2), ("a", 2), ("b", 4)]


def test_a_failure_that_a_tick_brings_about_is_laid_to_it() -> None:
    app = rr.Application("ticking")
    source = app.source("source", rr.rows([], "at bigint, v bigint"), ordering="at")
    clock = app.clock("clock", rr.rows([], "at bigint, t timestamp"), time="t", ordering="at")
    window = rr.tumbling(time="1s")
    sums = app.aggregate("sums", source, window=window, clock=clock, select="sum(v) as total")
    app.sink("out", sums, rr.memory())
    most = 2**63 - 1

    def batch(rows: list[tuple[int, int]], ticks: list[tuple[int, int]]) -> dict[str, pa.Table]:
        stamped = [{"at": at, "t": datetime(1970, 1, 1, 0, 0, t, tzinfo=UTC)} for at, t in ticks]
        return {
            "source": pa.Table.from_pylist([{"at": at, "v": v} for at, v in rows], source.schema),
            "clock": pa.Table.from_pylist(stamped, clock.schema),
        }

    with pytest.raises(
        rr.OperatorError, match="failed at a tick or a punctuation: EvaluationError: bigint overflow"
    ):
        run_batches(app, [batch([(0, most), (1, 1)], []), batch([(3, 1)], [(2, 1)])])
    with pytest.raises(rr.OperatorError, match="failed at position 1 of source 'source': EvaluationError"):
        run_batches(app, [batch([(0, most), (1, 1), (3, 1)], [(2, 1)])])
