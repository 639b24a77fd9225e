"""The functor: filter, project, compute, a tuple at a time, with variables that tuples leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riprap.expressions import (
    Expression,
    Named,
    Scope,
    Variables,
    parse_condition,
    parse_select,
    parse_variables,
)
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import (
    Copies,
    Needed,
    Operator,
    Traits,
    named,
    passed_on,
    plain_copies,
    read_by,
    schema_of,
)
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, struct_of
from riprap.kernels.evaluation import compute, evaluate_condition, keep
from riprap.kernels.given import Given, Result
from riprap.protection import Policy
from riprap.state.windows import Contents, gather, make_page

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
    VARIANTS: ClassVar[Mapping[str, Traits]] = {"Functor with variables": WITH_VARIABLES}

    kept_by_key = True

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

    def run(self, given: Given) -> Result:
        """Apply a functor, computing only the columns someone downstream needs."""
        (chunk,), needed = given.inputs, given.needed[self.name]
        pages: dict[str, pa.RecordBatch] = {}
        if self.variables is not None and chunk.rows:
            chunk, pages["0"] = _update(self, self.variables, chunk, given)
        elif self.variables is not None:
            nothing = {f.name: pa.array([], f.type) for f in self.variables.schema}
            chunk = chunk.with_columns({**chunk.columns, **nothing})
        if self.where is not None and chunk.rows:
            kept = evaluate_condition(self.where, chunk.columns, chunk.rows)
            select_columns = {c for n in self.select if n.name in needed for c in n.expression.columns}
            chunk = keep(chunk, kept, frozenset(select_columns))
        return Result(outputs=(chunk.with_columns(compute(self.select, chunk, needed)),), pages=pages)


def functor(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    where: str | None = None,
    select: str | None = None,
    variables: Mapping[str, str] | None = None,
    update: str | None = None,
    by: str | Sequence[str] = (),
    protect: Policy | None = None,
) -> Stream:
    """Add a filter (``where``), a projection or computed columns (``select``), or both.

    ``variables`` makes it remember: names with the value each starts from. Every tuple that comes in updates them
    (``update``: all new values are computed from the old ones), before ``where`` and ``select``, which may name
    them too. There is one set of variables for each key (``by``), or one in all.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> print(app.functor("dear", sales, where="price > 100", select="item, price * 0.9 as reduced"))
    stream 'dear' (item string, reduced decimal(22,1))
    """
    here = Here("Functor", name, app, stream)
    inputs = here.port(stream)
    if where is None and select is None and variables is None:
        raise here.error("it does nothing", "Give it where=, select= or both")
    if (variables is None) != (update is None):
        raise here.error(
            "it has variables= without update=, or the other way round", "Give it both, or neither"
        )
    if by and variables is None:
        raise here.error("it has a key, and nothing to keep by it", "Give it variables=, or leave out by=")
    keys = here.keys(by, inputs)
    kept: Variables | None = None
    schema = inputs.schema
    with here:
        if variables is not None and update is not None:
            kept = parse_variables(variables, update, Scope.of(inputs.schema), app.functions)
            schema = pa.schema([*inputs.schema, *kept.schema])
        scope = Scope.of(schema)
        condition = parse_condition(where, scope, app.functions) if where is not None else None
        chosen = parse_select(select if select is not None else "*", scope, app.functions)
    return here.add(
        Functor(
            **here.basics(inputs, protect=protect),
            schema=schema_of(chosen),
            where=condition,
            select=chosen,
            by=keys,
            variables=kept,
        ),
    )


def _update(
    operator: Functor, variables: Variables, chunk: Chunk, given: Given
) -> tuple[Chunk, pa.RecordBatch]:
    """Let every tuple update the variables of its key; give it what they are then, and make the page of what is left.

    A key's state is one tuple, the variables; a key that is not there yet has none, and starts from the initial values.
    """
    touched = np.flatnonzero(np.bincount(chunk.code, minlength=len(given.keys)))
    keys = given.keys.take(touched)
    layout = pa.struct(list(variables.schema))
    old = gather(given.pages.get("0", ()), keys, layout)
    initial = variables.initial(1)
    row = np.where(old.lengths > 0, old.offsets[:-1], len(old.tuples))
    before = {
        n: pa.concat_arrays([old.tuples.field(n), initial[n]]).take(pa.array(row))
        for n in variables.schema.names
    }
    code = np.searchsorted(touched, chunk.code).astype(np.int32)
    after, last = variables.run(chunk.columns, code, before)
    contents = Contents(
        np.arange(len(keys) + 1), struct_of(last, len(keys)), np.zeros((len(keys), 1), np.int64)
    )
    return chunk.with_columns({**chunk.columns, **after}), make_page(keys, contents)
