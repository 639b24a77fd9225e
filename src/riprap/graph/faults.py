"""Faults: what happens to tuples on their way into an operator, and to which of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from riprap.errors import GraphError
from riprap.graph.policies import Checkpoint, Consistent, Eventual

# A tuple's place in what derives from its source: its position there, then the path it took.
Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What derives from a source, from one place up to, and not with, another.

    A place may be shorter than a tuple's: then only what it has is compared.
    """

    source: int
    begin: Place
    end: Place

    def __post_init__(self) -> None:
        if not self.begin or len(self.begin) != len(self.end) or self.begin > self.end:
            raise GraphError(f"a stretch from {self.begin} to {self.end}: places of one length, in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Tuples are lost, but for a random share that a buffer has kept."""

    keep: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.keep <= 1.0:
            raise GraphError(f"keep={self.keep}: give the share of tuples that a buffer keeps, 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplication:
    """Tuples come more than once, one after the other."""

    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise GraphError(f"copies={self.copies}: give how many more times a tuple comes, at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Tuples come after those that were so many positions of the source behind them: at 1, after the next."""

    distance: int

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise GraphError(f"distance={self.distance}: give how many positions late, at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering:
    """Tuples come late by a random number of positions each, from 0 up to and with a distance: in another order."""

    distance: int

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise GraphError(f"distance={self.distance}: give within how many positions, at least 1")


Change = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """Values of some columns are changed: a random bit of each, or as a function says."""

    columns: tuple[str, ...]
    change: Change | Literal["bits"] = "bits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A stream as a whole is now more, now less behind, by up to and with so many positions, and in order.

    A tuple that is behind by one comes after what derives from the next position on other streams. ``knots`` are
    positions at which it is not behind at all.
    """

    distance: int
    knots: tuple[int, ...] = ()


Model = Loss | Duplication | Lateness | Reordering | Corruption | Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Copies of a group of operators of which another takes over: what the group puts out is lost for so many seconds.

    ``group`` are the operators; by default those that fail. With ``diverging`` the other copy has seen its input in
    another order, and so may hold something else.
    """

    failover: float = 2.0
    group: tuple[str, ...] = ()
    diverging: bool = False

    def __post_init__(self) -> None:
        if self.failover < 0:
            raise GraphError(f"failover={self.failover}: give how many seconds it takes, 0 or more")


Protection = Checkpoint | Consistent | Eventual | Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """An operator is gone for an outage, and comes back as its protection lets it.

    ``protection`` is "own", that written beside the operator, or another instead, or None. ``restart`` is "own", as its
    processing element was placed, or another: "resume" reads the input of the outage later, "live" never. ``memory``
    says whether the memory of its host is lost with it. ``age`` is how many seconds before the crash a checkpoint was
    taken; without it that is drawn, anything up to its interval.
    """

    protection: Protection | Literal["own"] | None = "own"
    restart: Literal["own", "live", "resume"] = "own"
    memory: Literal["lost", "kept"] = "lost"
    age: float | None = None

    def __post_init__(self) -> None:
        if self.age is not None and self.age < 0:
            raise GraphError(f"age={self.age}: give how many seconds a checkpoint is old, 0 or more")
        if self.memory not in ("lost", "kept"):
            raise GraphError(f"memory={self.memory!r}: the memory of a host is 'lost' or 'kept'")
        if self.restart not in ("own", "live", "resume"):
            raise GraphError(f"restart={self.restart!r}: it is 'own', 'live' or 'resume'")

    @property
    def drawn(self) -> bool:
        """Whether what happens differs from repetition to repetition."""
        return self.age is None and not isinstance(self.protection, Replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the tuples of some stretches; what is random about it is drawn with ``seed``."""

    model: Model
    stretches: tuple[Stretch, ...] = field(default=())
    seed: int = 0

    @property
    def drawn(self) -> bool:
        """Whether what happens depends on the seed."""
        match self.model:
            case Loss(keep=keep):
                return 0.0 < keep < 1.0
            case Corruption(change=change):
                return change == "bits"
        return isinstance(self.model, Reordering | Lag)

    @property
    def deep(self) -> bool:
        """Whether tuples are repeated, or come at another place than they did: it takes a number in their path."""
        return isinstance(self.model, Duplication | Lateness | Reordering | Lag)

    def describe(self) -> str:
        """Say in a line what happens."""
        many = len(self.stretches)
        where = f"in {many} stretch{'' if many == 1 else 'es'}"
        match self.model:
            case Loss(keep=keep):
                kept = f", {keep:.0%} kept" if keep else ""
                return f"loses tuples {where}{kept}"
            case Duplication(copies=copies):
                return f"repeats tuples {where}, {copies + 1} times in all"
            case Lateness(distance=distance):
                return f"delays tuples {where} by {distance} positions"
            case Reordering(distance=distance):
                return f"reorders tuples {where} within {distance} positions"
            case Corruption(columns=columns):
                return f"corrupts {', '.join(columns)} {where}"
            case Lag(distance=distance):
                return f"is behind by up to {distance} positions"
