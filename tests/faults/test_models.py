"""What each model of faults does to the tuples of an operator, against plain lists; and on Spark as in a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.faults.replaying import golden_of

import riprap as rr
from riprap.compiler.weaving import give, weave
from riprap.errors import GraphError
from riprap.faults.interleaving import interleave, weave_lags
from riprap.faults.targets import incoming
from riprap.faults.trial import replay_trial
from riprap.graph.faults import (
    Corruption,
    Duplication,
    Fault,
    Lag,
    Lateness,
    Loss,
    Model,
    Reordering,
    Stretch,
)
from riprap.operators.faulty import flip_bits, lag_at

N = 300


def application(sink: Any = None) -> rr.Application:
    app = rr.Application("passing")
    table = pa.table({"n": range(N), "k": ["ab"[n % 2] for n in range(N)], "x": [float(n) for n in range(N)]})
    rows = app.source("Rows", rr.rows(table), position="n")
    kept = app.functor("Kept", rows, where="n % 3 <> 0", select="n, k, x")
    app.sink("Out", kept, sink or rr.memory())
    return app


def passed(
    model: Model, first: int, count: int, *, seed: int = 0, block_rows: int = 1000
) -> list[dict[str, Any]]:
    golden = golden_of(application().graph(), ["Kept"], deep=Fault(model=model).deep, block_rows=block_rows)
    known = incoming(golden, "Kept")
    faults = {
        "Kept": {
            s: Fault(model=model, stretches=p, seed=seed) for s, p in known.stretches(first, count).items()
        }
    }
    pieces = replay_trial(golden, faults).output(golden, "Out")
    return [row for p in pieces for row in pa.table(dict(p.columns)).to_pylist()]


def rows(numbers: Any) -> list[int]:
    return [n for n in numbers if n % 3 != 0]


def test_a_burst_loses_just_the_tuples_from_its_offset_on() -> None:
    got = [row["n"] for row in passed(Loss(), 40, 25)]

    assert got == rows(n for n in range(N) if not 40 <= n < 65)


def test_a_buffer_keeps_a_share_and_the_same_share_each_time() -> None:
    got = [row["n"] for row in passed(Loss(keep=0.5), 0, N, seed=4)]

    assert got == [row["n"] for row in passed(Loss(keep=0.5), 0, N, seed=4, block_rows=7)]
    assert got != [row["n"] for row in passed(Loss(keep=0.5), 0, N, seed=5)]
    # Of 200, 100 are expected; four standard deviations are 28.
    assert 72 <= len(got) <= 128


def test_copies_come_one_after_the_other() -> None:
    got = [row["n"] for row in passed(Duplication(copies=2), 10, 4)]

    assert got == rows(m for n in range(N) for m in [n] * (3 if 10 <= n < 14 else 1))


def test_late_tuples_come_after_those_that_were_behind_them() -> None:
    got = [row["n"] for row in passed(Lateness(distance=10), 20, 3)]

    order = sorted(range(N), key=lambda n: (n + 10 - 0.5, n) if 20 <= n < 23 else (float(n), n))
    assert got == rows(order)


def test_reordering_stays_within_its_distance() -> None:
    got = [row["n"] for row in passed(Reordering(distance=8), 30, 40, seed=2)]

    assert sorted(got) == rows(range(N))
    assert got != sorted(got)
    for before, n in enumerate(got):
        # Whoever came ahead of it was at most so far behind.
        assert all(m - n <= 8 for m in got[:before])


def test_corrupted_values_have_one_bit_flipped() -> None:
    got = passed(Corruption(columns=("x",)), 50, 20)

    assert [row["n"] for row in got] == rows(range(N))
    for row in got:
        right, found = (np.float64(v).view(np.uint64) for v in (row["n"], row["x"]))
        assert int(right ^ found).bit_count() == (1 if 50 <= row["n"] < 70 else 0)


def test_every_bit_may_flip_and_null_stays_null() -> None:
    values = pa.array([5, None, -1], pa.int64())
    flipped = flip_bits(values, np.array([0, 1, 63], np.uint64))

    assert flipped.to_pylist() == [4, None, 2**63 - 1]
    assert flip_bits(pa.array([True, None]), np.array([9, 9], np.uint64)).to_pylist() == [False, None]
    (text,) = flip_bits(pa.array(["abc"]), np.array([1], np.uint64)).to_pylist()
    assert sum(a != b for a, b in zip(text, "abc", strict=True)) == 1


def test_values_are_changed_as_a_function_says() -> None:
    def negate(values: pa.Array) -> pa.Array:
        return pa.compute.negate(values)

    got = {row["n"]: row["x"] for row in passed(Corruption(columns=("x",), change=negate), 10, 5)}

    assert got == {n: -float(n) if 10 <= n < 15 else float(n) for n in rows(range(N))}


def test_a_stream_that_lags_stays_in_order_and_catches_up_at_its_knots() -> None:
    position = np.arange(1000)
    lag = lag_at(Lag(distance=20, knots=(400, 700)), 7, position)

    assert lag.max() <= 20
    assert lag.max() > 0
    assert (np.diff(position + lag) >= 0).all()
    for knot in (400, 700):
        # What came before the knot is there when it comes.
        assert (position[:knot] + lag[:knot]).max() <= knot


def test_streams_that_meet_interleave_in_another_way_for_each_seed() -> None:
    app = rr.Application("meeting")
    table = pa.table({"n": range(200), "v": [n % 7 for n in range(200)]})
    source = app.source("Rows", rr.rows(table), position="n")
    one = app.functor("One", source, where="v < 3", select="n, v")
    two = app.functor("Two", source, where="v >= 3", select="n, v")
    app.sink("Out", app.union("Both", one, two), rr.memory())
    woven = weave_lags(app.graph())

    orders = []
    for seed in (0, 1, 1):
        lagging = interleave(woven, distance=9, knots=(100,), seed=seed)
        golden = golden_of(lagging, ["One"], block_rows=1000)
        orders.append([n for p in golden.output("Out") for n in p.columns["n"].to_pylist()])

    assert orders[0] != orders[1] == orders[2]
    for order in orders:
        assert sorted(order) == list(range(200))
        assert sorted(order[:100]) == list(range(100))


@pytest.mark.parametrize("target", ["Rows", "Kept", "Sums"])
def test_a_burst_on_spark_is_the_burst_of_a_trial(spark: SparkSession, tmp_path: Any, target: str) -> None:
    def build() -> rr.Application:
        app = rr.Application("onspark")
        table = pa.table(
            {"n": range(N), "k": ["abc"[n % 3] for n in range(N)], "v": [n % 11 for n in range(N)]}
        )
        kept = app.functor(
            "Kept", app.source("Rows", rr.rows(table), position="n"), where="v > 2", select="n, k, v"
        )
        sums = app.aggregate(
            "Sums", kept, by="k", window=rr.sliding(tuples=4), emit=rr.every(tuples=1),
            select="last(n) as n, sum(v) as total",
        )  # fmt: skip
        app.sink("Out", sums, rr.memory())
        return app

    golden = golden_of(build().graph(), [target], block_rows=90)
    known = incoming(golden, target)
    faults = {target: {s: Fault(model=Loss(), stretches=p) for s, p in known.stretches(60, 35).items()}}
    trial = replay_trial(golden, faults)
    wanted = [r for p in trial.output(golden, "Out") for r in pa.table(dict(p.columns)).to_pylist()]
    right = [r for p in golden.output("Out") for r in pa.table(dict(p.columns)).to_pylist()]

    faulty = give(weave(build().graph(), [target]), faults)
    from riprap.runtime import run

    with run(faulty, spark=spark, runs=tmp_path, batch_rows=64) as running:
        running.wait()
        got = running.table("Out").to_pylist()

    def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(({n: row[n] for n in ("n", "total")} for row in found), key=lambda row: row["n"])

    assert in_order(got) == in_order(wanted)
    before = known.position(60)
    assert [r for r in in_order(got) if r["n"] < before] == [r for r in in_order(right) if r["n"] < before]
    assert in_order(got) != in_order(right)


def test_what_cannot_be_woven_is_said() -> None:
    graph = application().graph()
    with pytest.raises(GraphError, match="no operator 'Lost'"):
        weave(graph, ["Lost"])
    with pytest.raises(GraphError, match="no column 'y'"):
        give(weave(graph, ["Kept"]), {"Kept": Fault(model=Corruption(columns=("y",)))})
    with pytest.raises(GraphError, match="was not woven in to do so"):
        give(weave(graph, ["Kept"]), {"Kept": Fault(model=Duplication())})
    with pytest.raises(GraphError, match="in order"):
        Stretch(0, (5,), (2,))
