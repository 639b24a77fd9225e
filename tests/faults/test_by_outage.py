"""R and I of every outage and offset, against plain Python; and what a campaign advises can be asked for."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console
from tests.faults.test_chain import OFFSETS, SECTION, TUPLES, application, campaign, found, plain, scores

import riprap as rr
from riprap.cli.inject import by_offset
from riprap.faults import Crash, Loss, Replicas
from riprap.faults.evaluation import evaluate
from riprap.faults.report import advice
from riprap.faults.scored_trials import affected_sets, score_golden, score_trial
from riprap.faults.setup import Setup
from riprap.intervals import bootstrap


def test_recovery_and_impact_of_every_outage_at_every_offset() -> None:
    got = found(campaign(targets=(("Sums",),), stretch="source"))

    assert [each.outage for each in got.by_outage] == [f"{t}t" for t in TUPLES]
    right = scores(plain())
    for each, tuples in zip(got.by_outage, TUPLES, strict=True):
        for at, offset in enumerate(OFFSETS):
            wrong = scores(plain(range(offset, offset + tuples)))
            errors = [abs(w - r) / r for w, r in zip(wrong, right, strict=True)][offset // SECTION :]
            above = [u for u, e in enumerate(errors, 1) if e > 0.03]
            last = above[-(-9 * len(above) // 10) - 1] if above else 0
            assert each.R[at] == last
            assert each.I[at] == pytest.approx(sum(errors[u - 1] ** 2 for u in above if u <= last))
    assert got.by_outage[-1].worst == (got.R, got.I)


def test_an_outage_as_long_as_a_failover_is_shown_beside_the_longest() -> None:
    models = {"loss": Loss(), "failover": Crash(protection=Replicas(failover=4.0, group=("Sums",)))}
    asked = campaign(
        targets=(("Sums",),), stretch="source", tuples=(), seconds=TUPLES, rates={"": 1.0}, models=models
    )
    setup = Setup.of(application().graph(), asked, block_rows=8)
    seeded = setup.seeded(0)
    affected = affected_sets(seeded, setup.campaign)
    trials = [score_trial(seeded, task, affected) for task in setup.campaign.tasks()]
    replicated, bare = sorted(
        evaluate(setup.campaign, trials, [score_golden(seeded, affected)]), key=lambda each: each.model
    )

    shown = Console(file=io.StringIO(), width=120)
    shown.print(by_offset([bare], setup.campaign))
    text = shown.file.getvalue()  # type: ignore[attr-defined]

    for at in bare.by_outage:
        cells = [f"{r} ({i:.2f})" for r, i in zip(at.R, at.I, strict=True)]
        assert all(cell in text for cell in cells) == (at.outage in ("4s", "9s"))
    # What comes out of the group is lost for 4 s, whatever the outage: as long a loss of its input does more.
    assert replicated.by_outage[-1].R == replicated.by_outage[1].R
    assert replicated.by_outage[-1].I == replicated.by_outage[1].I


@pytest.mark.parametrize("values", [[0.8, 1.0, 1.0, 1.0], [-1.0, -1.0, -0.7], [1.0, 1.0], [0.3]])
def test_an_interval_of_correlations_keeps_to_what_they_can_be(values: list[float]) -> None:
    low, high = bootstrap(np.array(values))

    assert -1.0 <= min(values) <= low <= sum(values) / len(values) <= high <= max(values) <= 1.0
    assert (low == high) == (len(set(values)) == 1)


def test_the_interval_is_that_of_all_resamples() -> None:
    # Of two values the mean is one of both a quarter of the time, each, and half of the time between.
    assert bootstrap(np.array([0.0, 1.0])) == (0.0, 1.0)
    low, high = bootstrap(np.arange(5.0))
    drawn = np.array([np.mean(one) for one in np.ndindex(5, 5, 5, 5, 5)])
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.11)


def test_advice_names_only_what_can_be_asked_for() -> None:
    told = {
        "operators": [
            {"model": "loss", "targets": [name], "verdict": verdict, "stateful": stateful, "unpredictable": True}
            for name, verdict, stateful in (
                ("Sums", "protect", True), ("Odd", "protect", False), ("Rows", "restart is enough", False),
                ("Rest", "no effect", False), ("Lost", "unknown", True),
            )
        ]
    }  # fmt: skip

    lines = list(advice(told))
    codes = [code for line in lines for code in re.findall(r"<code>(.*?)</code>", line)]

    for word in ("consistent", "replica", "eventual"):
        assert not any(word in line for line in lines)
    protect = next(code for code in codes if code.startswith("protect="))
    app = rr.Application("advised")
    rows = app.source("Rows", rr.rows([{"n": 1}], "n bigint"), position="n")
    policy = eval(protect.removeprefix("protect="), {"rr": rr})
    sums = app.aggregate(
        "Sums",
        rows,
        window=rr.sliding(tuples=3),
        emit=rr.every(tuples=1),
        select="sum(n) as n",
        protect=policy,
    )
    restart = next(code for code in codes if code.startswith("restart="))
    app.place("element", sums, restart=eval(restart.removeprefix("restart=")))
    app.sink("Out", sums, rr.memory())
    from riprap.compiler import compile_graph

    compile_graph(app.graph(), buckets=1, tasks=1)
    assert any("Odd" in line and "checkpoint" in line and "keeps no state" in line for line in lines)
