"""Put punctuations before or after the tuples that meet a condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from riprap.arrays import Ints
from riprap.expressions import Expression, Scope, parse_condition
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Needed, PassesOn, Traits, passed_on
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, Marks
from riprap.kernels.evaluation import evaluate_condition
from riprap.kernels.given import Given, Result, index_among, same_order
from riprap.protection import Policy

MarkPlace = Literal["before", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctor(PassesOn):
    """Puts a punctuation before or after each tuple that meets a condition."""

    TRAITS: ClassVar[Traits] = Traits(does="inserts punctuations")
    depth = 1
    punctuates = True

    where: Expression
    place: MarkPlace

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | self.where.columns,)

    def summary(self) -> str:
        return f"{self.place} {self.where.sql}"

    def run(self, given: Given) -> Result:
        """Put punctuations before or after the tuples that meet the condition."""
        (chunk,), needed = given.inputs, given.needed[self.name]
        row = np.flatnonzero(evaluate_condition(self.where, chunk.columns, chunk.rows))
        old, after = chunk.marks, self.place == "after"
        # A new one is next to its tuple: one after it is before the old ones there, one before it is after them.
        at = np.concatenate([old.at, row + after])
        order = np.lexsort((np.repeat([after, not after], [len(old), len(row)]), at))
        marks = Marks(
            at[order],
            np.concatenate([old.rank, chunk.rank[row]])[order],
            np.concatenate([old.code, chunk.code[row]])[order],
            tuple(np.concatenate([m, p[row]])[order] for m, p in zip(old.path, chunk.path, strict=True)),
        )
        tuple_place = np.arange(chunk.rows) + np.searchsorted(marks.at, np.arange(chunk.rows), "right")
        mark_place = marks.at + np.arange(len(marks))
        among = index_among(
            same_order(
                _both(chunk.rank, marks.rank, tuple_place, mark_place),
                tuple(
                    _both(p, m, tuple_place, mark_place) for p, m in zip(chunk.path, marks.path, strict=True)
                ),
            )
        )
        marks = Marks(marks.at, marks.rank, marks.code, (*marks.path, among[mark_place]))
        columns = {n: c for n, c in chunk.columns.items() if n in needed}
        return Result(
            outputs=(Chunk(columns, chunk.rank, chunk.code, (*chunk.path, among[tuple_place]), marks),)
        )


def punctor(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    where: str,
    place: MarkPlace = "after",
    protect: Policy | None = None,
) -> Stream:
    """Add a punctor: it puts a punctuation before or after each tuple that ``where`` is true for.

    >>> app = rr.Application("demo")
    >>> lines = app.source("lines", rr.rows([], "line string"))
    >>> print(app.punctor("marked", lines, where="line = ''", place="after"))
    stream 'marked' (line string)
    """
    here = Here("Punctor", name, app, stream)
    inputs = here.port(stream)
    if place not in get_args(MarkPlace):
        raise here.error(f"place= is {place!r}", f"It is one of {', '.join(get_args(MarkPlace))}")
    with here:
        condition = parse_condition(where, Scope.of(inputs.schema), app.functions)
    return here.add(
        Punctor(
            **here.basics(inputs, protect=protect),
            schema=inputs.schema,
            where=condition,
            place=place,
        ),
    )


def _both(tuples: Ints, marks: Ints, tuple_place: Ints, mark_place: Ints) -> Ints:
    if not len(marks):
        return tuples
    whole = np.empty(len(tuples) + len(marks), np.int64)
    whole[tuple_place], whole[mark_place] = tuples, marks
    return whole
