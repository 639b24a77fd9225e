"""The relay passes bytes both ways, and breaks connections the way networks do."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest
from tests.services.ports import free_port
from tests.services.relay import Relay


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while piece := self.request.recv(1 << 16):
            self.request.sendall(piece)
        self.request.sendall(b"bye")


class _Server(socketserver.ThreadingTCPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the clients of these tests go away on purpose."""


@pytest.fixture
def relay() -> Iterator[Relay]:
    with _Server(("127.0.0.1", 0), _Echo) as echo:
        serving = threading.Thread(target=echo.serve_forever)
        serving.start()
        with Relay(*echo.server_address) as relay:
            yield relay
        echo.shutdown()
        serving.join()


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection((relay.host, relay.port), timeout=10)


def say(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(len(text), socket.MSG_WAITALL)


def test_bytes_go_both_ways(relay: Relay) -> None:
    with connect(relay) as one, connect(relay) as other:
        assert say(one, b"1" * 5000) == b"1" * 5000
        assert say(other, b"two") == b"two"


def test_the_end_of_what_a_client_sends_is_passed_on(relay: Relay) -> None:
    with connect(relay) as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100, socket.MSG_WAITALL) == b"bye"


def test_dropped_connections_are_reset_and_new_ones_are_taken(relay: Relay) -> None:
    with connect(relay) as one, connect(relay) as other:
        say(one, b"x")
        say(other, b"x")
        relay.drop()
        for client in (one, other):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    with connect(relay) as again:
        assert say(again, b"hello") == b"hello"


def test_a_client_that_does_not_read_can_be_dropped(relay: Relay) -> None:
    with connect(relay) as client:
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.sendall(b"x" * 50_000_000)
        relay.drop()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            client.sendall(b"x" * 50_000_000)


def test_a_refusing_relay_accepts_again(relay: Relay) -> None:
    with connect(relay) as client:
        say(client, b"x")
        relay.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(relay)

    relay.accept()

    with connect(relay) as client:
        assert say(client, b"hello") == b"hello"


def test_a_target_that_is_down_resets_the_client() -> None:
    # The reset may be there before the client has seen its connection stand.
    with (
        Relay("127.0.0.1", free_port()) as relay,
        pytest.raises(ConnectionResetError),
        connect(relay) as client,
    ):
        client.recv(1)


def test_a_reset_by_the_target_reaches_the_client() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        Relay(*target.getsockname()) as relay,
        connect(relay) as client,
    ):
        served, _ = target.accept()
        client.sendall(b"unread")
        assert served.recv(1) == b"u"
        # Closing with bytes unread is a reset.
        served.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
