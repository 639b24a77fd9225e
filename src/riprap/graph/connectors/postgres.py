"""PostgreSQL tables, read and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.connectors.checks import (
    RETRY_FOR,
    OnBadRecord,
    schema_of,
    table_name,
    url_of,
    without_password,
)
from riprap.graph.connectors.checks import (
    on_bad_record as check_on_bad_record,
)
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Sink, Target
from riprap.graph.connectors.source import Fetcher, Source

_URLS = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPostgres(Source):
    """The rows of a PostgreSQL table, in the order of a column that ascends."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.from_postgres(...)",
        does="reads the rows of a PostgreSQL table by an ascending column",
        after_failure="reads on after the last row it had",
    )

    url: str = field(repr=False)
    table: str
    by: str
    schema: pa.Schema
    retry_for: float
    on_bad_record: OnBadRecord

    def fetcher(self, tell: Callable[..., None]) -> Fetcher:
        from riprap.adapters.postgres import PostgresFetcher

        return PostgresFetcher(self, tell)

    def __str__(self) -> str:
        return f"PostgreSQL table {self.table} at {without_password(self.url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToPostgres(Sink):
    """A PostgreSQL table; a batch is one transaction."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replaces",
        call="rr.to_postgres(...)",
        does="writes rows to a PostgreSQL table",
        after_failure="holds each batch once: rows of a repeated batch replace the earlier ones",
    )

    url: str = field(repr=False)
    table: str
    overwrite: bool
    retry_for: float

    def target(self, schema: pa.Schema, run: str) -> Target:
        from riprap.adapters.postgres_sink import PostgresTarget

        return PostgresTarget(self, schema, run)

    def __str__(self) -> str:
        return f"PostgreSQL table {self.table} at {without_password(self.url)}"


def from_postgres(
    url: str,
    table: str,
    *,
    by: str,
    schema: str | pa.Schema,
    on_bad_record: OnBadRecord = "quarantine",
    retry_for: Duration = RETRY_FOR,
) -> FromPostgres:
    """Read a PostgreSQL table in the order of column ``by``, which ascends as rows are added and is indexed.

    ``url`` is 'postgresql://user:password@host:port/database'. ``schema`` names the columns to read.

    >>> print(rr.from_postgres("postgresql://me@host/shop", "sales", by="id", schema="id bigint, price double"))
    PostgreSQL table sales at postgresql://me@host/shop
    """
    columns = schema_of(schema)
    if by not in columns.names:
        raise GraphError(
            f"from_postgres(by=...) names '{by}', which is not in schema=: {', '.join(columns.names)}"
        )
    return FromPostgres(
        url=url_of("from_postgres(url, ...)", url, *_URLS),
        table=table_name("from_postgres(..., table)", table),
        by=by,
        schema=columns,
        retry_for=seconds("from_postgres(retry_for=...)", retry_for),
        on_bad_record=check_on_bad_record("from_postgres", on_bad_record),
    )


def to_postgres(
    url: str, table: str, *, overwrite: bool = False, retry_for: Duration = RETRY_FOR
) -> ToPostgres:
    """Write rows to a PostgreSQL table, which is made where it does not exist.

    A column is added, ``riprap_batch``: by it the rows of a repeated batch replace the earlier ones. Table
    ``riprap_batches`` says which run and batch its numbers stand for. ``overwrite`` removes what earlier runs wrote.

    >>> print(rr.to_postgres("postgresql://me@host/shop", "totals"))
    PostgreSQL table totals at postgresql://me@host/shop
    """
    return ToPostgres(
        url=url_of("to_postgres(url, ...)", url, *_URLS),
        table=table_name("to_postgres(..., table)", table),
        overwrite=overwrite,
        retry_for=seconds("to_postgres(retry_for=...)", retry_for),
    )
