"""What the tests of sinks share: systems to write to, what they hold in the end, and a program that can be killed.

A rig is one table, stream, topic or listener. ``held()`` gives the numbers it holds in the order they came in, and of
each the batch it says it is of, where it says so.

Run as a program, it writes rows to the rigs that a job names, in a session of its own:

    {"rigs": {"postgres": ["postgresql://...", "t1"]}, "options": {"master": "local[1]"}}
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as postgresql
import numpy as np
import pyarrow as pa
import redis as redis_client
from pyspark.sql import SparkSession

import riprap as rr
from riprap.graph.connectors import SinkConnector

BATCH = 1_000
BATCHES = 4
MAKERS: Mapping[str, Callable[..., SinkConnector]] = {
    "postgres": rr.to_postgres,
    "sqlite": rr.to_sqlite,
    "redis": rr.to_redis,
    "kafka": rr.to_kafka,
    "tcp": rr.to_tcp,
}
# SO_LINGER on, for no time: closing sends a reset in place of an orderly end.
_RESET = struct.pack("ii", 1, 0)

Held = list[tuple[int | None, int]]


def numbers(count: int, first: int = 0) -> pa.Table:
    """Return rows that can be told apart."""
    n = np.arange(first, first + count)
    texts = pa.array(n).cast(pa.string())
    return pa.table({"n": n, "s": pa.compute.binary_join_element_wise("row", texts, " ü'"), "x": n / 7})


def application(sinks: Mapping[str, SinkConnector], rows: pa.Table | None = None) -> rr.Application:
    """Describe an application that hands its rows to each of some sinks, in this order."""
    app = rr.Application("writing")
    source = app.source("in", rr.rows(numbers(BATCH * BATCHES) if rows is None else rows))
    for name, connector in sinks.items():
        app.sink(name, source, connector)
    return app


def in_batches(batches: Sequence[int] = range(BATCHES)) -> Held:
    """Return what is held after some batches."""
    return [(batch, n) for batch in batches for n in range(batch * BATCH, (batch + 1) * BATCH)]


class PostgresRig:
    """A table of a database."""

    def __init__(self, url: str, table: str = "out") -> None:
        self.url, self.table = url, table

    def spec(self) -> list[Any]:
        return [self.url, self.table]

    def held(self) -> Held:
        query = "select b.batch, t.n from {} t join riprap_batches b on b.id = t.riprap_batch order by t.ctid"
        return [(batch, n) for batch, n in self.ask(query.format(self.table))]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with postgresql.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def do(self, *statements: str) -> None:
        with postgresql.connect(self.url) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()


class SqliteRig:
    """A table of a file."""

    def __init__(self, path: Path, table: str = "out") -> None:
        self.path, self.table = path, table

    def spec(self) -> list[Any]:
        return [str(self.path), self.table]

    def held(self) -> Held:
        query = (
            "select b.batch, t.n from {} t join riprap_batches b on b.id = t.riprap_batch order by t.rowid"
        )
        return self.ask(query.format(self.table))

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


class RedisRig:
    """A stream."""

    def __init__(self, url: str, stream: str) -> None:
        self.url, self.stream = url, stream

    def spec(self) -> list[Any]:
        return [self.url, self.stream]

    def held(self) -> Held:
        with redis_client.Redis.from_url(self.url) as client:
            return [(None, int(fields[b"n"])) for _, fields in client.xrange(self.stream)]


class KafkaRig:
    """A topic of one partition."""

    def __init__(self, spark: SparkSession, servers: str, topic: str) -> None:
        self.spark, self.servers, self.topic = spark, servers, topic

    def spec(self) -> list[Any]:
        return [self.servers, self.topic]

    def held(self) -> Held:
        batch = "cast(cast(headers[0].value as string) as bigint) as batch"
        n = "cast(get_json_object(cast(value as string), '$.n') as bigint) as n"
        found = messages_in(self.spark, self.servers, self.topic, batch, n)
        return list(zip(*(found.column(name).to_pylist() for name in ("batch", "n")), strict=True))


class Listener:
    """A TCP server that keeps the lines it gets, of all its connections in turn; a cut line is left out."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.connections: list[bytearray] = []
        self._reset_after: int | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def spec(self) -> list[Any]:
        return ["127.0.0.1", self.port]

    def held(self) -> Held:
        return [(None, json.loads(line)["n"]) for line in self.lines()]

    def lines(self) -> list[bytes]:
        found = []
        for received in list(self.connections):
            *whole, _ = bytes(received).split(b"\n")
            found += whole
        return found

    def reset_after(self, size: int) -> None:
        """Reset the next connection once it has sent so many bytes."""
        self._reset_after = size

    def close(self) -> None:
        self._closing = True
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(10)
        self._door.close()

    def _serve(self) -> None:
        while not self._closing:
            client, _ = self._door.accept()
            received = bytearray()
            self.connections.append(received)
            with client, contextlib.suppress(OSError):
                while piece := client.recv(1 << 16):
                    received += piece
                    if self._reset_after is not None and len(received) > self._reset_after:
                        self._reset_after = None
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                        break


Rig = PostgresRig | SqliteRig | RedisRig | KafkaRig | Listener


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """Give a listener."""
    listener = Listener()
    try:
        yield listener
    finally:
        listener.close()


def messages_in(spark: SparkSession, servers: str, topic: str, *columns: str) -> pa.Table:
    """Return expressions over the messages of a topic, by partition and offset."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = reader.option("includeHeaders", True).load().selectExpr("partition", "offset", *columns)
    # Sorted here: Spark would cut it into two hundred parts for that.
    return frame.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])


def connectors(rigs: Mapping[str, Sequence[Any]], **options: Any) -> dict[str, SinkConnector]:
    """Return the sinks that write to rigs, as their specs say."""
    return {name: MAKERS[name](*spec, **options) for name, spec in rigs.items()}


def write_rows(rigs: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> None:
    app = application(connectors(rigs))
    with app.run(config={"spark.log.level": "OFF"}, batch_rows=BATCH, **options) as run:
        run.wait()


if __name__ == "__main__":
    write_rows(**json.loads(Path(sys.argv[1]).read_text()))
