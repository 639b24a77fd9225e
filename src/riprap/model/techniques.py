"""Techniques of protection, as a model sees them: how many copies, what comes back after a crash, what is lost.

A technique is anything with ``protect(parts)``, which returns a :class:`Protection` for each operator it is about; the
others have none. To add one, write such a class:

>>> @dataclass(frozen=True)
... class KeptUpstream:
...     "Restart from nothing, but lose nothing that came in meanwhile."
...     def protect(self, parts):
...         return {part.name: Protection(kept=True) for part in parts if not part.source}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.graph.operators import Sink
from riprap.graph.policies import Checkpoint, Consistent
from riprap.model.parts import Part

Restore = Literal["scratch", "checkpoint", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What one operator has.

    ``restore`` is what comes back after a crash: nothing, a checkpoint between ``age[0]`` and ``age[1]`` seconds old,
    or all of it. ``kept`` says that what comes in meanwhile waits instead of being lost. ``group`` names the
    high-availability group it is in, whose other replica takes over after ``failover`` seconds; ``copies`` are those
    that all take part, their results deduplicated. ``every`` is how often it is saved, for the cost.
    """

    restore: Restore = "scratch"
    age: tuple[float, float] = (0.0, 0.0)
    kept: bool = False
    group: str | None = None
    failover: float = 0.0
    copies: int = 1
    every: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("age", self.age[0]), ("failover", self.failover), ("every", self.every)):
            if not 0 <= value < float("inf"):
                raise ModelError(f"{name} of a protection is {value!r}: give seconds of at least zero")
        if not self.age[0] <= self.age[1] < float("inf"):
            raise ModelError(f"age of a protection is {self.age!r}: give the least and the greatest")


class Technique(Protocol):
    """How an application is protected."""

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        """Return the protection of each operator that has one."""


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Restart what crashes, with empty state."""

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        return {}


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Restore operators that keep state from a checkpoint: ``age`` seconds old, or of any age up to ``every``."""

    operators: tuple[str, ...] = ()
    every: float = 1.0
    age: float | None = None

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        _known(parts, self.operators)
        mine = self.operators or tuple(p.name for p in parts if p.stateful)
        age = (0.0, self.every) if self.age is None else (self.age, self.age)
        return {name: Protection(restore="checkpoint", age=age, every=self.every) for name in mine}


@dataclass(frozen=True, slots=True)
class Groups:
    """Run groups of operators twice, one replica active; the other takes over ``failover`` seconds after a crash.

    ``also`` protects operators outside the groups, and within them what a replica comes back with.
    """

    groups: tuple[tuple[str, ...], ...]
    failover: float = 1.0
    also: Technique = Unprotected()

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        protections = dict(self.also.protect(parts))
        for group in self.groups:
            _known(parts, group)
            for name in group:
                base = protections.get(name, Protection())
                if base.group is not None or base.kept or base.copies > 1:
                    raise ModelError(
                        f"operator '{name}' is protected twice: by a group, and by another technique"
                    )
                protections[name] = Protection(
                    restore=base.restore,
                    age=base.age,
                    every=base.every,
                    group=" ".join(group),
                    failover=self.failover,
                )
        return protections


@dataclass(frozen=True, slots=True)
class Replication:
    """Run everything but sources and sinks twice, every copy feeding every copy, duplicates removed."""

    copies: int = 2

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        return {p.name: Protection(copies=self.copies) for p in parts if not (p.source or p.sink)}


@dataclass(frozen=True, slots=True)
class ConsistentRegion:
    """Roll a region back to its last checkpoint and replay, so that nothing is lost and results count once.

    The operators are those named, or all but sources and sinks.
    """

    operators: tuple[str, ...] = ()
    period: float = 1.0

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        _known(parts, self.operators)
        mine = self.operators or tuple(p.name for p in parts if not (p.source or p.sink))
        return {name: Protection(restore="whole", kept=True, every=self.period) for name in mine}


@dataclass(frozen=True, slots=True)
class Annotated:
    """What the application itself asks for, operator by operator."""

    graph: Graph

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        protections: dict[str, Protection] = {}
        for operator in self.graph:
            policy = operator.protect
            if isinstance(policy, Checkpoint):
                protections[operator.name] = Protection(
                    restore="checkpoint", age=(0.0, policy.every), every=policy.every
                )
            elif isinstance(policy, Consistent):
                region = [operator.name, *_reached(self.graph, operator.name)]
                for name in region:
                    protections[name] = Protection(restore="whole", kept=True, every=policy.period)
            elif policy is not None:
                raise ModelError(
                    f"operator '{operator.name}': there is no model of {type(policy).__name__} yet. "
                    "Name a technique with --technique"
                )
        return protections


def _reached(graph: Graph, name: str) -> list[str]:
    reached: list[str] = []
    for operator in graph:
        before = [b.name for b in graph.before(operator)]
        if any(b == name or b in reached for b in before) and not isinstance(operator, Sink):
            reached.append(operator.name)
    return reached


def _known(parts: Sequence[Part], names: Sequence[str]) -> None:
    there = {p.name for p in parts}
    for name in names:
        if name not in there:
            raise ModelError(
                f"there is no operator '{name}' to protect; there are: {', '.join(sorted(there))}"
            )
