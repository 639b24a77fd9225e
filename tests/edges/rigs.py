"""Sources with all that tests need to do to them: fill them, put in bad records, take their server away.

A rig holds rows ``n, m`` with ``m = 7 n``, in whatever form its source has them. Tests say what goes in and compare
what comes out, so one scenario does for all adapters.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import adbc_driver_postgresql.dbapi as postgresql
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis as redis_client
from pyspark.sql import SparkSession
from tests.runtime.harness import lines_of, read_parts, wait_until, whole
from tests.services.ports import HOST, free_port
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.relay import Relay

import riprap as rr
from riprap.graph.connectors import SourceConnector

SCHEMA = "n bigint, m bigint"
_ADD_ENTRIES = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
    redis.call('XADD', KEYS[1], '*', 'n', n, 'm', 7 * n)
end
"""


class SourceRig:
    """A source that tests fill with rows [first, end); the record of each n in ``bad`` cannot be read."""

    name: ClassVar[str]
    # Whether rows that were sent and not read can be read later.
    replays: ClassVar[bool] = True

    def put(self, first: int, end: int, *, bad: Collection[int] = ()) -> None:
        """Add rows after those there are."""
        raise NotImplementedError

    def source(self, **options: Any) -> SourceConnector:
        """Describe the source; where there is a server, by way of the relay."""
        raise NotImplementedError

    def described(self) -> dict[str, Any]:
        """Say by which call another process makes the source, for :func:`made`."""
        raise NotImplementedError

    def columns(self, table: pa.Table) -> pa.Table:
        """Return the numbers of rows that came out."""
        return table

    def position_of(self, n: int, record: int) -> dict[str, Any]:
        """Return the position a quarantine gives to the record of n, which is the ``record``-th of the source."""
        raise NotImplementedError

    def over(self) -> None:
        """See to it that a run without a trigger comes to an end."""

    def unread(self) -> None:
        """Wait until nobody reads any more: who reads for a run outlives it by a moment."""

    def close(self) -> None:
        """Let go of everything."""


class ServerRig(SourceRig):
    """A source behind a server that can be taken away."""

    relay: Relay

    def go_away(self) -> None:
        """Take the server down the hard way."""
        raise NotImplementedError

    def come_back(self) -> None:
        """Bring the server up again, with all that it had."""
        raise NotImplementedError

    def close(self) -> None:
        self.relay.refuse()


class PostgresRig(ServerRig):
    name = "postgres"

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.url = server.database()
        self.relay = Relay(server.host, server.port)
        # Halves are no whole numbers, so they cannot be read as bigint.
        self.execute("create table t (n bigint primary key, m double precision)")

    def execute(self, *statements: str) -> None:
        """Carry out statements as one transaction."""
        with postgresql.connect(self.url) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def put(self, first: int, end: int, *, bad: Collection[int] = ()) -> None:
        wrong = ", ".join(map(str, [-1, *bad]))
        value = f"case when n in ({wrong}) then 0.5 else 7 * n end"
        self.execute(f"insert into t select n, {value} from generate_series({first}, {end - 1}) n")

    def source(self, **options: Any) -> SourceConnector:
        return self.table("t", **options)

    def described(self) -> dict[str, Any]:
        return {"call": "from_postgres", "url": self.url, "table": "t", "by": "n", "schema": SCHEMA}

    def table(self, table: str, *, by: str = "n", schema: str = SCHEMA, **options: Any) -> SourceConnector:
        """Describe a source of another table."""
        url = self.url.replace(self.server.address, self.relay.address)
        return rr.from_postgres(url, table, by=by, schema=schema, **options)

    def position_of(self, n: int, record: int) -> dict[str, Any]:
        return {"table": "t", "n": str(n)}

    def go_away(self) -> None:
        self.server.kill()

    def come_back(self) -> None:
        self.server.start()


class RedisRig(ServerRig):
    name = "redis"

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.stream = server.prefix() + "rows"
        self.relay = Relay(server.host, server.port)

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        with redis_client.Redis.from_url(self.server.url) as client:
            yield client

    def put(self, first: int, end: int, *, bad: Collection[int] = ()) -> None:
        with self.client() as client:
            for low, high in _between(first, end, bad):
                client.eval(_ADD_ENTRIES, 1, self.stream, low, high)
                if high < end:
                    client.xadd(self.stream, {"n": high, "m": "what"})

    def source(self, **options: Any) -> SourceConnector:
        url = self.server.url.replace(self.server.address, self.relay.address)
        return rr.from_redis(url, self.stream, schema=SCHEMA, **options)

    def described(self) -> dict[str, Any]:
        return {"call": "from_redis", "url": self.server.url, "stream": self.stream, "schema": SCHEMA}

    def position_of(self, n: int, record: int) -> dict[str, Any]:
        with self.client() as client:
            identity = client.xrange(self.stream)[record][0].decode()
        return {"stream": self.stream, "id": identity}

    def go_away(self) -> None:
        self.server.kill()

    def come_back(self) -> None:
        self.server.start()


