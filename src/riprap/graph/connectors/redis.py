"""Redis Streams, read and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.graph.connectors.checks import (
    MOST_RECORD_BYTES,
    RETRY_FOR,
    OnBadRecord,
    named,
    schema_of,
    url_of,
    whole_number,
    without_password,
)
from riprap.graph.connectors.checks import (
    on_bad_record as check_on_bad_record,
)
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Sink, Target
from riprap.graph.connectors.source import Fetcher, Source

_URLS = ("redis", "rediss", "unix")


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


def from_redis(
    url: str,
    stream: str,
    *,
    schema: str | pa.Schema,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    retry_for: Duration = RETRY_FOR,
) -> FromRedis:
    """Read a Redis stream from its first entry on: the fields of an entry, as text, are the columns of a tuple.

    ``url`` is 'redis://user:password@host:port/0'.

    >>> print(rr.from_redis("redis://host:6379/0", "sales", schema="id bigint, price double"))
    Redis stream sales at redis://host:6379/0
    """
    return FromRedis(
        url=url_of("from_redis(url, ...)", url, *_URLS),
        stream=named("from_redis(..., stream)", stream),
        schema=schema_of(schema),
        retry_for=seconds("from_redis(retry_for=...)", retry_for),
        on_bad_record=check_on_bad_record("from_redis", on_bad_record),
        max_record_bytes=whole_number("from_redis(max_record_bytes=...)", max_record_bytes),
    )


def to_redis(url: str, stream: str, *, overwrite: bool = False, retry_for: Duration = RETRY_FOR) -> ToRedis:
    """Add an entry a row to a Redis stream: the columns are its fields, as text; null is left out.

    >>> print(rr.to_redis("redis://host:6379/0", "totals"))
    Redis stream totals at redis://host:6379/0
    """
    return ToRedis(
        url=url_of("to_redis(url, ...)", url, *_URLS),
        stream=named("to_redis(..., stream)", stream),
        overwrite=overwrite,
        retry_for=seconds("to_redis(retry_for=...)", retry_for),
    )
