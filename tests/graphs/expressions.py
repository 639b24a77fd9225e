"""A small vocabulary of expressions, each with its SQL text and what it means in plain Python.

Values are Python's; a timestamp is a number of microseconds. Null is None, and a condition may be None: unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """A column; ``side`` is the port it belongs to where there are several."""

    name: str
    type: str
    side: int | None = None

    def sql(self, labels: tuple[str, ...] = ()) -> str:
        return self.name if self.side is None else f"{labels[self.side]}.{self.name}"

    def of(self, *rows: Row | None) -> Any:
        row = rows[self.side or 0]
        return row[self.name] if row is not None else None


@dataclass(frozen=True)
class SharedKey:
    """A key column of a join, of whichever side there is."""

    name: str
    type: str

    def sql(self, labels: tuple[str, ...] = ()) -> str:
        return self.name

    def of(self, *rows: Row | None) -> Any:
        return next(row[self.name] for row in rows if row is not None)


@dataclass(frozen=True)
class Literal:
    """A value, null included."""

    value: Any
    type: str

    def sql(self, labels: tuple[str, ...] = ()) -> str:
        if self.value is None:
            return f"cast(null as {self.type})"
        if self.type == "string":
            return f"'{self.value}'"
        if self.type == "timestamp":
            return f"timestamp'{EPOCH + timedelta(microseconds=self.value):%Y-%m-%d %H:%M:%S.%f}'"
        return f"cast({self.value} as {self.type})"

    def of(self, *rows: Row | None) -> Any:
        return self.value


@dataclass(frozen=True)
class Call:
    """An operation of the table below."""

    operation: str
    arguments: tuple[Expression, ...]
    type: str

    def sql(self, labels: tuple[str, ...] = ()) -> str:
        return OPERATIONS[self.operation][0].format(*(a.sql(labels) for a in self.arguments))

    def of(self, *rows: Row | None) -> Any:
        return OPERATIONS[self.operation][1](*(a.of(*rows) for a in self.arguments))


Expression = Column | SharedKey | Literal | Call
Select = Mapping[str, Expression]


def rank(value: Any) -> tuple[bool, Any]:
    """Return what values compare by: NaN equals itself and is greater than every other number."""
    return (True, 0.0) if value != value else (False, value)


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an operation null where any argument is."""
    return lambda *values: None if any(v is None for v in values) else function(*values)


def both(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    return True if left is True or right is True else None if left is None or right is None else False


OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "=": ("({} = {})", strict(lambda a, b: rank(a) == rank(b))),
    "<>": ("({} <> {})", strict(lambda a, b: rank(a) != rank(b))),
    "<": ("({} < {})", strict(lambda a, b: rank(a) < rank(b))),
    "<=": ("({} <= {})", strict(lambda a, b: rank(a) <= rank(b))),
    ">": ("({} > {})", strict(lambda a, b: rank(a) > rank(b))),
    "is null": ("({} is null)", lambda a: a is None),
    "is not null": ("({} is not null)", lambda a: a is not None),
    "and": ("({} and {})", both),
    "or": ("({} or {})", either),
    "not": ("(not {})", strict(lambda a: not a)),
    "+": ("({} + {})", strict(lambda a, b: a + b)),
    "-": ("({} - {})", strict(lambda a, b: a - b)),
    "*": ("({} * {})", strict(lambda a, b: a * b)),
    "to double": ("cast({} as double)", strict(float)),
    "concat": ("substring(concat({}, {}), 1, 4)", strict(lambda a, b: (a + b)[:4])),
    "coalesce": ("coalesce({}, {})", lambda a, b: b if a is None else a),
    "case": ("case when {} then {} else {} end", lambda c, a, b: a if c is True else b),
}
