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
from dataclasses import dataclass, replace
from typing import Protocol

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.graph.regions import regions_of
from riprap.graph.replicas import ReplicaGroup
from riprap.model.parts import Part
from riprap.protection import Protection


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
        _check_names(parts, self.operators)
        names = self.operators or tuple(p.name for p in parts if p.stateful)
        age = (0.0, self.every) if self.age is None else (self.age, self.age)
        return {name: Protection(restore="checkpoint", age=age, every=self.every) for name in names}


@dataclass(frozen=True, slots=True)
class Groups:
    """Run groups of operators twice, one replica active; the other takes over ``failover`` seconds after a crash.

    What the active replica of a group does not put out meanwhile is lost; with ``exact`` it waits, those behind the
    group go on in the other's results where they were, and a replica comes back with the other's state. ``also``
    protects operators outside the groups, and within them what a replica comes back with.
    """

    groups: tuple[tuple[str, ...], ...]
    failover: float = 1.0
    also: Technique = Unprotected()
    exact: bool = False

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        protections = dict(self.also.protect(parts))
        for group in self.groups:
            _check_names(parts, group)
            for name in group:
                base = protections.get(name, Protection())
                if base.group is not None or base.kept or base.copies > 1:
                    raise ModelError(
                        f"operator '{name}' is protected twice: by a group, and by another technique"
                    )
                protections[name] = replace(
                    base, group=" ".join(group), failover=self.failover, kept=self.exact, peer=self.exact
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
        _check_names(parts, self.operators)
        names = self.operators or tuple(p.name for p in parts if not (p.source or p.sink))
        return {name: Protection(restore="whole", kept=True, every=self.period) for name in names}


@dataclass(frozen=True, slots=True)
class Annotated:
    """What the application itself asks for, operator by operator, and of its replica groups.

    They fail over after ``failover`` seconds, or else after their ``detect``, the bound for whatever is lost. A model
    has two replicas of each.
    """

    graph: Graph
    failover: float | None = None

    def protect(self, parts: Sequence[Part]) -> Mapping[str, Protection]:
        protections: dict[str, Protection] = {}
        for operator in self.graph:
            if operator.protect is not None:
                protections.update(operator.protect.modelled(operator, self.graph))
        # Of regions that are one the stricter terms hold, whoever's were the last.
        for region in regions_of(self.graph):
            every = region.terms.period or 0.0
            for name in protections.keys() & set(region.operators):
                protections[name] = replace(protections[name], every=every)
        for group in self.graph.groups:
            for name in group.operators:
                protections[name] = self._replicated(group, protections.get(name, Protection()))
        return protections

    def _replicated(self, group: ReplicaGroup, alone: Protection) -> Protection:
        """Return the protection of an operator in a group, which alone would have another."""
        if group.failover == "ahead":
            return replace(alone, copies=2)
        exact = group.failover == "exact"
        if group.back == "empty":
            alone = Protection()
        return replace(
            alone,
            kept=exact,
            group=group.name,
            failover=group.detect if self.failover is None else self.failover,
            # One that has nothing of its own comes back with another's state all the same.
            peer=exact or group.back == "peer" or (group.back == "own" and alone.restore == "scratch"),
        )


def _check_names(parts: Sequence[Part], names: Sequence[str]) -> None:
    operators = {p.name for p in parts}
    for name in names:
        if name not in operators:
            raise ModelError(
                f"there is no operator '{name}' to protect; there are: {', '.join(sorted(operators))}"
            )
