"""The functor: filter, project, compute, a tuple at a time, with variables that tuples leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riprap.expressions import Expression, Named, Variables
from riprap.graph.operators.base import (
    Copies,
    Needed,
    Operator,
    Traits,
    named,
    passed_on,
    plain_copies,
    read_by,
)

WITH_VARIABLES = Traits(
    does="filters, projects, computes over the tuple and variables that each tuple updates",
    state=("the variables",),
    pages="blocks of keys",
    key="by, or none",
    stale="lacks the updates of lost input",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Functor(Operator):
    """Filters, projects and computes, a tuple at a time; what it is told to, it remembers in variables, key by key."""

    TRAITS: ClassVar[Traits] = Traits(does="filters, projects, computes")

    where: Expression | None
    select: tuple[Named, ...]
    by: tuple[str, ...] = ()
    variables: Variables | None = None

    @property
    def traits(self) -> Traits:
        return self.TRAITS if self.variables is None else WITH_VARIABLES

    @property
    def slots(self) -> tuple[str, ...]:
        return () if self.variables is None else ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return None if self.variables is None else self.by

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        used = read_by(n for n in self.select if n.name in passed_on(self, needed))
        used |= self.where.columns if self.where else frozenset()
        if self.variables is not None:
            used = (used - set(self.variables.schema.names)) | self.variables.columns | frozenset(self.by)
        return (used,)

    def copies(self) -> Copies:
        variables = set(self.variables.schema.names) if self.variables is not None else set()
        found = plain_copies(self.select)
        return {name: frozenset({(0, column)}) for name, column in found.items() if column not in variables}

    def layout(self, needed: Needed) -> str:
        return f"by {', '.join(self.by)}: {self.variables.sql}" if self.variables is not None else ""

    def summary(self) -> str:
        columns = ", ".join(named(n) for n in self.select)
        text = columns + (f" where {self.where.sql}" if self.where else "")
        if self.variables is None:
            return text
        return f"{text}; {self.variables.sql}" + (f" by {', '.join(self.by)}" if self.by else "")
