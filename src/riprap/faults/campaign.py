"""A campaign: which faults to inject where, how often, and by which score to tell what they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from riprap.errors import RunError
from riprap.faults.metrics import COVERED, THRESHOLD
from riprap.faults.scores import Score
from riprap.graph.faults import Loss, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """How long a target is out: seconds at a rate of the source, in tuples a second."""

    seconds: float
    rate: float
    label: str = ""

    @property
    def positions(self) -> float:
        """How many tuples of the source that is."""
        return self.seconds * self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One trial: a fault at a target, or several that fail together, at an offset, for as long as an outage."""

    targets: tuple[str, ...]
    offset: int
    outage: Outage
    repetition: int

    @property
    def id(self) -> str:
        """Its name, from which it can be repeated alone."""
        label = f"@{self.outage.label}" if self.outage.label else ""
        return f"{'+'.join(self.targets)}/{self.offset}/{self.outage.seconds:g}s{label}/{self.repetition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What to inject. Offsets are positions of the source.

    With ``stretch="own"`` offsets and outages are converted to each target's own count of tuples, by its share of the
    source's; with "source" a target misses what derives from the stretch of source positions. ``rates`` are tuples of
    the source a second, by name. ``repetitions`` of each trial, and ``golden`` runs, differ only in how streams
    interleave, by up to ``interleave`` positions; without it there is one of each. ``key`` names columns that tell output
    tuples apart, ``section`` how many positions, or numbers of column ``by``, make a section of the output.
    """

    sink: str
    score: Score
    offsets: tuple[int, ...]
    seconds: tuple[float, ...]
    rates: Mapping[str, float]
    section: int
    by: str | None = None
    key: tuple[str, ...] = ()
    targets: tuple[tuple[str, ...], ...] = ()
    model: Model = field(default_factory=Loss)
    stretch: Literal["own", "source"] = "own"
    repetitions: int = 1
    golden: int = 1
    interleave: int | None = None
    threshold: float = THRESHOLD
    covered: float = COVERED
    seed: int = 0

    def __post_init__(self) -> None:
        for what, values in (("offsets", self.offsets), ("seconds", self.seconds), ("rates", self.rates)):
            if not values:
                raise RunError(f"a campaign without {what}: give at least one")
        if min(self.seconds) <= 0 or min(self.rates.values()) <= 0:
            raise RunError("outages and rates must be positive")
        if self.interleave is None and (self.repetitions > 1 or self.golden > 1):
            raise RunError(
                "repetitions come to the very same without interleave=: give it, or one repetition and one golden run"
            )

    @property
    def outages(self) -> tuple[Outage, ...]:
        """Every outage, the shortest first."""
        found = [
            Outage(seconds=s, rate=rate, label=name if len(self.rates) > 1 else "")
            for s in self.seconds
            for name, rate in self.rates.items()
        ]
        return tuple(sorted(found, key=lambda o: o.positions))

    def tasks(self) -> Iterator[Task]:
        """List the trials."""
        for targets in self.targets:
            for offset in self.offsets:
                for outage in self.outages:
                    for repetition in range(self.repetitions):
                        yield Task(targets=targets, offset=offset, outage=outage, repetition=repetition)
