"""Run a campaign, and make metrics of its scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from riprap.faults.campaign import Campaign, Task
from riprap.faults.metrics import (
    Anova,
    data_dependency,
    local_errors,
    notices,
    outage_impact,
    quality_scores,
    recover,
)
from riprap.faults.scores import Floats
from riprap.faults.stage import Seeded, Setup

Place = tuple[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What came of a trial: the score of the affected tuples, and of every section; how many tuples were replayed."""

    task: Task
    affected: float
    local: Floats
    replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenScored:
    """A golden run: its score over the tuples that each target and offset affects, and of every section."""

    affected: dict[Place, float]
    local: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Criticality:
    """The metrics of a target, as equations 1 to 8 define them."""

    targets: tuple[str, ...]
    C: float
    correlations: tuple[float, ...]
    D: float
    anova: Anova
    R: int
    recoveries: tuple[int, ...]
    I: float  # noqa: E741  (the paper's name)
    impacts: tuple[float, ...]
    quality: Floats
    notices: bool


def affected_sets(setup: Setup, seeded: Seeded) -> dict[Place, np.ndarray]:
    """Find the tuples that the longest outage of each target and offset affects."""
    longest = setup.campaign.outages[-1]
    found: dict[Place, np.ndarray] = {}
    for targets in setup.campaign.targets:
        for offset in setup.campaign.offsets:
            task = Task(targets=targets, offset=offset, outage=longest, repetition=0)
            found[targets, offset] = seeded.affected(seeded.run(task))
    return found


def score_trial(seeded: Seeded, task: Task, affected: dict[Place, np.ndarray]) -> Scored:
    """Run a trial and score it."""
    trial = seeded.run(task)
    output = seeded.output(trial)
    score = seeded.setup.campaign.score
    return Scored(
        task=task,
        affected=output.score_of(score, affected[task.targets, task.offset]),
        local=seeded.local(output),
        replayed=trial.replayed,
    )


def score_golden(seeded: Seeded, affected: dict[Place, np.ndarray]) -> GoldenScored:
    """Score a golden run."""
    output = seeded.output()
    score = seeded.setup.campaign.score
    return GoldenScored(
        affected={place: output.score_of(score, tuples) for place, tuples in affected.items()},
        local=seeded.local(output),
    )


def evaluate(
    campaign: Campaign,
    trials: list[Scored],
    golden: list[GoldenScored],
    begins: Callable[[tuple[str, ...], int], int],
) -> list[Criticality]:
    """Make the metrics of every target; ``begins`` says in which section the fault of an offset begins."""
    found = []
    by_task = {trial.task.id: trial for trial in trials}
    right = np.array([run.local for run in golden])
    for targets in campaign.targets:
        def of(offset: int, outage: object) -> list[Scored]:
            tasks = [t for t in campaign.tasks() if (t.targets, t.offset, t.outage) == (targets, offset, outage)]
            return [by_task[t.id] for t in tasks]

        faulty = np.array(
            [[[s.affected for s in of(offset, outage)] for outage in campaign.outages] for offset in campaign.offsets]
        )
        reference = np.array([[run.affected[targets, offset] for run in golden] for offset in campaign.offsets])
        quality = quality_scores(faulty, reference)
        C, correlations = outage_impact([o.positions for o in campaign.outages], quality)
        dependency = data_dependency(faulty[:, -1], reference)
        recoveries, impacts, sensitive = [], [], False
        for offset in campaign.offsets:
            begin = begins(targets, offset)
            wrong = np.array([s.local for s in of(offset, campaign.outages[-1])])[:, begin:]
            section, impact = recover(
                local_errors(wrong, right[:, begin:]), threshold=campaign.threshold, covered=campaign.covered
            )
            recoveries.append(section)
            impacts.append(impact)
            sensitive = sensitive or notices(wrong, right[:, begin:])
        found.append(
            Criticality(
                targets=targets,
                C=C,
                correlations=correlations,
                D=dependency.deviation,
                anova=dependency.anova,
                R=max(recoveries),
                recoveries=tuple(recoveries),
                I=max(impacts),
                impacts=tuple(impacts),
                quality=quality,
                notices=sensitive,
            )
        )
    return found
