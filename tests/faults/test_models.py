"""What each model of faults does to the tuples of an operator, against plain lists; and on Spark as in a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.faults.replaying import golden_of

import riprap as rr
from riprap.arrays import Ints
from riprap.compiler.weaving import give, weave
from riprap.errors import GraphError
from riprap.faults.interleaving import interleave, lags_of, weave_lags
from riprap.faults.models import Corruption, Duplication, Lag, Lateness, Loss, Reordering
from riprap.faults.models.corruption import flip_bits
from riprap.faults.models.lag import lag_at
from riprap.faults.targets import incoming
from riprap.faults.trial import replay_trial
from riprap.graph.faults import Fault, FaultModel, Stretch

N = 300


def application(sink: Any = None) -> rr.Application:
    app = rr.Application("passing")
    table = pa.table({"n": range(N), "k": ["ab"[n % 2] for n in range(N)], "x": [float(n) for n in range(N)]})
    rows = app.source("Rows", rr.rows(table), position="n")
    kept = app.functor("Kept", rows, where="n % 3 <> 0", select="n, k, x")
    app.sink("Out", kept, sink or rr.memory())
    return app


def passed(
    model: FaultModel, first: int, count: int, *, seed: int = 0, block_rows: int = 1000
) -> list[dict[str, Any]]:
    return passed_at(model, {first: count}, seed=seed, block_rows=block_rows)


def passed_at(
    model: FaultModel, bursts: Mapping[int, int], *, seed: int = 0, block_rows: int = 1000
) -> list[dict[str, Any]]:
    golden = golden_of(application().graph(), ["Kept"], deep=model.deep, block_rows=block_rows)
    known = incoming(golden, "Kept")
    hit: dict[str, tuple[Stretch, ...]] = {}
    for first, count in bursts.items():
        for stream, stretches in known.stretches(first, count).items():
            hit[stream] = (*hit.get(stream, ()), *stretches)
    faults = {"Kept": {s: Fault(model=model, stretches=p, seed=seed) for s, p in hit.items()}}
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


def in_turn(late: Mapping[int, int]) -> list[int]:
    """Say in which order numbers come if some wait, each until so many more have had their turn: as a plain loop."""
    waiting: dict[int, int] = {}
    order = []
    for n in range(N):
        if n in late:
            waiting[n] = n + late[n]
        else:
            order.append(n)
        due = [m for m, until in waiting.items() if until == n]
        order += due
        for m in due:
            del waiting[m]
    return order + list(waiting)


@pytest.mark.parametrize("distance", [1, 2, 10])
def test_late_tuples_come_after_those_that_were_behind_them(distance: int) -> None:
    for first, count in ((20, 1), (20, 30), (N - 5, 5)):
        got = [row["n"] for row in passed(Lateness(distance=distance), first, count)]

        assert got == rows(in_turn(dict.fromkeys(range(first, first + count), distance)))


@pytest.mark.parametrize("distance", [1, 3])
def test_reordering_goes_up_to_its_distance_and_no_further(distance: int) -> None:
    hit = range(10, N - 10, 9)
    got = [row["n"] for row in passed_at(Reordering(distance=distance), dict.fromkeys(hit, 1), seed=2)]

    # Every third is not passed on, so one that is late by 2 looks as if it were late by 1.
    late = {n: got[got.index(n) - 1] - n for n in hit}
    assert got == rows(in_turn({n: by for n, by in late.items() if by > 0}))
    assert max(late.values()) == distance

    mixed = [row["n"] for row in passed(Reordering(distance=distance), 30, 40, seed=2)]
    assert sorted(mixed) == rows(range(N))
    assert max(m - n for place, n in enumerate(mixed) for m in mixed[:place]) <= distance


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


@pytest.mark.parametrize("distance", [1, 2, 20])
def test_a_stream_that_lags_stays_in_order_and_catches_up_at_its_knots(distance: int) -> None:
    position = np.arange(5000)
    lag = lag_at(Lag(distance=distance, knots=(400, 700)), 7, position)

    assert lag.max() == distance
    assert (np.diff(position + lag) >= 0).all()
    for knot in (400, 700):
        # What came before the knot is there when it comes.
        assert (position[:knot] + lag[:knot]).max() < knot


def meeting() -> rr.Application:
    app = rr.Application("meeting")
    table = pa.table({"n": range(200), "v": [n % 7 for n in range(200)]})
    source = app.source("Rows", rr.rows(table), position="n")
    one = app.functor("One", source, where="v < 3", select="n, v")
    two = app.functor("Two", source, where="v >= 2", select="n, v")
    app.sink("Out", app.union("Both", one, two), rr.memory())
    return app


def lagging(lags: Sequence[Ints]) -> list[int]:
    """Say in which order two streams meet that are behind by so many positions: each is a queue, in a plain loop."""
    order: list[int] = []
    queues: list[list[tuple[int, int]]] = [[], []]
    for n in range(200):
        for queue, lag, there in zip(queues, lags, (n % 7 < 3, n % 7 >= 2), strict=True):
            if lag[n] == 0 and (n == 0 or lag[n - 1] == 0):
                order += [n] if there else []
            elif there:
                queue.append((n + int(lag[n]), n))
        due = []
        for queue in queues:
            while queue and queue[0][0] <= n:
                due.append(queue.pop(0)[1])
        order += sorted(due)
    return order + sorted(n for queue in queues for _, n in queue)


@pytest.mark.parametrize("distance", [1, 2, 9])
def test_streams_that_meet_interleave_in_another_way_for_each_seed(distance: int) -> None:
    woven = weave_lags(meeting().graph())

    orders = []
    for seed in (0, 1, 1):
        graph = interleave(woven, distance=distance, knots=(100,), seed=seed)
        golden = golden_of(graph, ["One"], block_rows=1000)
        orders.append([n for p in golden.output("Out") for n in p.columns["n"].to_pylist()])
        lags = [lag_at(f.model, f.seed, np.arange(200)) for f in lags_of(graph) if isinstance(f.model, Lag)]
        assert orders[-1] == lagging(lags)

    assert orders[0] != orders[1] == orders[2]
    for order in orders:
        # What came before the knot is there when it comes.
        assert sorted(order, key=lambda n: n >= 100) == order


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
    from riprap.runtime.start import run

    with run(faulty, rr.RunOptions(spark=spark, runs=tmp_path, batch_rows=64)) as running:
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
