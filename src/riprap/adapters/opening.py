"""Which adapter opens which connector."""

from __future__ import annotations

import pyarrow as pa

from riprap.adapters.fetching import Fetcher
from riprap.adapters.postgres import PostgresFetcher
from riprap.adapters.postgres_sink import PostgresTarget
from riprap.adapters.redis_streams import RedisFetcher, RedisTarget
from riprap.adapters.retrying import Tell
from riprap.adapters.sqlite import SqliteTarget
from riprap.adapters.tcp import TcpFetcher, TcpTarget
from riprap.adapters.writing import Target
from riprap.graph.connectors import (
    FetchedSource,
    FromPostgres,
    FromRedis,
    FromTcp,
    ServiceSink,
    ToPostgres,
    ToRedis,
    ToSqlite,
    ToTcp,
)


def open_fetcher(connector: FetchedSource, tell: Tell) -> Fetcher:
    """Make what fetches a source; it connects when it is asked for something."""
    match connector:
        case FromPostgres():
            return PostgresFetcher(connector, tell)
        case FromRedis():
            return RedisFetcher(connector, tell)
        case FromTcp():
            return TcpFetcher(connector)


def make_target(connector: ServiceSink, schema: pa.Schema, run: str) -> Target:
    """Make what writes a sink's batches; ``run`` tells them from those of other runs."""
    match connector:
        case ToPostgres():
            return PostgresTarget(connector, schema, run)
        case ToSqlite():
            return SqliteTarget(connector, schema, run)
        case ToRedis():
            return RedisTarget(connector, schema, run)
        case ToTcp():
            return TcpTarget(connector, schema)
