"""Lines over TCP in every form they come in: how they end, how they are cut off, how long they are."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import LineServer, copying_of, quarantined, run_to_end
from tests.runtime.harness import read_parts, whole
from tests.services.ports import HOST, free_port

import riprap as rr
from riprap.adapters.fetching import Fetched
from riprap.adapters.retrying import ConnectionLost
from riprap.adapters.tcp import TcpFetcher
from riprap.graph.connectors import FromTcp

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
