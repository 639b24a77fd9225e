"""The sinks of the fault matrix: how each is made, and what it holds in the end."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as postgresql
import pyarrow as pa
import redis as redis_client
from pyspark.sql import SparkSession
from tests.edges.sink_rigs import messages_in
from tests.runtime.harness import read_parts, whole

import riprap as rr
from riprap.graph.connectors import SinkConnector

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the sinks of a run write to: a folder, and the servers there are, under names that start alike."""

    out: str
    postgres: str = ""
    redis: str = ""
    kafka: str = ""
    prefix: str = ""

    def spec(self) -> dict[str, str]:
        """Return what another process makes it from."""
        return asdict(self)


@dataclass(frozen=True)
class Kind:
    """A kind of sink: how to make one for a stream, how to read it, and whether a crash ``repeats`` a batch."""

    make: Callable[[Place, str], SinkConnector]
    read: Callable[[Place, str, Sequence[str]], list[Row]]
    server: str | None = None
    repeats: bool = False


def _files(**options: Any) -> Kind:
    def read(place: Place, name: str, columns: Sequence[str]) -> list[Row]:
        parts = read_parts(Path(place.out) / name)
        return whole(parts).to_pylist() if parts else []

    return Kind(lambda place, name: rr.parquet(Path(place.out) / name, **options), read)


def _from_sqlite(place: Place, name: str, columns: Sequence[str]) -> list[Row]:
    with contextlib.closing(sqlite3.connect(Path(place.out) / "sinks.db")) as connection:
        return _by_name(connection.execute(_query(name, columns, "rowid")).fetchall(), columns)


def _from_postgres(place: Place, name: str, columns: Sequence[str]) -> list[Row]:
    with postgresql.connect(place.postgres) as connection, connection.cursor() as cursor:
        cursor.execute(_query(f"{place.prefix}{name}", columns, "ctid"))
        return _by_name(list(cursor.fetchall()), columns)


def _query(table: str, columns: Sequence[str], order: str) -> str:
    return f"""select {", ".join(f'"{c}"' for c in columns)} from "{table}" order by {order}"""


def _by_name(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _from_redis(place: Place, name: str, columns: Sequence[str]) -> list[Row]:
    with redis_client.Redis.from_url(place.redis, decode_responses=True) as client:
        return [{c: fields.get(c) for c in columns} for _, fields in client.xrange(f"{place.prefix}{name}")]


def _from_kafka(place: Place, name: str, columns: Sequence[str]) -> list[Row]:
    found = messages_in(
        SparkSession.active(), place.kafka, f"{place.prefix}{name}", "cast(value as string) value"
    )
    rows = [json.loads(value) for value in found.column("value").to_pylist()]
    return [{c: row.get(c) for c in columns} for row in rows]


KINDS: Mapping[str, Kind] = {
    "each": _files(roll=0),
    "rolled": _files(roll="1s"),
    "sqlite": Kind(lambda place, name: rr.to_sqlite(Path(place.out) / "sinks.db", name), _from_sqlite),
    "postgres": Kind(
        lambda place, name: rr.to_postgres(place.postgres, f"{place.prefix}{name}"),
        _from_postgres,
        "postgres",
    ),
    "redis": Kind(
        lambda place, name: rr.to_redis(place.redis, f"{place.prefix}{name}"), _from_redis, "redis"
    ),
    "kafka": Kind(
        lambda place, name: rr.to_kafka(place.kafka, f"{place.prefix}{name}"),
        _from_kafka,
        "kafka",
        repeats=True,
    ),
}


def comparable(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return rows as a kind of sink says them: Redis knows nothing but text."""
    if kind != "redis":
        return list(rows)
    return [{c: None if v is None else str(v) for c, v in row.items()} for row in rows]


def columns_of(stream: pa.Schema) -> list[str]:
    """Return the columns of a stream."""
    return list(stream.names)
