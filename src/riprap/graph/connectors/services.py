"""Servers that Riprap talks to itself: PostgreSQL, SQLite, Redis Streams, TCP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Unpack

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.connectors.checks import (
    MOST_RECORD_BYTES,
    OnBadRecord,
    RecordFormat,
    address,
    named,
    schema_of,
    schema_of_records,
    table_name,
    text_holds,
    url_of,
    whole_number,
    without_password,
)
from riprap.graph.connectors.checks import (
    on_bad_record as check_on_bad_record,
)
from riprap.graph.connectors.notation import PLAIN, CsvOptions, Notation, notation_of
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Sink, Target
from riprap.graph.connectors.source import Fetcher, Source

_POSTGRES = ("postgresql", "postgres")
_REDIS = ("redis", "rediss", "unix")
# How long a lost connection is tried again before the run fails.
_PATIENCE = "60s"


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
class FromRedis(Source):
    """The entries of a Redis stream: their fields are the columns."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.from_redis(...)",
        does="reads the entries of a Redis stream",
        after_failure="reads on after the last entry it had; entries trimmed unread are an error",
    )

    url: str = field(repr=False)
    stream: str
    schema: pa.Schema
    retry_for: float
    on_bad_record: OnBadRecord
    max_record_bytes: int

    def fetcher(self, tell: Callable[..., None]) -> Fetcher:
        from riprap.adapters.redis_streams import RedisFetcher

        return RedisFetcher(self, tell)

    def __str__(self) -> str:
        return f"Redis stream {self.stream} at {without_password(self.url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTcp(Source):
    """Lines from a TCP server."""

    PROMISE: ClassVar[Promise] = Promise(
        word="forgets",
        call="rr.from_tcp(...)",
        does="reads lines from a TCP server",
        after_failure="keeps what it has read; lines sent while the run was down are lost",
        why_not="a socket cannot be asked again for what was lost",
    )

    host: str
    port: int
    format: RecordFormat
    schema: pa.Schema
    retry_for: float
    on_bad_record: OnBadRecord
    max_record_bytes: int
    notation: Notation = PLAIN

    def fetcher(self, tell: Callable[..., None]) -> Fetcher:
        from riprap.adapters.tcp import TcpFetcher

        return TcpFetcher(self)

    def __str__(self) -> str:
        return f"{self.format} lines from {self.host}:{self.port}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToRedis(Sink):
    """A Redis stream: an entry a row."""

    PROMISE: ClassVar[Promise] = Promise(
        word="once",
        call="rr.to_redis(...)",
        does="writes an entry a row to a Redis stream",
        after_failure="holds each batch once: how far it came is kept in Redis beside the entries",
    )

    url: str = field(repr=False)
    stream: str
    overwrite: bool
    retry_for: float

    def target(self, schema: pa.Schema, run: str) -> Target:
        from riprap.adapters.redis_streams import RedisTarget

        return RedisTarget(self, schema, run)

    def holds(self, kind: pa.DataType) -> bool:
        return not pa.types.is_list(kind)

    def __str__(self) -> str:
        return f"Redis stream {self.stream} at {without_password(self.url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTcp(Sink):
    """A TCP server that gets a line a row."""

    PROMISE: ClassVar[Promise] = Promise(
        word="repeats",
        call="rr.to_tcp(...)",
        does="sends a line a row to a TCP server",
        after_failure="sends the batch under way again; lines the server had not read when it went down may be lost",
        why_not="TCP does not say what the server has read",
    )

    host: str
    port: int
    format: Literal["csv", "json"]
    retry_for: float

    def target(self, schema: pa.Schema, run: str) -> Target:
        from riprap.adapters.tcp import TcpTarget

        return TcpTarget(self, schema)

    def holds(self, kind: pa.DataType) -> bool:
        return text_holds(self.format, kind)

    def __str__(self) -> str:
        return f"{self.format} lines to {self.host}:{self.port}"


def from_postgres(
    url: str,
    table: str,
    *,
    by: str,
    schema: str | pa.Schema,
    on_bad_record: OnBadRecord = "quarantine",
    retry_for: Duration = _PATIENCE,
) -> FromPostgres:
    """Read a PostgreSQL table in the order of column ``by``, which ascends as rows are added and is indexed.

    ``url`` is 'postgresql://user:password@host:port/database'. ``schema`` names the columns to read.
    """
    known = schema_of(schema)
    if by not in known.names:
        raise GraphError(
            f"from_postgres(by=...) names '{by}', which is not in schema=: {', '.join(known.names)}"
        )
    return FromPostgres(
        url=url_of("from_postgres(url, ...)", url, *_POSTGRES),
        table=table_name("from_postgres(..., table)", table),
        by=by,
        schema=known,
        retry_for=seconds("from_postgres(retry_for=...)", retry_for),
        on_bad_record=check_on_bad_record("from_postgres", on_bad_record),
    )


