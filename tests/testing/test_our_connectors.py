"""Our own connectors keep the promises they make, whatever they are read and written by.

Files and rows in memory are listed and read by number, and Spark writes to Kafka: here they are put behind the classes
that users' connectors derive from. What Spark itself reads (``rr.from_kafka``, ``rr.from_spark``) goes by offsets of
Spark's own, so nothing can be asked of it without a query: tests/edges/test_kafka.py has that.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.edges import rigs
from tests.edges.sink_rigs import messages_in
from tests.runtime.harness import wait_until
from tests.services.kafka import Kafka

import riprap as rr
from riprap.adapters.bad_records import read_quarantine
from riprap.feeds.listed_feed import ListedFeed, spool_rows
from riprap.feeds.reading import read_rows
from riprap.graph.connectors import FileSink, SourceConnector, ToKafka
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.runtime.kafka import KafkaTarget
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.state.ledger import Output
from riprap.state.pages import PageStore
from riprap.testing import check_sink, check_source

NUMBERS = pa.table({"n": range(20)})


class Listed(rr.Source, rr.Fetcher):
    """A source that is listed and read by row, fetched a few rows at a time; a cursor counts rows."""

    def __init__(self, connector: SourceConnector) -> None:
        self.connector = connector
        self.schema = connector.schema

    def fetcher(self, tell: Any) -> rr.Fetcher:
        return self

    def fetch(self, after: Any) -> Iterator[rr.Fetched | None]:
        app = rr.Application("listed")
        app.sink("out", app.source("in", self.connector), rr.memory())
        source = app.graph()["in"]
        assert isinstance(source, Source)
        with TemporaryDirectory() as name:
            folder = Path(name)
            spool_rows(source, folder)
            feed = ListedFeed(source, folder, folder / "quarantine", finite=True)
            feed.find(1 << 60)
            rows = read_rows(feed.log.segments, 0, feed.log.rows, source, self.schema.names)
            bad = [
                rr.BadRecord(
                    position=line["position"], reason=line["reason"], record=b"", size=line.get("size", 0)
                )
                for line in read_quarantine(folder / "quarantine")
            ]
        table = pa.table(dict(rows.columns)).select(self.schema.names)
        for first in range(after or 0, table.num_rows, 7):
            piece = table.slice(first, 7)
            yield rr.Fetched(table=piece, cursor=first + piece.num_rows, bad=bad if first == 0 else ())


class ParquetRig(rigs.FileRig):
    name = "parquet"

    def encoded(self, first: int, end: int, bad: Any) -> bytes:
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": range(first, end), "m": [7 * n for n in range(first, end)]}), buffer)
        data: bytes = buffer.getvalue().to_pybytes()
        return data


@pytest.mark.parametrize("kind", [rigs.CsvRig, rigs.JsonRig, rigs.TextRig, ParquetRig])
def test_files(tmp_path: Path, kind: type[rigs.FileRig]) -> None:
    rig = kind(tmp_path)
    rig.put(0, 30, bad=() if kind is ParquetRig else [7])
    source = Listed(rig.source())
    whole = [piece for piece in source.fetch(None) if piece is not None]
    assert sum(piece.table.num_rows for piece in whole) == 30 - len(whole[0].bad)
    assert len(whole[0].bad) == (0 if kind is ParquetRig else 1)

    check_source(source, more=lambda: rig.put(30, 40))


def test_rows_in_memory() -> None:
    check_source(Listed(rr.rows(NUMBERS)))


def test_lines_from_a_server() -> None:
    rig = rigs.TcpRig()
    rig.put(0, 30, bad=[7])

    def more() -> None:
        # What is sent to a client that has gone is lost.
        rig.unread()
        rig.put(30, 40)

    kept = check_source(rig.source(), more=more)
    rig.close()

    assert kept[-1] == "what is added comes after the newest cursor, and nothing else does"
    assert not any(words.startswith("replays") for words in kept), "it says that it forgets"


class Hearing:
    """A TCP server that takes many connections at once, and closes each as its client does.

    ``rows`` waits until all that was sent has come. What came by an older connection was sent before what came by one
    that was made later.
    """

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._heard = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def rows(self) -> list[dict[str, Any]]:
        wait_until(lambda: not self._under_way())
        with self._lock:
            return [json.loads(line) for line in self._heard.splitlines()]

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for each in (self._door, *self._open):
            each.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            ready, _, _ = select.select([self._door, *self._open], [], [], 0.01)
            with self._lock:
                for each in [each for each in self._open if each in ready]:
                    data = each.recv(1 << 20)
                    self._heard += data
                    if not data:
                        self._open.remove(each)
                        each.close()
            if self._door in ready:
                self._open.append(self._door.accept()[0])

    def _under_way(self) -> bool:
        """Say whether anything waits to be sent, or to be read or taken, by the word of the system."""
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, queues, *_ = line.split()
            sending, reading = (int(size, 16) for size in queues.split(":"))
            to_us = int(remote.rpartition(":")[2], 16) == self.port
            ours = int(local.rpartition(":")[2], 16) == self.port
            # Of a door that listens (0A) it is how many wait to be let in.
            if (to_us and sending and state != "06") or (ours and reading):
                return True
        return False


def test_lines_to_a_server() -> None:
    server = Hearing()
    try:
        for rows in (None, NUMBERS):
            kept = check_sink(rr.to_tcp("127.0.0.1", server.port), held=server.rows, rows=rows)
            assert (
                "repeats: a batch that comes again after a crash is held once or twice, and others once"
                in kept
            )
    finally:
        server.close()


class Filed(rr.Sink):
    """A folder of files for each run: one that another run writes to is refused."""

    PROMISE = FileSink.PROMISE

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind

    def target(self, schema: pa.Schema, run: str) -> rr.Target:
        return FileTarget(getattr(rr, self.kind)(self.folder / run.replace("/", "-"), roll=0), schema, run)


class FileTarget(rr.Target):
    """Leaves batches as pages, as tasks do, and has them published as files."""

    alive: ClassVar[dict[str, Publisher]] = {}
    pages_left = itertools.count()

    def __init__(self, connector: FileSink, schema: pa.Schema, run: str) -> None:
        app = rr.Application("filed")
        app.sink("out", app.source("in", rr.rows(schema.empty_table())), connector)
        sink = app.graph()["out"]
        assert isinstance(sink, Sink)
        self.sink, self.run = sink, run
        self.pages = PageStore(f"{connector.path}-pages")
        self.resume = False

    @property
    def publisher(self) -> Publisher:
        if self.run not in self.alive:
            self.alive[self.run] = make_publisher(
                self.sink, self.pages, None, run=self.run, resume=self.resume,
                tell=lambda kind, **details: None, clock=lambda: 0.0,
            )  # fmt: skip
            self.alive[self.run].begin()
            # What it has written it writes no more, whoever opens it again.
            self.resume = True
        return self.alive[self.run]

    def open(self, *, resume: bool) -> None:
        # A process that is gone holds nothing any more.
        self.close()
        self.pages.make()
        self.resume = resume

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        rows = table.append_column("$position", pa.array(range(table.num_rows), pa.int64())).combine_chunks()
        page = rows.to_batches()[0] if rows.num_rows else None
        name = f"page-{next(self.pages_left)}"
        outputs = [] if page is None else [Output(self.pages.write(name, page), table.num_rows)]
        self.publisher.publish(batch, outputs)

    def read(self) -> pa.Table:
        return self.publisher.table()

    def close(self) -> None:
        if self.run in self.alive:
            self.alive.pop(self.run).close()


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files_that_are_written(tmp_path: Path, kind: str) -> None:
    kept = check_sink(Filed(tmp_path, kind))

    assert "once: a batch that comes again after a crash is held once" in kept


class ByKafka(rr.Sink):
    PROMISE = ToKafka.PROMISE

    def __init__(self, connector: ToKafka) -> None:
        self.connector = connector

    def target(self, schema: pa.Schema, run: str) -> rr.Target:
        session = SparkSession.getActiveSession()
        assert session is not None
        return KafkaTarget(self.connector, session)


def test_messages_of_a_topic(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()

    def held() -> list[dict[str, Any]]:
        found = messages_in(spark, kafka.address, topic, "cast(value as string) as text")
        return [json.loads(text) for text in found.column("text").to_pylist()]

    kept = check_sink(ByKafka(rr.to_kafka(kafka.address, topic)), held=held, rows=NUMBERS)

    assert "repeats: a batch that comes again is held once or twice, and others once" in kept
