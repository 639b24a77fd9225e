"""Lines sent to servers that talk, dawdle, and hang up; without Spark."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from tests.edges.sink_rigs import numbers
from tests.runtime.harness import wait_until
from tests.services.ports import HOST

import riprap as rr
from riprap.adapters import tcp
from riprap.adapters.tcp import TcpTarget
from riprap.errors import ConnectionLost

# test_sources and test_sinks have the same for every system.
pytestmark = pytest.mark.slow

ROWS = 40_000


@dataclass
class Talk:
    """What a server got of each client, and how it ended."""

    got: list[bytearray] = field(default_factory=list)
    over: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving(
    talk: Callable[[socket.socket, bytearray], None], clients: int
) -> Iterator[tuple[TcpTarget, Talk]]:
    """Serve clients one after the other, each with ``talk``, and give a sink that is connected."""
    heard = Talk()
    door = socket.create_server((HOST, 0))
    # Small, so that what is sent waits at the sender's.
    door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)

    def serve() -> None:
        for _ in range(clients):
            client, _ = door.accept()
            heard.got.append(bytearray())
            with client:
                try:
                    talk(client, heard.got[-1])
                except OSError as error:
                    heard.over.append(str(error))
                    continue
            heard.over.append("closed")

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    target = TcpTarget(rr.to_tcp(*door.getsockname()), numbers(0).schema)
    target.open(resume=False)
    try:
        yield target, heard
        server.join(60)
        assert not server.is_alive(), "not all clients came, or one did not leave"
    finally:
        target.close()
        door.close()


def read_all(client: socket.socket, got: bytearray, *, pause: float = 0.0) -> None:
    while piece := client.recv(64 << 10):
        got += piece
        time.sleep(pause)


def test_a_server_that_says_something_and_closes_gets_the_next_batch_on_a_new_connection() -> None:
    def one_line(client: socket.socket, got: bytearray) -> None:
        while not got.endswith(b"\n"):
            got += client.recv(1 << 16)
        client.sendall(b"bye")

    with serving(one_line, 2) as (target, heard):
        target.write(0, numbers(1), again=False)
        wait_until(lambda: len(heard.over) == 1)
        with pytest.raises(ConnectionLost, match="closed by the server"):
            target.write(1, numbers(1, 1), again=False)
        target.write(1, numbers(1, 1), again=True)

    assert [bytes(got)[:8] for got in heard.got] == [b'{"n":0,"', b'{"n":1,"']


def test_a_server_that_says_something_and_stays_keeps_its_connection() -> None:
    def chatter(client: socket.socket, got: bytearray) -> None:
        client.sendall(b"welcome")
        while piece := client.recv(1 << 16):
            got += piece
            client.sendall(b"thanks")

    with serving(chatter, 1) as (target, heard):
        for batch in range(3):
            target.write(batch, numbers(1, batch), again=False)
            wait_until(lambda batch=batch: heard.got and heard.got[0].count(b"\n") == batch + 1)
        target.close()

    assert heard.over == ["closed"]


def test_a_server_that_answers_and_reads_slowly_gets_all_before_the_connection_closes() -> None:
    def slow(client: socket.socket, got: bytearray) -> None:
        got += client.recv(64 << 10)
        client.sendall(b"thanks")
        read_all(client, got, pause=0.005)

    with serving(slow, 1) as (target, heard):
        target.write(0, numbers(ROWS), again=False)
        target.close()

    assert heard.over == ["closed"]
    assert heard.got[0].count(b"\n") == ROWS


def test_a_server_that_does_not_close_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_GOODBYE_SECONDS", 0.2)
    left = threading.Event()

    def stay(client: socket.socket, got: bytearray) -> None:
        read_all(client, got)
        assert left.wait(30)

    with serving(stay, 1) as (target, heard):
        target.write(0, numbers(10), again=False)
        target.close()
        left.set()

    assert heard.got[0].count(b"\n") == 10


def test_a_server_that_reads_slowly_is_not_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_SEND_SECONDS", 0.5)
    # More than waits on the way, so that it is the server who says how long it takes.
    rows = pa.table({"s": ["x" * 500] * ROWS})
    with serving(lambda client, got: read_all(client, got, pause=0.01), 1) as (target, heard):
        began = time.monotonic()
        target.write(0, rows, again=False)
        assert time.monotonic() - began > 0.5
        target.close()

    assert heard.got[0].count(b"\n") == ROWS


def test_a_server_that_says_back_all_it_gets_does_not_stop_for_want_of_a_reader() -> None:
    def echo(client: socket.socket, got: bytearray) -> None:
        while piece := client.recv(64 << 10):
            got += piece
            client.sendall(piece * 8)

    with serving(echo, 1) as (target, heard):
        target.write(0, numbers(ROWS), again=False)
        target.close()

    assert heard.got[0].count(b"\n") == ROWS


def test_a_server_that_has_vanished_is_asked_after() -> None:
    with serving(read_all, 1) as (target, _):
        assert target._socket is not None
        assert target._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        target.close()