def from_redis(
    url: str,
    stream: str,
    *,
    schema: str | pa.Schema,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    retry_for: Duration = _PATIENCE,
) -> FromRedis:
    """Read a Redis stream from its first entry on: the fields of an entry, as text, are the columns of a tuple.

    ``url`` is 'redis://user:password@host:port/0'.
    """
    return FromRedis(
        url=url_of("from_redis(url, ...)", url, *_REDIS),
        stream=named("from_redis(..., stream)", stream),
        schema=schema_of(schema),
        retry_for=seconds("from_redis(retry_for=...)", retry_for),
        on_bad_record=check_on_bad_record("from_redis", on_bad_record),
        max_record_bytes=whole_number("from_redis(max_record_bytes=...)", max_record_bytes),
    )


def from_tcp(
    host: str,
    port: int,
    *,
    format: RecordFormat = "text",
    schema: str | pa.Schema | None = None,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    retry_for: Duration = _PATIENCE,
    **options: Unpack[CsvOptions],
) -> FromTcp:
    """Connect to a TCP server and read the lines it sends: text, JSON objects or CSV records without a header.

    A socket cannot be read again: lines that come while the run is down are lost. A run without a trigger ends when
    the server closes the connection; one with a trigger connects again. ``options`` say how CSV records are written:
    ``sep``, ``quote``, ``escape``, ``nullValue``, as for :func:`files`.
    """
    host, port = address("from_tcp(host, port)", host, port)
    return FromTcp(
        host=host,
        port=port,
        format=format,
        schema=schema_of_records("from_tcp", format, schema),
        retry_for=seconds("from_tcp(retry_for=...)", retry_for),
        on_bad_record=check_on_bad_record("from_tcp", on_bad_record),
        max_record_bytes=whole_number("from_tcp(max_record_bytes=...)", max_record_bytes),
        notation=notation_of("from_tcp", format, dict(options), files=False),
    )


def to_postgres(
    url: str, table: str, *, overwrite: bool = False, retry_for: Duration = _PATIENCE
) -> ToPostgres:
    """Write rows to a PostgreSQL table, which is made where it does not exist.

    A column is added, ``riprap_batch``: by it the rows of a repeated batch replace the earlier ones. Table
    ``riprap_batches`` says which run and batch its numbers stand for. ``overwrite`` removes what earlier runs wrote.
    """
    return ToPostgres(
        url=url_of("to_postgres(url, ...)", url, *_POSTGRES),
        table=table_name("to_postgres(..., table)", table),
        overwrite=overwrite,
        retry_for=seconds("to_postgres(retry_for=...)", retry_for),
    )


def to_sqlite(
    path: str | Path, table: str, *, overwrite: bool = False, retry_for: Duration = _PATIENCE
) -> ToSqlite:
    """Write rows to a table of an SQLite file; file and table are made where they do not exist.

    A column ``riprap_batch`` is added, as by :func:`to_postgres`.
    """
    return ToSqlite(
        path=str(Path(path).absolute()),
        table=named("to_sqlite(..., table)", table),
        overwrite=overwrite,
        retry_for=seconds("to_sqlite(retry_for=...)", retry_for),
    )


def to_redis(url: str, stream: str, *, overwrite: bool = False, retry_for: Duration = _PATIENCE) -> ToRedis:
    """Add an entry a row to a Redis stream: the columns are its fields, as text; null is left out."""
    return ToRedis(
        url=url_of("to_redis(url, ...)", url, *_REDIS),
        stream=named("to_redis(..., stream)", stream),
        overwrite=overwrite,
        retry_for=seconds("to_redis(retry_for=...)", retry_for),
    )


def to_tcp(
    host: str, port: int, *, format: Literal["csv", "json"] = "json", retry_for: Duration = _PATIENCE
) -> ToTcp:
    """Connect to a TCP server and send it a line a row: JSON objects, or CSV records without a header."""
    host, port = address("to_tcp(host, port)", host, port)
    if format not in ("csv", "json"):
        raise GraphError(f"to_tcp(format=...) is 'csv' or 'json', got {format!r}")
    return ToTcp(host=host, port=port, format=format, retry_for=seconds("to_tcp(retry_for=...)", retry_for))
