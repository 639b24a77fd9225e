"""Trials and golden runs as the numbers that metrics are made of, and those as lines of a file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from riprap.arrays import Floats
from riprap.errors import RunError
from riprap.faults.campaign import Campaign, Targets, Task
from riprap.faults.setup import Seeded
from riprap.state.hashing import Hashes

# By place the tuples that are affected, or why that is not known.
Affected = Mapping[str, Hashes | str]


def place_id(model: str, targets: Targets, offset: int) -> str:
    """Name the place of a fault.

    >>> place_id("loss", ("Parse", "Recent"), 500)
    'loss/Parse+Recent/500'
    """
    return f"{model}/{'+'.join(targets)}/{offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What came of a trial.

    ``affected`` is the score of the tuples that the longest outage affects; ``sections`` and ``local`` are the sections
    that have another score than in the golden run of its seed, and that score; ``begins`` and ``ends`` the sections in
    which the fault does; ``lost`` how many tuples were hit, ``replayed`` how many were computed again. ``error``
    says why nothing is known.
    """

    id: str
    affected: float = 0.0
    sections: tuple[int, ...] = ()
    local: tuple[float, ...] = ()
    begins: int = 0
    ends: int = 0
    lost: int = 0
    replayed: int = 0
    seconds: float = 0.0
    error: str = ""

    def over(self, golden: Floats) -> Floats:
        """Return the score of every section, given those of the golden run of its seed."""
        local = golden.copy()
        local[list(self.sections)] = self.local
        return local

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Take up what was written down."""
        return cls(**{**fields, "sections": tuple(fields["sections"]), "local": tuple(fields["local"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenScored:
    """A golden run: its score over the tuples that are affected at each place, and in every section.

    ``error`` says why nothing is known.
    """

    seed: int
    affected: Mapping[str, float] = field(default_factory=dict)
    local: tuple[float, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Take up what was written down."""
        return cls(**{**fields, "local": tuple(fields["local"])})


def affected_sets(first: Seeded, campaign: Campaign, *, only: str | None = None) -> Affected:
    """Find the tuples of the output that the longest outage at each place affects: by comparing with golden runs.

    What a random fault affects is what it does in any repetition.
    """
    affected: dict[str, Hashes | str] = {}
    seeds = {first.seed: first}
    for model in campaign.models:
        repetitions = campaign.repetitions if campaign.models[model].drawn else 1
        for targets in campaign.placed[model]:
            for offset in campaign.offsets:
                place = place_id(model, targets, offset)
                if only is not None and place != only:
                    continue
                try:
                    affected[place] = _affected(first, seeds, repetitions, model, targets, offset)
                except Exception as error:
                    affected[place] = f"{type(error).__name__}: {error}"
    return affected


def _affected(
    first: Seeded, seeds: dict[int, Seeded], repetitions: int, model: str, targets: Targets, offset: int
) -> Hashes:
    setup = first.setup
    tuples = np.empty(0, np.uint64)
    for repetition in range(repetitions):
        seed = setup.seed_of(repetition)
        if seed not in seeds:
            # One more at a time: a golden run is large.
            for other in [s for s in seeds if s != first.seed]:
                del seeds[other]
            seeds[seed] = setup.seeded(seed, first.right)
        task = Task(
            model=model,
            targets=targets,
            offset=offset,
            outage=setup.campaign.outages[-1],
            repetition=repetition,
        )
        seeded = seeds[seed]
        tuples = np.union1d(tuples, seeded.right.affected(seeded.differences(seeded.run(task))))
    return tuples


def check_score(seeded: Seeded) -> None:
    """Refuse a score that says nothing of a run without faults."""
    local, name = np.asarray(seeded.right.local), seeded.setup.campaign.score.name
    if not len(seeded.right.output):
        sink = seeded.setup.campaign.sink
        raise RunError(
            f"sink '{sink}' puts nothing out on this feed: there is nothing to score. Give a longer feed"
        )
    if not np.isfinite(local).all():
        first = int(np.flatnonzero(~np.isfinite(local))[0])
        raise RunError(
            f"the score '{name}' is {local[first]} in section {first} of a run without faults. Let it be a number "
            "for any tuples, none included"
        )
    if not local.any():
        raise RunError(
            f"the score '{name}' is zero in every section of a run without faults, so nothing can be told by it. Take "
            "another, such as the count of tuples"
        )


def score_trial(seeded: Seeded, task: Task, affected: Affected, *, shortcut: bool = True) -> Scored:
    """Run a trial and score it; one that fails is unknown, and says why."""
    began = time.perf_counter()
    try:
        trial = seeded.run(task, shortcut=shortcut)
        differences = seeded.differences(trial)
        local = seeded.right.scores(differences)
        where = np.flatnonzero(local != seeded.right.local)
        begins, ends = seeded.setup.spans[task.cell]
        tuples = affected[place_id(task.model, task.targets, task.offset)]
        if isinstance(tuples, str):
            raise RunError(f"which tuples the longest outage affects is not known: {tuples}")
        score = seeded.right.score_of(tuples, differences)
        if not np.isfinite(np.append(local, score)).all():
            raise RunError(f"the score '{seeded.setup.campaign.score.name}' is not a number")
        return Scored(
            id=task.id,
            affected=score,
            sections=tuple(where.tolist()),
            local=tuple(local[where].tolist()),
            begins=begins,
            ends=ends,
            lost=trial.hit,
            replayed=trial.replayed,
            seconds=time.perf_counter() - began,
        )
    except Exception as error:
        # Whatever the user's code does, the other trials are not lost by it.
        return Scored(
            id=task.id, error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - began
        )


def score_golden(seeded: Seeded, affected: Affected) -> GoldenScored:
    """Score a golden run."""
    computed = {place: tuples for place, tuples in affected.items() if not isinstance(tuples, str)}
    return GoldenScored(
        seed=seeded.seed,
        affected={place: seeded.right.score_of(tuples) for place, tuples in computed.items()},
        local=tuple(np.asarray(seeded.right.local).tolist()),
    )
