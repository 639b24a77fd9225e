"""Sinks: the client library writes everything in a plain loop; Riprap also sees to it that a batch is held once."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import riprap as rr
from riprap.graph.connectors import FileSink, Sink
from riprap.runtime.file_publisher import FilePublisher
from riprap.state.ledger import Output
from riprap_bench.adapter_cases import BATCH_ROWS, SCHEMA, Case, in_batches, make_table, server

_WRITE_ENTRIES = 10_000
_INSERT = "insert into bench (id, ticker, price, size, at) values (?, ?, ?, ?, ?)"


def file_sinks(rows: int) -> Iterator[Case]:
    """Yield Parquet, CSV and JSON files."""
    table = make_table(rows, seed=4)
    for format, sink, plain, library in (
        ("parquet", rr.parquet, _plain_parquet, "pyarrow.parquet"),
        ("csv", rr.csv, _plain_csv, "pyarrow.csv"),
        ("json", rr.json, _plain_json, "json"),
    ):
        yield Case(
            name=f"files, {format}",
            library=library,
            rows=rows,
            bar=0.8,
            plain=partial(plain, table),
            riprap=partial(_publish, sink, table),
            check=partial(_count_files, format),
        )


def postgres_sink(rows: int) -> Iterator[Case]:
    """Yield a table written by COPY."""
    url = server("RIPRAP_BENCH_POSTGRES", "PostgreSQL")
    table = make_table(rows, seed=5)
    yield Case(
        name="PostgreSQL",
        library="adbc-driver-postgresql",
        rows=rows,
        bar=0.8,
        plain=partial(_plain_postgres, url, table),
        riprap=lambda folder: _write(rr.to_postgres(url, "bench_sink", overwrite=True), table),
        check=lambda folder: _count_postgres(url),
    )


def sqlite_sink(rows: int) -> Iterator[Case]:
    """Yield a table of a file."""
    table = make_table(rows, seed=6)
    values = [tuple(row.values()) for row in _with_text_times(table).to_pylist()]
    yield Case(
        name="SQLite",
        library="sqlite3",
        rows=rows,
        bar=0.5,
        plain=partial(_plain_sqlite, values),
        riprap=lambda folder: _write(rr.to_sqlite(folder / "bench.db", "bench"), table),
        check=_count_sqlite,
    )


def redis_sink(rows: int) -> Iterator[Case]:
    """Yield a Redis stream."""
    url = server("RIPRAP_BENCH_REDIS", "Redis")
    table = make_table(rows, seed=7)
    entries = _with_text_times(table).to_pylist()
    yield Case(
        name="Redis stream",
        library="redis",
        rows=rows,
        bar=0.5,
        plain=partial(_plain_redis, url, entries),
        riprap=lambda folder: _write(rr.to_redis(url, "bench_sink", overwrite=True), table),
        check=lambda folder: _count_redis(url),
    )


def tcp_sink(rows: int) -> Iterator[Case]:
    """Yield lines of JSON to a server of our own."""
    table = make_table(rows, seed=8)
    values = _with_text_times(table).to_pylist()
    yield Case(
        name="TCP, JSON lines",
        library="socket, json",
        rows=rows,
        bar=0.5,
        plain=lambda folder: _plain_tcp(values),
        riprap=lambda folder: _send(table),
    )


class _AtHand:
    """Hands a publisher the batches as they are: reading pages is not the adapter's."""

    def __init__(self, batches: Sequence[pa.Table]) -> None:
        self.schema = SCHEMA
        self._batches = batches

    def read(self, outputs: Sequence[Output]) -> pa.Table:
        return self._batches[int(outputs[0].page)]


def _publish(sink: Any, table: pa.Table, folder: Path) -> int:
    batches = in_batches(table)
    connector = sink(folder / "out", roll=0)
    assert isinstance(connector, FileSink)
    at_hand: Any = _AtHand(batches)
    publisher = FilePublisher(
        connector,
        at_hand,
        run="bench",
        sink="out",
        resume=False,
        tell=lambda kind, **details: None,
        clock=time.time,
    )
    for number, batch in enumerate(batches):
        publisher.publish(number, [Output(page=str(number), rows=batch.num_rows)])
    publisher.close()
    return int(table.num_rows)


