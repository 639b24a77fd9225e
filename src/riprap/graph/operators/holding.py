"""Operators that let a tuple pass now, later or never, and never change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riprap.graph.operators.base import Copies, Needed, PassesOn, Traits, passed_on, typed
from riprap.graph.windows import span


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(PassesOn):
    """Drops a tuple that one of the same key came out before: within a number of the stream's tuples, or a time."""

    TRAITS: ClassVar[Traits] = Traits(
        does="drops what was put out before",
        state=("when each key was last put out",),
        pages="blocks of keys",
        key="by; none if it counts tuples",
        stale="does not know what was put out since, and may put it out again",
    )

    by: tuple[str, ...]
    tuples: int | None = None
    time: int | None = None
    on: str | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",) if self.tuples is None else ("0", "count")

    @property
    def key(self) -> tuple[str, ...] | None:
        # The stream is counted in one place.
        return self.by if self.tuples is None else ()

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | frozenset(self.by) | _named(self.on),)

    def layout(self, needed: Needed) -> str:
        last = "number" if self.tuples is not None else f"time{_of(self.on)}"
        return f"{last} by {typed(self.schema, self.by)}"

    def summary(self) -> str:
        within = f"{self.tuples} tuples" if self.tuples is not None else span(self.time)
        return f"by {', '.join(self.by)}, within {within}{_of(self.on)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(PassesOn):
    """An operator in which tuples wait until they are due, key by key in order of arrival."""

    by: tuple[str, ...]
    on: str | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by

    @property
    def depth(self) -> int:
        return 2 if self.clock is not None else 1

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | frozenset(self.by) | _named(self.on),)

    def layout(self, needed: Needed) -> str:
        return f"time{_of(self.on)} by {', '.join(self.by)}: {typed(self.schema, passed_on(self, needed))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Held):
    """Puts out every tuple some time later."""

    TRAITS: ClassVar[Traits] = Traits(
        does="puts out every tuple later",
        state=("the tuples that wait, and when each is due",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and puts them out again",
        holds=True,
        punctuation="ends here",
    )

    time: int

    def summary(self) -> str:
        return f"{span(self.time)}{_of(self.on)}{_by(self.by)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(Held):
    """Puts out tuples at least some time apart: ``gap``, in microseconds."""

    TRAITS: ClassVar[Traits] = Traits(
        does="spaces tuples out",
        state=("the tuples that wait, and when each is due",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and puts them out again",
        holds=True,
        punctuation="ends here",
    )

    gap: int

    def summary(self) -> str:
        return f"one every {span(self.gap)}{_of(self.on)}{_by(self.by)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(PassesOn):
    """Lets a tuple pass while few are unacknowledged; the others wait for an acknowledgement, in order of arrival."""

    TRAITS: ClassVar[Traits] = Traits(
        does="waits for acknowledgements",
        state=("the tuples that wait", "how many are unacknowledged"),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and waits for acknowledgements that were lost",
        holds=True,
        why_not="it blocks: a tuple waits for an acknowledgement that may never come",
        punctuation="ends here",
    )

    by: tuple[str, ...]
    unacknowledged: int

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by

    @property
    def depth(self) -> int:
        # Acknowledgements on several streams may derive from one tuple, and each lets one pass.
        return 1

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return passed_on(self, needed) | frozenset(self.by), frozenset(self.by)

    def copies(self) -> Copies:
        # An acknowledgement lets only tuples of its own key pass.
        return {n: frozenset({(0, n), (1, n)} if n in self.by else {(0, n)}) for n in self.schema.names}

    def layout(self, needed: Needed) -> str:
        kept = typed(self.schema, passed_on(self, needed))
        return f"{self.unacknowledged} by {', '.join(self.by)}: {kept}"

    def summary(self) -> str:
        return f"{self.unacknowledged} unacknowledged at most{_by(self.by)}"


def _named(column: str | None) -> frozenset[str]:
    return frozenset({column} if column else ())


def _of(on: str | None) -> str:
    return f" of {on}" if on else ""


def _by(by: tuple[str, ...]) -> str:
    return f" by {', '.join(by)}" if by else ""
