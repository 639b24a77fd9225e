"""The operators of a graph, as frozen values: what they are, never how they run."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from riprap.expressions import Aggregation, Expression, Named
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.graph.location import Location
from riprap.graph.policies import Policy
from riprap.graph.windows import Every, SlidingWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What every operator has: a name, the user's line, its input streams and its output schema."""

    name: str
    location: Location
    inputs: tuple[str, ...]
    schema: pa.Schema
    protect: Policy | None = None

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def stateful(self) -> bool:
        return False

    def summary(self) -> str:
        """Say in a line what the operator does."""
        return ""

    def __str__(self) -> str:
        return f"operator '{self.name}' ({self.location})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Operator):
    """Brings tuples in."""

    connector: SourceConnector
    position: str | None
    ordering: str | None

    def summary(self) -> str:
        return str(self.connector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Functor(Operator):
    """Filters, projects and computes, a tuple at a time."""

    where: Expression | None
    select: tuple[Named, ...]

    def summary(self) -> str:
        columns = ", ".join(_named(n) for n in self.select)
        return columns + (f" where {self.where.sql}" if self.where else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Operator):
    """Computes over the newest tuples of each key."""

    by: tuple[str, ...]
    window: SlidingWindow
    emit: Every
    aggregation: Aggregation

    @property
    def stateful(self) -> bool:
        return True

    def summary(self) -> str:
        calls = ", ".join(
            f"{c.function}({'*' if c.argument is None else c.argument.sql})" for c in self.aggregation.calls
        )
        return f"{calls} by {', '.join(self.by)}, {self.window}, {self.emit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Operator):
    """Matches each tuple of a port with the other port's window of the same key."""

    by: tuple[str, ...]
    windows: tuple[SlidingWindow, SlidingWindow]
    where: Expression | None
    select: tuple[Named, ...]

    @property
    def stateful(self) -> bool:
        return True

    def summary(self) -> str:
        left, right = self.windows
        condition = f" where {self.where.sql}" if self.where else ""
        return f"by {', '.join(self.by)}, {left} x {right}{condition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Operator):
    """Takes tuples out."""

    connector: SinkConnector

    def summary(self) -> str:
        return str(self.connector)


def _named(named: Named) -> str:
    return (
        named.name
        if named.expression.sql.strip("`") == named.name
        else f"{named.expression.sql} as {named.name}"
    )
