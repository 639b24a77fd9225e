"""Operators that send tuples on as they are: to several streams, from several streams, with punctuations between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from riprap.expressions import Expression
from riprap.graph.operators.base import Needed, PassesOn, Traits, passed_on

Place = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(PassesOn):
    """Sends each tuple to the outputs that want it: those whose condition is true, or those a table names.

    ``table`` has a row for each value of column ``on``: the value, then for each output whether it goes there.
    ``default`` is the output of values that the table lacks.
    """

    TRAITS: ClassVar[Traits] = Traits(does="routes tuples", punctuation="passes in place, to every output")

    streams: tuple[str, ...]
    conditions: tuple[Expression, ...] = ()
    first: bool = False
    on: str | None = None
    table: pa.RecordBatch | None = None
    default: int | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        tested = frozenset({self.on} if self.on is not None else ()).union(
            *(c.columns for c in self.conditions)
        )
        return (passed_on(self, needed) | tested,)

    def summary(self) -> str:
        names = [stream.rpartition(".")[2] for stream in self.streams]
        if self.table is not None:
            rest = f", others to {names[self.default]}" if self.default is not None else ""
            return f"{', '.join(names)} by {self.on}, a table of {self.table.num_rows}{rest}"
        routes = "; ".join(f"{name}: {c.sql}" for name, c in zip(names, self.conditions, strict=True))
        return ("the first of " if self.first else "") + routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(PassesOn):
    """Brings streams of one schema together."""

    TRAITS: ClassVar[Traits] = Traits(does="brings streams together")

    def summary(self) -> str:
        return ", ".join(self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctor(PassesOn):
    """Puts a punctuation before or after each tuple that meets a condition."""

    TRAITS: ClassVar[Traits] = Traits(does="inserts punctuations")

    where: Expression
    place: Place

    @property
    def depth(self) -> int:
        return 1

    @property
    def punctuates(self) -> bool:
        return True

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | self.where.columns,)

    def summary(self) -> str:
        return f"{self.place} {self.where.sql}"