def _write(connector: Sink, table: pa.Table) -> int:
    target = connector.target(SCHEMA, f"bench-{time.time_ns()}")
    target.open(resume=False)
    for number, batch in enumerate(in_batches(table)):
        target.write(number, batch, again=False)
    target.close()
    return int(table.num_rows)


def _send(table: pa.Table) -> int:
    port, counted = _receiver()
    _write(rr.to_tcp("127.0.0.1", port), table)
    return counted()


def _count_files(format: str, folder: Path) -> int:
    parts = sorted((folder / "out").glob(f"part-*.{format}"))
    if format == "parquet":
        return sum(int(pq.read_metadata(part).num_rows) for part in parts)
    return sum(part.read_bytes().count(b"\n") - (format == "csv") for part in parts)


def _count_postgres(url: str) -> int:
    from adbc_driver_postgresql import dbapi

    with closing(dbapi.connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("select count(*) from bench_sink")
        return int(cursor.fetchone()[0])


def _count_sqlite(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "bench.db")) as connection:
        return int(connection.execute("select count(*) from bench").fetchone()[0])


def _count_redis(url: str) -> int:
    import redis

    with closing(redis.Redis.from_url(url)) as client:
        return int(client.xlen("bench_sink"))


def _plain_parquet(table: pa.Table, folder: Path) -> int:
    for number, batch in enumerate(in_batches(table)):
        pq.write_table(batch, folder / f"{number}.parquet")
    return int(table.num_rows)


def _plain_csv(table: pa.Table, folder: Path) -> int:
    for number, batch in enumerate(in_batches(table)):
        pa.csv.write_csv(batch, folder / f"{number}.csv")
    return int(table.num_rows)


def _plain_json(table: pa.Table, folder: Path) -> int:
    with (folder / "all.json").open("w") as file:
        for row in _with_text_times(table).to_pylist():
            file.write(json.dumps(row) + "\n")
    return int(table.num_rows)


def _plain_postgres(url: str, table: pa.Table, folder: Path) -> int:
    from adbc_driver_postgresql import dbapi

    with closing(dbapi.connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("drop table if exists bench_plain")
        for number, batch in enumerate(in_batches(table)):
            cursor.adbc_ingest("bench_plain", batch, mode="append" if number else "create")
            connection.commit()
    return int(table.num_rows)


def _plain_sqlite(values: Sequence[tuple[Any, ...]], folder: Path) -> int:
    with closing(sqlite3.connect(folder / "plain.db")) as connection:
        connection.execute("create table bench (id integer, ticker text, price real, size integer, at text)")
        for start in range(0, len(values), BATCH_ROWS):
            connection.executemany(_INSERT, values[start : start + BATCH_ROWS])
            connection.commit()
    return len(values)


def _plain_redis(url: str, entries: Sequence[dict[Any, Any]], folder: Path) -> int:
    import redis

    with closing(redis.Redis.from_url(url)) as client:
        client.delete("bench_plain")
        for start in range(0, len(entries), _WRITE_ENTRIES):
            pipe = client.pipeline(transaction=False)
            for entry in entries[start : start + _WRITE_ENTRIES]:
                pipe.xadd("bench_plain", entry)
            pipe.execute()
    return len(entries)


def _plain_tcp(values: Sequence[dict[str, Any]]) -> int:
    port, counted = _receiver()
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("wb") as lines:
        for row in values:
            lines.write(json.dumps(row).encode() + b"\n")
    return counted()


def _receiver() -> tuple[int, Callable[[], int]]:
    """Count the lines that the first who connects sends."""
    listener = socket.create_server(("127.0.0.1", 0))
    lines = 0

    def receive() -> None:
        nonlocal lines
        with listener:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(1 << 20):
                    lines += data.count(b"\n")

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()

    def counted() -> int:
        thread.join()
        return lines

    return int(listener.getsockname()[1]), counted


def _with_text_times(table: pa.Table) -> pa.Table:
    """Show times as text, which is what these clients take."""
    at = table.schema.get_field_index("at")
    return table.set_column(at, "at", pa.compute.strftime(table.column("at"), "%Y-%m-%dT%H:%M:%SZ"))
