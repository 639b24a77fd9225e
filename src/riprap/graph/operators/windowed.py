"""Operators over windows of one stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from riprap.expressions import Aggregation
from riprap.expressions.ordering import Ordering
from riprap.graph.operators.base import Copies, Needed, Operator, PassesOn, Traits, passed_on, typed
from riprap.graph.windows import Emit, Every, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Operator):
    """Computes over windows of tuples, key by key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="computes over windows",
        state=("the window's tuples",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that lost input would have pushed out",
        punctuation="closes its windows if they are by punctuation; passes after what it caused",
    )

    by: tuple[str, ...]
    window: Window
    emit: Emit
    aggregation: Aggregation

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",)

    @property
    def slides(self) -> frozenset[str]:
        return frozenset(self.slots if self.window.counted else ())

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by

    @property
    def heeds(self) -> bool:
        return self.window.punctuation

    @property
    def depth(self) -> int:
        if self.heeds or self.clock is not None:
            return 2
        by_time = isinstance(self.emit, Every) and self.emit.time is not None
        return 1 if by_time or (self.window.shape == "tumbling" and self.window.time is not None) else 0

    @property
    def time_columns(self) -> frozenset[str]:
        """The column that time or change is read off."""
        return frozenset({self.window.on} if self.window.on else ())

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        arguments = {c for call in self.aggregation.calls for a in call.arguments for c in a.columns}
        return (frozenset(self.by) | arguments | self.time_columns,)

    def copies(self) -> Copies:
        return {name: frozenset({(0, name)}) for name in self.by}

    def layout(self, needed: Needed) -> str:
        arguments = [a for c in self.aggregation.calls for a in c.arguments]
        kept = ", ".join(dict.fromkeys(f"{a.sql} {a.type}" for a in arguments))
        return f"{self.window} by {', '.join(self.by)}, {self.emit}: {kept}"

    def summary(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.aggregation.sql}{by}, {self.window}, {self.emit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(PassesOn):
    """Collects windows, and puts out the tuples of each in order when it closes."""

    TRAITS: ClassVar[Traits] = Traits(
        does="puts the tuples of windows in order",
        state=("the window's tuples",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and lacks those that were lost",
        holds=True,
        punctuation="closes its windows if they are by punctuation, and ends here; one follows every window put out",
    )

    by: tuple[str, ...]
    window: Window
    order: tuple[Ordering, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by

    @property
    def heeds(self) -> bool:
        return self.window.punctuation

    @property
    def punctuates(self) -> bool:
        return True

    @property
    def depth(self) -> int:
        return 2 if self.heeds or self.clock is not None else 1

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        ordering = frozenset(c for each in self.order for c in each.expression.columns)
        on = frozenset({self.window.on} if self.window.on else ())
        return (passed_on(self, needed) | frozenset(self.by) | ordering | on,)

    def layout(self, needed: Needed) -> str:
        order = ", ".join(f"{each.expression.sql} {each.expression.type}" for each in self.order)
        kept = typed(self.schema, passed_on(self, needed))
        return f"{self.window} by {', '.join(self.by)}: {order}; {kept}"

    def summary(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{', '.join(map(str, self.order))}{by}, {self.window}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopN(Sort):
    """Collects windows, and puts out the first tuples of each in order when it closes."""

    TRAITS: ClassVar[Traits] = replace(Sort.TRAITS, does="keeps the first tuples of windows in order")

    n: int

    def summary(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"first {self.n} of {', '.join(map(str, self.order))}{by}, {self.window}"
