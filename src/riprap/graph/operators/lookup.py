"""The lookup: adds the row of a table to each tuple of the same key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from riprap.expressions import Named
from riprap.graph.connectors import Files, Rows
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

Missing = Literal["null", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Operator):
    """Adds to each tuple the row of a table that has the same key.

    ``by`` pairs the stream's columns with the table's; ``names`` are what expressions call the two. The table is read
    again when its files change, between two batches.
    """

    TRAITS: ClassVar[Traits] = Traits(
        does="adds the row of a table", stale="the table may have changed since"
    )

    table: Files | Rows
    table_schema: pa.Schema
    by: tuple[tuple[str, str], ...]
    names: tuple[str, str]
    select: tuple[Named, ...]
    missing: Missing = "null"

    def columns_of(self, side: int, needed: Needed) -> frozenset[str]:
        """Return the columns of the stream (0) or the table (1) that are read to make what is needed."""
        read = read_by(n for n in self.select if n.name in passed_on(self, needed))
        prefix = self.names[side] + "."
        return frozenset(c.removeprefix(prefix) for c in read if c.startswith(prefix))

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (self.columns_of(0, needed) | {mine for mine, _ in self.by},)

    def copies(self) -> Copies:
        prefix = self.names[0] + "."
        plain = plain_copies(self.select).items()
        return {n: frozenset({(0, c.removeprefix(prefix))}) for n, c in plain if c.startswith(prefix)}

    def summary(self) -> str:
        by = ", ".join(mine if mine == its else f"{mine} = {its}" for mine, its in self.by)
        rest = ", others dropped" if self.missing == "drop" else ""
        return f"{', '.join(named(n) for n in self.select)} from {self.table} by {by}{rest}"
