"""Faults: what happens to tuples on their way into an operator, and to which of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import pyarrow as pa

from riprap.arrays import Bools, Floats, Ints, Words
from riprap.errors import GraphError
from riprap.protection import Policy

ColumnChange = Callable[[pa.Array], pa.Array]
# A tuple's place in what derives from its source: its position there, then the path it took.
TuplePlace = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What derives from a source, from one place up to, and not with, another.

    A place may be shorter than a tuple's: then only what it has is compared.
    """

    source: int
    begin: TuplePlace
    end: TuplePlace

    def __post_init__(self) -> None:
        if not self.begin or len(self.begin) != len(self.end) or self.begin > self.end:
            raise GraphError(f"a stretch from {self.begin} to {self.end}: places of one length, in order")


class Exposed(Protocol):
    """The tuples of a stream in a batch, in order, as a model of faults meets them: some of them are hit.

    Every method leaves them as they are and returns others. What is drawn for a tuple depends on the seed and on its
    place alone, so it is the same whatever tasks and batches there are.
    """

    @property
    def columns(self) -> Mapping[str, pa.Array]:
        """The values of all tuples, by column; a column that nobody reads may be missing."""

    @property
    def hit(self) -> Bools:
        """Which tuples the fault hits; in most batches none."""

    @property
    def position(self) -> Ints:
        """The position in the source that each tuple derives from."""

    @property
    def seed(self) -> int:
        """The seed of the fault."""

    def words(self, draw: int = 0) -> Words:
        """Draw 64 random bits for each tuple; another draw has others."""

    def chance(self, draw: int = 0) -> Floats:
        """Draw a number from 0 up to 1 for each tuple; another draw has others."""

    def keep(self, which: Bools) -> Self:
        """Lose all tuples but some."""

    def change(self, column: str, change: ColumnChange) -> Self:
        """Change the values that tuples which are hit have in a column; where nobody reads it, nothing."""

    def repeat(self, times: Ints) -> Self:
        """Let each tuple come so many times, one after the other: the last that a model does."""

    def move(self, which: Bools, to: Ints) -> Self:
        """Let some tuples come right after what derives from a later position: the last that a model does."""


class FaultModel(ABC):
    """What a fault does to tuples. Derive from it in a frozen dataclass, whose fields are the options of the model.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Shift(FaultModel):
    ...     column: str
    ...     by: int = 1
    ...
    ...     @property
    ...     def changes(self):
    ...         return (self.column,)
    ...
    ...     def apply(self, tuples):
    ...         return tuples.change(self.column, lambda values: pa.compute.add(values, self.by))
    >>> Fault(model=Shift(column="v")).describe()
    "Shift(column='v', by=1) in 0 stretches"

    Tuples that are not hit it leaves alone. What becomes of one depends on nothing but itself, the options and what is
    drawn for it: trials compute with some tuples only. What is a property here may also be a plain attribute,
    ``deep = True``. docs/extending.md shows one at work.
    """

    __slots__ = ()

    @abstractmethod
    def apply(self, tuples: Exposed) -> Exposed:
        """Return what becomes of the tuples of a batch."""

    @property
    def drawn(self) -> bool:
        """Whether what happens depends on the seed."""
        return False

    @property
    def deep(self) -> bool:
        """Whether tuples are repeated, or come at another place than they did: it takes a number in their path."""
        return False

    @property
    def changes(self) -> tuple[str, ...]:
        """The columns whose values are changed: then it goes in front of every operator that has one of them."""
        return ()

    def why_not(self, column: pa.Field) -> str | None:
        """Say why values of a column that it changes cannot be; None if they can."""
        return None

    def describe(self, where: str) -> str:
        """Say in a line what happens; ``where`` is as "in 2 stretches"."""
        return f"{self} {where}"

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], find: Callable[[str], Callable[..., Any]]) -> Self:
        """Make it of the entries of a campaign file, called as its fields; ``find`` finds a function by its name."""
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in entries.items()})

    def concerns(self, columns: Collection[str]) -> bool:
        """Say whether it does anything to a stream with some columns."""
        return not self.changes or not set(self.changes).isdisjoint(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Copies of a group of operators of which another takes over: what the group puts out is lost for so many seconds.

    With ``failover="exact"`` nothing is lost: those behind the group go on in the other's results where they were.
    ``group`` are the operators; by default the replica group of the application that has all those that fail, or where
    there is none those alone. With ``diverging`` the other copy has seen its input in another order, and so may hold
    something else.
    """

    failover: float | Literal["exact"] = 2.0
    group: tuple[str, ...] = ()
    diverging: bool = False

    def __post_init__(self) -> None:
        seconds = isinstance(self.failover, int | float) and not isinstance(self.failover, bool)
        if self.failover != "exact" and not (seconds and self.lost >= 0):
            raise GraphError(
                f"failover={self.failover!r}: give how many seconds it takes, 0 or more, or 'exact' if nothing is lost "
                "meanwhile"
            )
        if self.failover == "exact" and self.diverging:
            raise GraphError(
                "diverging=True with failover='exact': one cannot go on in the results of a copy that puts out others. "
                "Give seconds, or leave out diverging="
            )

    @property
    def lost(self) -> float:
        """For how many seconds what the group puts out is lost."""
        return 0.0 if self.failover == "exact" else float(self.failover)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """An operator is gone for an outage, and comes back as its protection lets it.

    ``protection`` is "own", that of the replica group it is in or else that written beside the operator, or another
    instead, or None. ``restart`` is "own", as its
    processing element was placed, or another: "resume" reads the input of the outage later, "live" never. ``memory``
    says whether the memory of its host is lost with it. ``age`` is how many seconds before the crash a checkpoint was
    taken; without it that is drawn, anything up to its interval.
    """

    protection: Policy | Replicas | Literal["own"] | None = "own"
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

    model: FaultModel
    stretches: tuple[Stretch, ...] = field(default=())
    seed: int = 0

    def describe(self) -> str:
        """Say in a line what happens."""
        many = len(self.stretches)
        return self.model.describe(f"in {many} stretch{'' if many == 1 else 'es'}")