class LineServer:
    """Sends bytes to the one client it has; what nobody was there to take waits."""

    def __init__(self) -> None:
        self.host, self.port = HOST, free_port()
        self._waiting: list[bytes] = []
        self._hang_up = threading.Event()
        self.alone = threading.Event()
        self._down = threading.Event()
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        """Take a client, from now on or again."""
        self._down.clear()
        self._hang_up.clear()
        door = socket.create_server((self.host, self.port))
        door.settimeout(0.02)
        self._thread = threading.Thread(target=self._serve, args=(door,), daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Send this once there is a client."""
        self._waiting.append(data)

    def hang_up(self) -> None:
        """Close the connection, in order, once there is one and everything was sent; others are taken."""
        self._hang_up.set()

    def stop(self) -> None:
        """Hang up, and take no one until ``start``."""
        self._down.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _serve(self, door: socket.socket) -> None:
        with door:
            while not self._down.is_set():
                with contextlib.suppress(TimeoutError, ConnectionError):
                    client, _ = door.accept()
                    self.alone.clear()
                    with client:
                        self._talk(client)
                self.alone.set()

    def _talk(self, client: socket.socket) -> None:
        client.settimeout(None)
        while not self._down.is_set():
            # Clients say nothing: one that can be read from has gone.
            if select.select([client], [], [], 0 if self._waiting else 0.01)[0]:
                return
            if self._waiting:
                client.sendall(self._waiting[0])
                self._waiting.pop(0)
            elif self._hang_up.is_set():
                self._hang_up.clear()
                return


class TcpRig(ServerRig):
    name = "tcp"
    replays = False

    def __init__(self) -> None:
        self.server = LineServer()
        self.relay = Relay(self.server.host, self.server.port)

    def put(self, first: int, end: int, *, bad: Collection[int] = ()) -> None:
        for low, high in _between(first, end, bad):
            self.server.send(b"".join(b'{"n": %d, "m": %d}\n' % (n, 7 * n) for n in range(low, high)))
            if high < end:
                self.server.send(b'{"n": %d, "m": "what"}\n' % high)

    def source(self, **options: Any) -> SourceConnector:
        options = {"format": "json", "schema": SCHEMA, **options}
        return rr.from_tcp(self.relay.host, self.relay.port, **options)

    def position_of(self, n: int, record: int) -> dict[str, Any]:
        return {"server": self.relay.address, "line": record + 1}

    def over(self) -> None:
        self.server.hang_up()

    def unread(self) -> None:
        assert self.server.alone.wait(60)

    def go_away(self) -> None:
        self.server.stop()

    def come_back(self) -> None:
        self.server.start()

    def close(self) -> None:
        super().close()
        self.server.stop()


class FileRig(SourceRig):
    """A folder; each ``put`` is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self._files: list[Path] = []

    def put(self, first: int, end: int, *, bad: Collection[int] = ()) -> None:
        self.add(self.encoded(first, end, bad))

    def add(self, data: bytes) -> Path:
        """Add a file, which appears whole."""
        path = self.folder / f"{len(self._files):06d}.{self.name}"
        hidden = path.with_name("_" + path.name)
        hidden.write_bytes(data)
        hidden.rename(path)
        self._files.append(path)
        return path

    def encoded(self, first: int, end: int, bad: Collection[int]) -> bytes:
        raise NotImplementedError

    def source(self, **options: Any) -> SourceConnector:
        return rr.files(self.folder, format=self.name, schema=SCHEMA, **options)

    def position_of(self, n: int, record: int) -> dict[str, Any]:
        return {"file": str(self._files[-1])}


class CsvRig(FileRig):
    name = "csv"

    def encoded(self, first: int, end: int, bad: Collection[int]) -> bytes:
        lines = (b"%d,what\n" % n if n in bad else b"%d,%d\n" % (n, 7 * n) for n in range(first, end))
        return b"n,m\n" + b"".join(lines)


class JsonRig(FileRig):
    name = "json"

    def encoded(self, first: int, end: int, bad: Collection[int]) -> bytes:
        lines = (
            b'{"n": %d}}\n' % n if n in bad else b'{"n": %d, "m": %d}\n' % (n, 7 * n)
            for n in range(first, end)
        )
        return b"".join(lines)


class TextRig(FileRig):
    name = "text"

    def encoded(self, first: int, end: int, bad: Collection[int]) -> bytes:
        lines = (b"%d \xff\n" % n if n in bad else b"%d %d\n" % (n, 7 * n) for n in range(first, end))
        return b"".join(lines)

    def source(self, **options: Any) -> SourceConnector:
        return rr.files(self.folder, format="text", **options)

    def columns(self, table: pa.Table) -> pa.Table:
        words = pc.split_pattern(table.column("line"), " ")
        return pa.table(
            {name: pc.list_element(words, place).cast(pa.int64()) for place, name in enumerate(["n", "m"])}
        )


def _between(first: int, end: int, bad: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of good rows; after each but the last comes a bad one."""
    for n in sorted(bad):
        yield first, n
        first = n + 1
    yield first, end


def made(call: str, **arguments: Any) -> SourceConnector:
    """Make a source that another process described."""
    connector: SourceConnector = getattr(rr, call)(**arguments)
    return connector


SINK = "_out"


def copying(rigs: Sequence[SourceRig], out: Path, **options: Any) -> rr.Application:
    """Describe an application that copies each source to files, a file a batch."""
    return copying_of({rig.name: rig.source(**options) for rig in rigs}, out)


def copying_of(sources: dict[str, SourceConnector], out: Path) -> rr.Application:
    """Describe an application that copies sources to files, a file a batch."""
    app = rr.Application("copying")
    for name, connector in sources.items():
        app.sink(name + SINK, app.source(name, connector), rr.parquet(out / name, roll=0))
    return app


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def run_until(
    app: rr.Application, spark: SparkSession, tuples: int, *, leave: bool = False, **options: Any
) -> rr.Run:
    """Run live until so many tuples are in; then end the run, or leave it."""
    run = app.run(spark=spark, trigger="50ms", **options)
    with contextlib.suppress(LeftError), run:
        wait_for(run, tuples)
        if leave:
            raise LeftError
    return run


def wait_for(run: rr.Run, tuples: int) -> None:
    """Wait until so many tuples have come in; a run that fails raises its error."""
    wait_until(lambda: run.progress().tuples_in >= tuples or not run.running, seconds=120)
    if run.progress().tuples_in < tuples:
        run.wait(timeout=0)
        raise AssertionError(f"the run ended after {run.progress()}")


def run_to_end(app: rr.Application, spark: SparkSession, **options: Any) -> rr.Run:
    """Run until all input there is has been used up."""
    with app.run(spark=spark, **options) as run:
        assert run.wait(timeout=120), "the run did not end"
    return run


def came_out(rig: SourceRig, out: Path) -> pa.Table:
    """Return the rows that were put out, batch by batch; no batch may be there twice."""
    parts = read_parts(out / rig.name) if (out / rig.name).exists() else {}
    return rig.columns(whole(parts)) if parts else pa.table({"n": pa.array([], pa.int64()), "m": []})


def check_rows(rig: SourceRig, out: Path, expected: Iterable[int]) -> None:
    """Check that these rows came out, in order, each once."""
    check_table(came_out(rig, out), expected)


def check_table(table: pa.Table, expected: Iterable[int]) -> None:
    """Check that a table holds these rows."""
    wanted = np.fromiter(expected, np.int64) if not isinstance(expected, range) else np.array(expected)
    found = table.column("n").to_numpy()
    assert len(found) == len(wanted), f"{len(found)} rows, not {len(wanted)}"
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(table.column("m").to_numpy(), 7 * wanted)


def events(run: rr.Run, *kinds: str) -> list[dict[str, Any]]:
    """Return what happened to a run, of these kinds."""
    return [e for e in lines_of(run.folder / "events.jsonl") if not kinds or e["event"] in kinds]


def quarantined(run: rr.Run, source: str) -> list[dict[str, Any]]:
    """Return the bad records of a source."""
    found = []
    for path in sorted((run.folder / "quarantine" / source).glob("*.jsonl")):
        header, *lines = map(json.loads, path.read_text().splitlines())
        assert header == {"format": "riprap-quarantine/1"}
        found += lines
    return found
