"""Lines from and to TCP servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Unpack

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.connectors.checks import (
    MOST_RECORD_BYTES,
    RETRY_FOR,
    OnBadRecord,
    RecordFormat,
    address,
    schema_of_records,
    text_holds,
    whole_number,
)
from riprap.graph.connectors.checks import (
    on_bad_record as check_on_bad_record,
)
from riprap.graph.connectors.notation import PLAIN, CsvOptions, Notation, notation_of
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Sink, Target
from riprap.graph.connectors.source import Fetcher, Source


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


def from_tcp(
    host: str,
    port: int,
    *,
    format: RecordFormat = "text",
    schema: str | pa.Schema | None = None,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    retry_for: Duration = RETRY_FOR,
    **options: Unpack[CsvOptions],
) -> FromTcp:
    """Connect to a TCP server and read the lines it sends: text, JSON objects or CSV records without a header.

    A socket cannot be read again: lines that come while the run is down are lost. A run without a trigger ends when
    the server closes the connection; one with a trigger connects again. ``options`` say how CSV records are written:
    ``sep``, ``quote``, ``escape``, ``nullValue``, as for :func:`files`.

    >>> print(rr.from_tcp("localhost", 9999, format="csv", schema="id bigint, price double"))
    csv lines from localhost:9999
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


def to_tcp(
    host: str, port: int, *, format: Literal["csv", "json"] = "json", retry_for: Duration = RETRY_FOR
) -> ToTcp:
    """Connect to a TCP server and send it a line a row: JSON objects, or CSV records without a header.

    >>> print(rr.to_tcp("localhost", 9999))
    json lines to localhost:9999
    """
    host, port = address("to_tcp(host, port)", host, port)
    if format not in ("csv", "json"):
        raise GraphError(f"to_tcp(format=...) is 'csv' or 'json', got {format!r}")
    return ToTcp(host=host, port=port, format=format, retry_for=seconds("to_tcp(retry_for=...)", retry_for))
