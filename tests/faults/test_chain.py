"""The whole chain on a tiny application, every number of which is worked out here by plain Python."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import riprap as rr
from riprap.faults import Campaign, Crash, Criticality, Loss, Sum, inject, repeat
from riprap.faults.evaluation import evaluate
from riprap.faults.scored_trials import affected_sets, score_golden, score_trial
from riprap.faults.setup import Setup

ROWS = [{"n": n, "k": "abc"[n % 3], "v": (n * 7) % 11 + 1} for n in range(60)]
SECTION = 6
OFFSETS, TUPLES = (12, 30), (2, 4, 9)


def application() -> rr.Application:
    app = rr.Application("tiny")
    rows = app.source("Rows", rr.rows(ROWS, "n bigint, k string, v bigint"), position="n")
    odd = app.functor("Odd", rows, where="v % 2 = 1", select="n, k, v")
    sums = app.aggregate(
        "Sums", odd, by="k", window=rr.sliding(tuples=3), emit=rr.every(tuples=1),
        select="last(n) as n, sum(v) as total",
    )  # fmt: skip
    app.sink("Out", sums, rr.memory())
    return app


def plain(lost: Collection[int] = (), *, where: str = "Rows", forget: int | None = None) -> dict[int, int]:
    """Say what comes out: for each n that does, the total. ``lost`` are numbers of what comes into an operator."""
    held: dict[str, deque[int]] = {}
    found = {}
    arrived = {"Rows": itertools.count(), "Odd": itertools.count(), "Sums": itertools.count()}
    for row in ROWS:
        n, k, v = int(str(row["n"])), str(row["k"]), int(str(row["v"]))
        if forget is not None and n == forget:
            held.clear()
        if _misses(where, "Rows", arrived, lost) or _misses(where, "Odd", arrived, lost):
            continue
        if v % 2 != 1 or _misses(where, "Sums", arrived, lost):
            continue
        window = held.setdefault(k, deque(maxlen=3))
        window.append(v)
        found[n] = sum(window)
    return found


def _misses(where: str, here: str, arrived: dict[str, itertools.count[int]], lost: Collection[int]) -> bool:
    number = next(arrived[here])
    return where == here and number in lost


def scores(output: dict[int, int]) -> list[int]:
    found = [0] * (len(ROWS) // SECTION)
    for n, total in output.items():
        found[n // SECTION] += total
    return found


def campaign(**more: object) -> Campaign:
    told: dict[str, object] = {
        "sink": "Out", "score": Sum("total"), "offsets": OFFSETS, "tuples": TUPLES, "section": SECTION,
        "by": "n", "key": ("n",), "targets": (("Odd",),), **more,
    }  # fmt: skip
    return Campaign(**told)  # type: ignore[arg-type]


def found(asked: Campaign, *, shortcut: bool = True) -> Criticality:
    setup = Setup.of(application().graph(), asked, block_rows=8)
    seeded = setup.seeded(0)
    affected = affected_sets(seeded, setup.campaign)
    trials = [score_trial(seeded, task, affected, shortcut=shortcut) for task in setup.campaign.tasks()]
    assert not any(trial.error for trial in trials)
    (only,) = evaluate(setup.campaign, trials, [score_golden(seeded, affected)])
    return only


def by_hand(where: str, outputs: dict[tuple[int, int], dict[int, int]]) -> dict[str, object]:
    """Work out the metrics of faulty outputs by offset and outage."""
    right = plain()
    quality, recoveries, impacts = [], [], []
    for offset in OFFSETS:
        longest = outputs[offset, TUPLES[-1]]
        affected = {n for n in {*right, *longest} if right.get(n) != longest.get(n)}
        expected = sum(right.get(n, 0) for n in affected)
        quality.append([sum(outputs[offset, t].get(n, 0) for n in affected) / expected for t in TUPLES])
        begin = min(affected | {offset}) // SECTION
        errors = [
            abs(wrong - good) / good if good else float(wrong > 0)
            for wrong, good in zip(scores(longest), scores(right), strict=True)
        ][begin:]
        wrong = [u for u, e in enumerate(errors, 1) if e > 0.03]
        needed = -(-9 * len(wrong) // 10)
        recoveries.append(wrong[needed - 1])
        impacts.append(sum(errors[u - 1] ** 2 for u in wrong if u <= recoveries[-1]))
    ranks = [[sorted(row).index(q) for q in row] for row in quality]
    # Three outages: 1 - 6 sum of squares / (3 * 8).
    spearman = [1 - sum((a - b) ** 2 for a, b in enumerate(row)) / 4 for row in ranks]
    last = [row[-1] for row in quality]
    middle = sum(last) / len(last)
    return {
        "quality": quality,
        "C": sum(spearman) / len(spearman),
        "D": (sum((q - middle) ** 2 for q in last) / (len(last) - 1)) ** 0.5,
        "R": max(recoveries),
        "I": max(impacts),
    }


def check(got: Criticality, wanted: dict[str, object]) -> None:
    quality = wanted["quality"]
    assert isinstance(quality, list)
    assert got.quality.tolist() == [pytest.approx(row) for row in quality]
    assert pytest.approx(wanted["C"]) == got.C
    assert pytest.approx(wanted["D"]) == got.D
    assert wanted["R"] == got.R
    assert pytest.approx(wanted["I"]) == got.I


@pytest.mark.parametrize("where", ["Rows", "Odd", "Sums"])
@pytest.mark.parametrize("shortcut", [True, False])
def test_lost_tuples_of_an_operators_own_count(where: str, shortcut: bool) -> None:
    reaching = {"Rows": 60, "Odd": 60, "Sums": sum(int(str(row["v"])) % 2 for row in ROWS)}[where]
    first = {offset: int(offset * reaching / 60) for offset in OFFSETS}
    outputs = {(o, t): plain(range(first[o], first[o] + t), where=where) for o in OFFSETS for t in TUPLES}

    got = found(campaign(targets=((where,),)), shortcut=shortcut)

    check(got, by_hand(where, outputs))


def test_what_derives_from_a_stretch_of_the_source_is_lost_wherever_the_target_is() -> None:
    got = found(campaign(targets=(("Sums",),), stretch="source"))

    check(got, by_hand("Sums", {(o, t): plain(range(o, o + t)) for o in OFFSETS for t in TUPLES}))


def test_operators_that_fail_together_lose_what_each_would() -> None:
    got = found(campaign(targets=(("Odd", "Sums"),), stretch="source"))

    check(got, by_hand("Odd", {(o, t): plain(range(o, o + t)) for o in OFFSETS for t in TUPLES}))


def test_a_crash_without_protection_forgets() -> None:
    asked = campaign(
        targets=(("Sums",),), stretch="source", tuples=(), seconds=TUPLES, rates={"": 1.0},
        models={"crash": Crash(protection=None, restart="live")},
    )  # fmt: skip

    outputs = {(o, t): plain(range(o, o + t), forget=o + t) for o in OFFSETS for t in TUPLES}

    check(found(asked), by_hand("Sums", outputs))


def test_a_campaign_on_spark_comes_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    asked = campaign(models={"loss": Loss()})

    findings = inject(application(), asked, folder=tmp_path / "c", spark=spark, compare=False)

    (got,) = findings.criticalities
    outputs = {(o, t): plain(range(o, o + t), where="Odd") for o in OFFSETS for t in TUPLES}
    check(got, by_hand("Odd", outputs))


def test_a_trial_is_repeated_alone_by_its_name() -> None:
    asked = campaign()
    setup = Setup.of(application().graph(), asked)
    seeded = setup.seeded(0)
    affected = affected_sets(seeded, setup.campaign)
    there = {t.id: score_trial(seeded, t, affected) for t in setup.campaign.tasks()}

    again = repeat(application(), asked, "loss/Odd/30/4t/0")

    known = there["loss/Odd/30/4t/0"]
    assert (again.affected, again.sections, again.local) == (known.affected, known.sections, known.local)
