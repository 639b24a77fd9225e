"""Lines over TCP in every form they come in: how they end, how they are cut off, how long they are."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import (
    LineServer,
    copying_of,
    events,
    quarantined,
    run_to_end,
    run_until,
    wait_for,
)
from tests.runtime.harness import lines_of, read_parts, wait_until, whole
from tests.services.ports import HOST, free_port

import riprap as rr
from riprap.adapters.tcp import TcpFetcher
from riprap.errors import ConnectionLost, RunError
from riprap.feeds.fetch_stop import FetchStop
from riprap.feeds.fetched_feed import FetchedFeed
from riprap.graph.connectors import Fetched, FromTcp
from riprap.operators.source import Source
from riprap.runtime import drain

# test_sources and test_sinks have the same for every system.
pytestmark = pytest.mark.slow

RESET = struct.pack("ii", 1, 0)


def send(door: socket.socket, pieces: Sequence[bytes], *, reset: bool) -> None:
    """Send pieces to the first client and close the connection, in order or with a reset."""
    with door:
        client, _ = door.accept()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            client.sendall(piece)
            # So that they come one by one. What comes out does not depend on it.
            time.sleep(0.01)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def fetch(
    pieces: Sequence[bytes], *, reset: bool = False, after: int | None = None, **options: Any
) -> list[Fetched]:
    """Fetch pieces that come one by one; what a reset leaves is fetched too."""
    door = socket.create_server((HOST, 0))
    address = door.getsockname()
    sender = threading.Thread(target=send, args=(door, pieces), kwargs={"reset": reset})
    sender.start()
    connector = rr.from_tcp(*address, **options)
    assert isinstance(connector, FromTcp)
    # By this clock it is always time to hand on what has come.
    fetcher = TcpFetcher(connector, clock=count().__next__)
    found: list[Fetched] = []
    with pytest.raises(ConnectionLost, match=rf"{HOST}:{address[1]}: ") if reset else nullcontext():
        found.extend(each for each in fetcher.fetch(after) if each is not None)
    sender.join()
    fetcher.close()
    return found


def lines(found: Sequence[Fetched]) -> list[Any]:
    return [value for each in found for value in each.table.column(0).to_pylist()]


def bad(found: Sequence[Fetched]) -> list[tuple[int | str, str]]:
    return [(b.position["line"], b.reason) for each in found for b in each.bad]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\nc\r\n", ["a", "b", "c"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"", []),
        (b"\n", [""]),
        (b"\n\r\n\na", ["", "", "", "a"]),
        ("gr\u00fcn \u20ac\n".encode(), ["gr\u00fcn \u20ac"]),
    ],
)
def test_lines_end_with_a_line_break_or_with_the_connection(sent: bytes, expected: list[str]) -> None:
    assert lines(fetch([sent])) == expected
    # However it is cut up on the way.
    assert lines(fetch([sent[:1], sent[1:3], sent[3:]])) == expected


@pytest.mark.parametrize(
    ("format", "sent"),
    [
        ("json", b'\n{"n": 1}\n\n  \r\n{"n": 2}\r\n\n'),
        ("csv", b"\n1\r\n\r\n\n2\n"),
    ],
)
def test_blank_lines_are_no_records_of_json_and_csv(format: str, sent: bytes) -> None:
    found = fetch([sent], format=format, schema="n bigint")

    assert lines(found) == [1, 2]
    assert bad(found) == []
    assert found[-1].cursor == sent.count(b"\n")


def test_bad_lines_are_counted_among_all_lines() -> None:
    sent = [b'{"n": 1}\n\n{"n": "x"}\n{"n": 2}\n', b'{"n": 3}\nnonsense\n{"n": 4']
    found = fetch(sent, format="json", schema="n bigint", after=100)

    assert lines(found) == [1, 2, 3]
    assert [line for line, _ in bad(found)] == [103, 106, 107]
    assert found[-1].cursor == 107


def test_a_line_of_text_that_is_not_utf8_is_a_bad_record() -> None:
    found = fetch([b"a\n\xff\nb\n"])

    assert lines(found) == ["a", "b"]
    assert [line for line, _ in bad(found)] == [2]


@pytest.mark.parametrize("size", [101, 5_000, 3_000_000])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""], ids=["break", "carriage return", "end"])
def test_an_oversized_line_is_a_bad_record_and_those_around_it_are_not(size: int, ending: bytes) -> None:
    long = b"x" * size
    after = b"after\n" if ending else b""
    for cut in (size, 1):
        found = fetch([b"before\n" + long[:cut], long[cut:], ending, after], max_record_bytes=100)

        assert lines(found) == ["before", *(["after"] if ending else [])]
        ((line, reason),) = bad(found)
        assert line == 2
        assert reason.endswith("bytes, more than the 100 allowed: raise max_record_bytes=")
        (record,) = (b for each in found for b in each.bad)
        assert size <= record.size <= size + 1
        assert record.record == long[: len(record.record)]
        assert 0 < len(record.record) <= 4096


def test_a_line_as_long_as_allowed_is_read() -> None:
    found = fetch([b"x" * 100 + b"\n" + b"y" * 100 + b"\r\n" + b"z" * 100], max_record_bytes=100)

    assert [len(line) for line in lines(found)] == [100, 100, 100]


def test_a_line_cut_off_by_a_reset_is_a_bad_record() -> None:
    found = fetch([b"one\ntwo\nthr"], reset=True)

    assert lines(found) == ["one", "two"]
    assert bad(found) == [(3, "the connection was lost within the line")]
    (record,) = (b for each in found for b in each.bad)
    assert (record.record, record.size) == (b"thr", 3)
    assert found[-1].cursor == 3


def test_of_an_oversized_line_cut_off_by_a_reset_the_size_is_told() -> None:
    found = fetch([b"one\n" + b"x" * 9_000, b"x" * 1_000], reset=True, max_record_bytes=100)

    assert lines(found) == ["one"]
    (record,) = (b for each in found for b in each.bad)
    assert (record.record, record.size) == (b"x" * 4096, 10_000)


def test_a_reset_after_a_whole_line_leaves_nothing_behind() -> None:
    found = fetch([b"one\ntwo\n"], reset=True)

    assert (lines(found), bad(found)) == (["one", "two"], [])


def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    port = free_port()
    connector = rr.from_tcp(HOST, port)
    assert isinstance(connector, FromTcp)

    with pytest.raises(ConnectionLost, match=rf"{HOST}:{port}: .*refused"):
        next(TcpFetcher(connector).fetch(None))


def test_a_server_that_says_nothing_is_not_a_lost_connection() -> None:
    with socket.create_server((HOST, 0)) as silent:
        connector = rr.from_tcp(*silent.getsockname())
        assert isinstance(connector, FromTcp)
        fetcher = TcpFetcher(connector)
        # Or a connection that came back and stayed silent would be taken for one that never did.
        assert next(fetcher.fetch(None)) is None
        fetcher.close()


def test_a_source_that_stops_at_bad_lines_first_hands_on_those_before() -> None:
    sent = b"1\n\n2\nx\n3\ny\n"
    found = fetch([sent], format="csv", schema="n bigint", on_bad_record="fail")

    assert [each.table.column("n").to_pylist() for each in found] == [[1, 2], []]
    assert [each.cursor for each in found] == [3, 6]
    assert [line for line, _ in bad(found)] == [4]


def test_all_formats_in_one_run(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    sent = {
        "text": b"a,b\r\n\n\xff\nlast",
        "csv": b'1,"a,b"\r\n\n2,"open\n3,c',
        "json": b'{"n": 1, "s": "a"}\r\n\n{"n": 1.5}\n{"s": "last"}',
    }
    servers = {name: LineServer() for name in sent}
    sources = {}
    for name, server in servers.items():
        server.send(sent[name])
        server.hang_up()
        schema = None if name == "text" else "n bigint, s string"
        sources[name] = rr.from_tcp(server.host, server.port, format=name, schema=schema)

    run = run_to_end(copying_of(sources, tmp_path / "out"), spark, runs=runs)

    found = {name: whole(read_parts(tmp_path / "out" / name)).to_pylist() for name in sent}
    assert [row["line"] for row in found["text"]] == ["a,b", "", "last"]
    assert found["csv"] == [{"n": 1, "s": "a,b"}, {"n": 3, "s": "c"}]
    assert found["json"] == [{"n": 1, "s": "a"}, {"n": None, "s": "last"}]
    for name, server in servers.items():
        (record,) = quarantined(run, name)
        assert record["position"] == {"server": f"{server.host}:{server.port}", "line": 3}
        server.stop()


def test_a_server_that_has_vanished_is_asked_after_and_is_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server((HOST, 0)) as silent:
        connector = rr.from_tcp(*silent.getsockname())
        assert isinstance(connector, FromTcp)
        fetcher = TcpFetcher(connector)
        fetching = fetcher.fetch(None)
        assert next(fetching) is None
        assert fetcher._socket is not None
        assert fetcher._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert fetcher._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        fetcher.close()

        # What the system says when nobody answers: it is no more than a time limit by its class.
        def vanished(_: object, __: int) -> bytes:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

        monkeypatch.setattr(fetcher, "_socket", type("Vanished", (), {"recv": vanished, "close": len})())
        with pytest.raises(ConnectionLost, match="Connection timed out"):
            next(fetching)


class Closing:
    """A server that says something, or nothing, to each client in turn, and closes the connection."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)
        self.clients = 0
        self.door = socket.create_server((HOST, 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            with client:
                self.clients += 1
                client.sendall(self.said.pop(0) if self.said else b"")


@contextmanager
def feeding(folder: Path, door: socket.socket, **options: Any) -> Iterator[tuple[FetchedFeed, list[str]]]:
    """Give a feed of a server, as a run with a trigger opens it, and the events."""
    finite = options.pop("finite", False)
    app = rr.Application("feeding")
    app.sink("out", app.source("in", rr.from_tcp(*door.getsockname(), **options)), rr.memory())
    source = app.graph()["in"]
    assert isinstance(source, Source)
    told: list[str] = []
    feed = FetchedFeed(
        source,
        folder / "in",
        folder / "bad",
        finite=finite,
        batch_rows=10,
        tell=lambda kind, **_: told.append(kind),
    )
    try:
        yield feed, told
    finally:
        FetchStop(folder / "in").ask()
        door.close()


def test_a_server_that_hangs_up_on_everyone_fails_a_run_with_a_trigger(tmp_path: Path) -> None:
    server = Closing()
    with (
        feeding(tmp_path, server.door, retry_for="0.8s") as (feed, told),
        pytest.raises(RunError, match=r"source 'in' .*closed by the server\. Tried \d more times"),
    ):
        wait_until(lambda: feed.upto(0, 10), seconds=30)

    # With longer and longer waits: at 0, 0.1, 0.3, 0.7 and 0.8 s.
    assert 3 <= server.clients <= 5
    assert told == ["connection lost"] * (server.clients - 1)


def test_a_server_that_closes_after_some_lines_is_connected_to_at_once(tmp_path: Path) -> None:
    server = Closing(b"a\n", b"b\nc\n", b"", b"d\n")
    with feeding(tmp_path, server.door, retry_for="60s") as (feed, told):
        wait_until(lambda: feed.upto(0, 10) == 4, seconds=30)

    assert told[:2] == ["connection lost", "connection back"]


def test_a_server_that_closes_without_a_word_is_the_end_of_a_run_without_a_trigger(tmp_path: Path) -> None:
    server = Closing()
    with feeding(tmp_path, server.door, finite=True) as (feed, told):
        wait_until(lambda: feed.upto(0, 10) == 0 and feed.log.end == 0, seconds=30)

    assert (server.clients, told) == (1, [])


def test_a_source_that_is_to_leave_off_says_how_much_it_has_read_and_hangs_up(tmp_path: Path) -> None:
    leaving = FetchStop(tmp_path / "in")
    door = socket.create_server((HOST, 0))
    with feeding(tmp_path, door) as (feed, _):
        feed.upto(0, 10)
        client, _ = door.accept()
        with client:
            # More than it fetches ahead, and the beginning of one more.
            client.sendall(b"line\n" * 100 + b"li")
            wait_until(lambda: feed.log.rows == 100, seconds=30)
            assert leaving.rows is None
            leaving.ask()
            wait_until(lambda: leaving.rows is not None, seconds=30)
            assert leaving.rows == 100
            client.settimeout(10)
            assert client.recv(1) == b""
            assert feed.upto(90, 100) == 100


def test_a_server_that_cannot_be_reached_does_not_keep_a_source_from_leaving_off(tmp_path: Path) -> None:
    door = socket.create_server((HOST, 0))
    with feeding(tmp_path, door) as (feed, told):
        door.close()
        feed.upto(0, 10)
        wait_until(lambda: "connection lost" in told, seconds=30)
        FetchStop(tmp_path / "in").ask()
        wait_until(lambda: FetchStop(tmp_path / "in").rows == 0, seconds=30)


@pytest.mark.parametrize("trigger", ["50ms", None])
def test_an_orderly_stop_loses_no_line_that_was_read(
    spark: SparkSession, runs: Path, tmp_path: Path, trigger: str | None
) -> None:
    server = LineServer()
    server.send(b"".join(b"%d\n" % n for n in range(1_000)))
    app = copying_of({"in": rr.from_tcp(server.host, server.port)}, tmp_path / "out")
    with app.run(spark=spark, trigger=trigger, runs=runs, batch_rows=100) as run:
        wait_for(run, 1)
        (folder,) = run.folder.glob("elements/*/sources/in")
        wait_until(lambda: sum(s.get("rows", 0) for s in lines_of(folder / "segments.jsonl")) == 1_000)

    found = whole(read_parts(tmp_path / "out" / "in")).column("line").to_pylist()
    assert found == [str(n) for n in range(1_000)]
    assert [e["event"] for e in events(run)] == ["started", "ended"]
    assert server.alone.wait(30)
    server.stop()


def test_a_run_that_was_told_to_stop_and_taken_up_reads_on(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    server = LineServer()
    server.send(b"a\nb\n")
    app = copying_of({"in": rr.from_tcp(server.host, server.port)}, tmp_path / "out")
    left = run_until(app, spark, 2, leave=True, runs=runs)
    assert server.alone.wait(30)
    (folder,) = left.folder.glob("elements/*/sources/in")
    # As by a driver that is killed while it waits for the answer.
    FetchStop(folder).ask()
    FetchStop(folder).answer(2)
    server.send(b"c\n")
    server.hang_up()

    run_to_end(app, spark, folder=left.folder)

    assert whole(read_parts(tmp_path / "out" / "in")).column("line").to_pylist() == ["a", "b", "c"]
    server.stop()


def test_a_run_whose_source_does_not_answer_does_not_end_and_can_be_taken_up(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = LineServer()
    server.send(b"a\nb\n")
    app = copying_of({"in": rr.from_tcp(server.host, server.port)}, tmp_path / "out")
    run = app.run(spark=spark, trigger="50ms", runs=runs)
    wait_for(run, 2)
    monkeypatch.setattr(drain, "_QUIET_SECONDS", 0.5)
    monkeypatch.setattr(FetchStop, "ask", lambda _: None)
    with pytest.raises(RunError, match=r"source 'in' .*rows it has read are not computed.*Take the run up"):
        run.stop()
    assert [e["event"] for e in events(run)] == ["started", "failed", "interrupted"]
    assert server.alone.wait(30)
    server.send(b"c\n")
    server.hang_up()

    run_to_end(app, spark, folder=run.folder)

    assert whole(read_parts(tmp_path / "out" / "in")).column("line").to_pylist() == ["a", "b", "c"]
    server.stop()
