"""Tables of SQLite files, written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.graph.connectors.checks import (
    RETRY_FOR,
    named,
)
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Sink, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSqlite(Sink):
    """A table of an SQLite file; a batch is one transaction."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replaces",
        call="rr.to_sqlite(...)",
        does="writes rows to a table of an SQLite file",
        after_failure="holds each batch once: rows of a repeated batch replace the earlier ones",
    )

    path: str
    table: str
    overwrite: bool
    retry_for: float

    def target(self, schema: pa.Schema, run: str) -> Target:
        from riprap.adapters.sqlite import SqliteTarget

        return SqliteTarget(self, schema, run)

    def holds(self, kind: pa.DataType) -> bool:
        return not pa.types.is_list(kind)

    def __str__(self) -> str:
        return f"SQLite table {self.table} in {self.path}"


def to_sqlite(
    path: str | Path, table: str, *, overwrite: bool = False, retry_for: Duration = RETRY_FOR
) -> ToSqlite:
    """Write rows to a table of an SQLite file; file and table are made where they do not exist.

    A column ``riprap_batch`` is added, as by :func:`to_postgres`.

    >>> print(rr.to_sqlite("/var/shop.db", "totals"))
    SQLite table totals in /var/shop.db
    """
    return ToSqlite(
        path=str(Path(path).absolute()),
        table=named("to_sqlite(..., table)", table),
        overwrite=overwrite,
        retry_for=seconds("to_sqlite(retry_for=...)", retry_for),
    )
