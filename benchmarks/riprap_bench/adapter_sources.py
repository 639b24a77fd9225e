"""Sources: the client library reads everything in a plain loop; Riprap also numbers, keeps and reads back."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

import riprap as rr
from riprap.adapters.json_lines import write_json
from riprap_bench.adapter_cases import BATCH_ROWS, SCHEMA, Case, fetch, make_table, server

_FILES = 4
_SCANNED = 20
_READ_ENTRIES = 10_000


def file_sources(folder: Path, rows: int) -> Iterator[Case]:
    """Yield Parquet, CSV, JSON and text files, and a folder of small ones."""
    table = make_table(rows, seed=1)
    for format, plain, library in (
        ("parquet", _plain_parquet, "pyarrow.parquet"),
        ("csv", _plain_csv, "pyarrow.csv"),
        ("json", _plain_json, "pyarrow.json"),
        ("text", _plain_text, "open()"),
    ):
        home = folder / format
        home.mkdir()
        for number in range(_FILES):
            part = table.slice(number * rows // _FILES, rows // _FILES)
            _WRITERS[format](part, home / f"{number}.{format}")
        schema = None if format in ("parquet", "text") else SCHEMA
        connector = rr.files(home, format=format, schema=schema)  # type: ignore[arg-type]
        yield Case(
            name=f"files, {format}",
            library=library,
            rows=rows // _FILES * _FILES,
            bar=0.8,
            plain=partial(plain, sorted(home.iterdir())),
            riprap=partial(_fetch, connector, rows // _FILES * _FILES),
        )
    home = folder / "scan"
    home.mkdir()
    size = rows // _SCANNED
    for number in range(_SCANNED):
        pa.csv.write_csv(table.slice(number * size, size), home / f"{number:03d}.txt")
    lines = _SCANNED * (size + 1)
    yield Case(
        name=f"folder scan, {_SCANNED} files",
        library="open()",
        rows=lines,
        bar=0.5,
        plain=partial(_plain_text, sorted(home.iterdir())),
        riprap=partial(_fetch, rr.folder_scan(home, format="text"), lines),
    )


def postgres_source(rows: int) -> Iterator[Case]:
    """Yield a table read by COPY."""
    url = server("RIPRAP_BENCH_POSTGRES", "PostgreSQL")
    from adbc_driver_postgresql import dbapi

    with closing(dbapi.connect(url, autocommit=True)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("drop table if exists bench_source")
        cursor.adbc_ingest("bench_source", make_table(rows, seed=2), mode="create")
        cursor.execute("alter table bench_source add primary key (id)")
        cursor.execute("vacuum analyze bench_source")
    yield Case(
        name="PostgreSQL",
        library="adbc-driver-postgresql",
        rows=rows,
        bar=0.8,
        plain=partial(_plain_postgres, url),
        riprap=partial(_fetch, rr.from_postgres(url, "bench_source", by="id", schema=SCHEMA), rows),
    )


def redis_source(rows: int) -> Iterator[Case]:
    """Yield a Redis stream."""
    url = server("RIPRAP_BENCH_REDIS", "Redis")
    import redis

    from riprap.adapters.redis_streams import RedisTarget

    with closing(redis.Redis.from_url(url)) as client:
        client.delete("bench_source", "bench_source:riprap")
    target = RedisTarget(rr.to_redis(url, "bench_source"), SCHEMA, "bench")
    target.open(resume=False)
    target.write(0, make_table(rows, seed=3), again=False)
    target.close()
    yield Case(
        name="Redis stream",
        library="redis",
        rows=rows,
        bar=0.5,
        plain=partial(_plain_redis, url),
        riprap=partial(_fetch, rr.from_redis(url, "bench_source", schema=SCHEMA), rows),
    )


def tcp_source(rows: int) -> Iterator[Case]:
    """Yield lines of JSON from a server of our own."""
    path = json.dumps({"id": 1234567, "ticker": "T1234", "price": 12.34, "size": 100}) + "\n"
    payload = path.encode() * rows
    schema = "id bigint, ticker string, price double, size bigint"
    yield Case(
        name="TCP, JSON lines",
        library="socket, json",
        rows=rows,
        bar=0.5,
        plain=lambda folder: _plain_tcp(_serve(payload)),
        riprap=lambda folder: fetch(
            rr.from_tcp("127.0.0.1", _serve(payload), format="json", schema=schema), rows, folder
        ),
    )


def _fetch(connector: Any, rows: int, folder: Path) -> int:
    return fetch(connector, rows, folder)


def _plain_parquet(files: list[Path], folder: Path) -> int:
    return sum(batch.num_rows for file in files for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS))


def _plain_csv(files: list[Path], folder: Path) -> int:
    options = pa.csv.ConvertOptions(column_types=SCHEMA)
    return sum(batch.num_rows for file in files for batch in pa.csv.open_csv(file, convert_options=options))


def _plain_json(files: list[Path], folder: Path) -> int:
    options = pa.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    return sum(batch.num_rows for file in files for batch in pa.json.open_json(file, parse_options=options))


def _plain_text(files: list[Path], folder: Path) -> int:
    rows = 0
    for file in files:
        with file.open() as lines:
            for _ in lines:
                rows += 1
    return rows


def _plain_postgres(url: str, folder: Path) -> int:
    from adbc_driver_postgresql import dbapi

    columns = ", ".join(SCHEMA.names)
    with closing(dbapi.connect(url, autocommit=True)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"select {columns} from bench_source order by id")
        return sum(batch.num_rows for batch in cursor.fetch_record_batch())


def _plain_redis(url: str, folder: Path) -> int:
    import redis

    rows, after = 0, "-"
    with closing(redis.Redis.from_url(url)) as client:
        while entries := client.xrange("bench_source", after, "+", count=_READ_ENTRIES):
            rows += len(entries)
            after = f"({_text(entries[-1][0])}"
    return rows


def _text(identity: Any) -> str:
    return identity.decode() if isinstance(identity, bytes) else str(identity)


def _plain_tcp(port: int) -> int:
    rows = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as lines:
        for line in lines:
            json.loads(line)
            rows += 1
    return rows


def _serve(payload: bytes) -> int:
    """Send a payload to the first who connects, and close."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(payload)

    threading.Thread(target=send, daemon=True).start()
    return int(listener.getsockname()[1])


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=BATCH_ROWS),
    "csv": lambda table, path: pa.csv.write_csv(table, path),
    "json": lambda table, path: write_json(table, path),
    # Lines as a CSV file has them, without its header.
    "text": lambda table, path: pa.csv.write_csv(table, path, pa.csv.WriteOptions(include_header=False)),
}
