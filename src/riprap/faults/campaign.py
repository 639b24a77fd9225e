"""A campaign: which faults to inject where, how often, and by which score to tell what they do."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

from riprap.errors import GraphError
from riprap.faults.metrics import COVERED, THRESHOLD
from riprap.faults.models import Loss
from riprap.faults.scores import Score
from riprap.graph.faults import Crash, FaultModel, Replicas

Targets = tuple[str, ...]
_NAME = re.compile(r"[\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """How long a target is out: seconds at a rate of the source in tuples a second, or a number of its own tuples.

    Without a ``rate`` it is the target's own, as measured: ``label`` says whether on average or at its peak.
    """

    seconds: float = 0.0
    rate: float | None = None
    tuples: int | None = None
    label: str = ""

    @property
    def positions(self) -> float | None:
        """How many tuples of the source that is, if one can say so without having measured anything."""
        return None if self.rate is None else self.seconds * self.rate

    def __str__(self) -> str:
        if self.tuples is not None:
            return f"{self.tuples}t"
        return f"{self.seconds:g}s{'-' + self.label if self.label else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One trial: a fault at a target, or at several that fail together, at an offset, for as long as an outage."""

    model: str
    targets: Targets
    offset: int
    outage: Outage
    repetition: int

    @property
    def cell(self) -> str:
        """The name it has in common with its repetitions."""
        return f"{self.model}/{'+'.join(self.targets)}/{self.offset}/{self.outage}"

    @property
    def id(self) -> str:
        """Its name, by which it can be repeated alone."""
        return f"{self.cell}/{self.repetition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What to inject, and how to tell what it does.

    ``sink``, ``score``   whose output, and what is made of the tuples of a section of it
    ``offsets``           positions of the source at which faults begin
    ``seconds``           how long outages are, at each of some ``rates`` of the source in tuples a second, by name;
                          or, with ``clock``, a column of the source that has its time, at rates that are measured
    ``tuples``            or else how many tuples of its own a target misses
    ``stretch``           "own": offsets and outages are converted to a target's own count of tuples, by its share
                          of the source's; "source": it misses what derives from the stretch of source positions
    ``targets``           where, several in brackets failing together; by default where the rules of placement say
    ``models``            what happens there, by name
    ``repetitions``       of each trial, and ``golden`` runs: they differ only in how streams interleave, by up to
                          ``interleave`` positions of the source; without that there is one of each
    ``section``           how many positions of the source, or numbers of the column ``by`` (of a time:
                          microseconds), make a section of the output
    ``key``               columns that tell tuples of the output apart, in every run alike; by default by where they are
    ``threshold``         from which relative error on a section counts as wrong; ``covered`` is the share of such
                          sections after which the output counts as recovered; with ``signed`` errors keep their
                          sign in results
    """

    sink: str
    score: Score
    offsets: tuple[int, ...]
    section: int
    seconds: tuple[float, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    clock: str | None = None
    tuples: tuple[int, ...] = ()
    by: str | None = None
    key: tuple[str, ...] = ()
    targets: tuple[Targets, ...] = ()
    models: Mapping[str, FaultModel | Crash] = field(default_factory=lambda: {"loss": Loss()})
    stretch: Literal["own", "source"] = "own"
    repetitions: int = 1
    golden: int = 1
    interleave: int | None = None
    threshold: float = THRESHOLD
    covered: float = COVERED
    signed: bool = False
    seed: int = 0
    # The targets of each model, once they are placed in an application.
    placed: Mapping[str, tuple[Targets, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("offsets", "models"):
            if not getattr(self, what):
                raise GraphError(f"a campaign without {what}: give at least one")
        if bool(self.seconds) == bool(self.tuples):
            raise GraphError("a campaign has outages in seconds=, or in tuples=: give one of the two")
        if self.seconds and bool(self.rates) == (self.clock is not None):
            raise GraphError(
                "outages in seconds are made tuples by rates=, tuples of the source a second by name, or by clock=, "
                "a column of the source that has its time: give one of the two"
            )
        numbers = (
            *self.seconds,
            *self.rates.values(),
            *self.tuples,
            self.section,
            self.repetitions,
            self.golden,
        )
        if min(numbers) <= 0:
            raise GraphError("outages, rates, section, repetitions and golden must be positive")
        if min(self.offsets) < 0:
            raise GraphError(f"offset {min(self.offsets)}: give positions of the source, from 0 on")
        if not 0 < self.covered <= 1 or self.threshold < 0:
            raise GraphError("threshold must be 0 or more, covered above 0 and at most 1")
        if self.stretch not in ("own", "source"):
            raise GraphError(f"stretch={self.stretch!r}: it is 'own' or 'source'")
        for what, values in (("offsets", self.offsets), ("seconds", self.seconds), ("tuples", self.tuples)):
            if len(set(values)) < len(values):
                raise GraphError(f"{what}={list(values)}: one of them is there twice")
        for name in (*self.models, *self.rates):
            if not _NAME.fullmatch(name):
                raise GraphError(
                    f"'{name}': models and rates are called by letters, digits, '_', '.' and '-'"
                )
        if self.interleave is None and (self.golden > 1 or (self.repetitions > 1 and not self.drawn)):
            raise GraphError(
                "without interleave= nothing differs between golden runs, nor between repetitions of faults that are "
                "not random: give it, as how many positions of the source streams may lag by, or one of each"
            )
        if self.interleave is not None and (self.interleave < 1 or not self.key):
            raise GraphError(
                "with interleave=, at least 1, key= must name columns that tell tuples of the output apart: their "
                "place is not the same in every run"
            )
        self._check_crashes()

    def _check_crashes(self) -> None:
        crashes = [name for name, model in self.models.items() if isinstance(model, Crash)]
        if crashes and self.stretch != "source":
            raise GraphError(
                f"model '{crashes[0]}' is a crash, whose state is that of a position of the source: give "
                "stretch='source'"
            )
        if crashes and self.tuples:
            raise GraphError(
                f"model '{crashes[0]}' is a crash: give outages in seconds, as the ages of checkpoints are"
            )
        replicated = {n: m.protection for n, m in self.models.items() if isinstance(m, Crash)}
        diverging = [n for n, p in replicated.items() if isinstance(p, Replicas) and p.diverging]
        if diverging and self.interleave is None:
            raise GraphError(
                f"model '{diverging[0]}' has replicas that diverge: give interleave=, by which they do"
            )

    @property
    def outages(self) -> tuple[Outage, ...]:
        """Every outage, the shortest first."""
        if self.tuples:
            return tuple(Outage(tuples=count) for count in sorted(self.tuples))
        if self.clock is not None:
            return tuple(
                Outage(seconds=s, label=label) for s in sorted(self.seconds) for label in ("average", "peak")
            )
        outages = [
            Outage(seconds=s, rate=rate, label=name if len(self.rates) > 1 else "")
            for s in self.seconds
            for name, rate in self.rates.items()
        ]
        return tuple(sorted(outages, key=lambda o: o.positions or 0.0))

    @property
    def drawn(self) -> bool:
        """Whether some fault is random."""
        return any(m.drawn for m in self.models.values())

    @property
    def deep(self) -> bool:
        """Whether some fault repeats or moves tuples."""
        return any(not isinstance(m, Crash) and m.deep for m in self.models.values())

    @property
    def crashes(self) -> bool:
        """Whether some fault changes what operators hold."""
        return any(isinstance(m, Crash) for m in self.models.values())

    def tasks(self) -> Iterator[Task]:
        """List the trials."""
        for model in self.models:
            for targets in self.placed.get(model, self.targets):
                for offset in self.offsets:
                    for outage in self.outages:
                        for repetition in range(self.repetitions):
                            yield Task(
                                model=model,
                                targets=targets,
                                offset=offset,
                                outage=outage,
                                repetition=repetition,
                            )

    def task(self, name: str) -> Task:
        """Find a trial by its name."""
        named = next((task for task in self.tasks() if task.id == name), None)
        if named is None:
            example = next(self.tasks()).id
            raise GraphError(f"the campaign has no trial '{name}'; one that it has is '{example}'")
        return named

    def describe(self) -> dict[str, Any]:
        """Say what the campaign is, in plain values: two that say the same are the same."""
        entries: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        entries["score"] = {"name": self.score.name, **plain(self.score)}
        entries["models"] = {name: {"model": type(m).__name__, **plain(m)} for name, m in self.models.items()}
        entries["rates"] = dict(self.rates)
        entries["placed"] = {name: [list(t) for t in targets] for name, targets in self.placed.items()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in entries.items()}


def _function(function: Any) -> str:
    """Name a function, and tell it from another of the same name by what it does."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    if code is None:
        return str(name)
    around = [function.__defaults__, *(cell.cell_contents for cell in function.__closure__ or ())]
    return f"{name} {hashlib.sha256(f'{_does(code)} {around}'.encode()).hexdigest()[:10]}"


def _does(code: CodeType) -> str:
    return f"{code.co_code.hex()} {code.co_names} {[_constant(each) for each in code.co_consts]}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _does(value)
    # Sets have another order in every process.
    return repr(sorted(value, key=repr) if isinstance(value, frozenset) else value)


def plain(value: Any) -> dict[str, Any]:
    """Return what a value is made of; functions by their name."""
    entries = {}
    for each in dataclasses.fields(value):
        part = getattr(value, each.name)
        if dataclasses.is_dataclass(part):
            part = {"is": type(part).__name__, **plain(part)}
        elif callable(part):
            part = _function(part)
        entries[each.name] = list(part) if isinstance(part, tuple) else part
    return entries
