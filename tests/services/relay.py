"""A TCP relay on loopback that can be broken: for tests of clients whose connection goes away.

    with Relay(redis.host, redis.port) as relay:
        url = redis.url.replace(redis.address, relay.address)
        ...
        relay.drop()

Kafka has a relay of its own, ``Kafka.relay``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from tests.services.ports import HOST, free_port

# SO_LINGER on, for no time: closing sends a reset in place of an orderly end.
_RESET = struct.pack("ii", 1, 0)
# How soon a thread that waits for a slow peer, or for a caller, notices that it is to end.
_TICK_SECONDS = 0.05


class _Link:
    """A client's connection and ours to the target, with a thread for each direction."""

    def __init__(self, client: socket.socket, target: socket.socket) -> None:
        self._ends = (client, target)
        self._broken = False
        self._lock = threading.Lock()
        self._open_ways = 2
        ways = [(client, target), (target, client)]
        self._threads = [threading.Thread(target=self._pass_on, args=way, daemon=True) for way in ways]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def reset(self) -> None:
        """Close both ends with a reset, and return when that is done."""
        self._break()
        for thread in self._threads:
            thread.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        """Copy one direction to its end; whoever comes to an end last closes."""
        try:
            while piece := source.recv(1 << 16):
                self._send(sink, piece)
            if not self._broken:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One side was reset; the other is to see the same.
            self._break()
        with self._lock:
            self._open_ways -= 1
            last = self._open_ways == 0
        if last:
            for end in self._ends:
                if self._broken:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()

    def _send(self, sink: socket.socket, piece: bytes) -> None:
        left = memoryview(piece)
        while left and not self._broken:
            # A peer that does not read must not keep us from closing.
            if select.select([], [sink], [], _TICK_SECONDS)[1]:
                left = left[sink.send(left, socket.MSG_DONTWAIT) :]

    def _break(self) -> None:
        self._broken = True
        for end in self._ends:
            # Wakes the thread that reads here and sends nothing: the other side must see a reset, not an end.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)


class Relay:
    """Pass connections on to a target, and break them when told."""

    def __init__(self, target_host: str, target_port: int, *, port: int | None = None) -> None:
        self.host = HOST
        self.port = free_port() if port is None else port
        self._target = (target_host, target_port)
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._refusing = threading.Event()
        self._acceptor: threading.Thread | None = None
        self.accept()

    @property
    def address(self) -> str:
        """The host and port to connect to in place of the target's."""
        return f"{self.host}:{self.port}"

    def accept(self) -> None:
        """Take connections, from now on or again."""
        if self._acceptor is not None:
            return
        self._refusing.clear()
        door = socket.create_server((self.host, self.port))
        door.settimeout(_TICK_SECONDS)
        self._acceptor = threading.Thread(target=self._take, args=(door,), daemon=True)
        self._acceptor.start()

    def drop(self) -> None:
        """Close all connections now, with a reset; new ones are taken."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.reset()

    def refuse(self) -> None:
        """Close all connections and take no new ones until ``accept``."""
        self._refusing.set()
        if self._acceptor is not None:
            self._acceptor.join()
            self._acceptor = None
        self.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()

    def _take(self, door: socket.socket) -> None:
        with door:
            while not self._refusing.is_set():
                try:
                    client, _ = door.accept()
                except TimeoutError:
                    continue
                client.settimeout(None)
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            target = socket.create_connection(self._target)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        for end in (client, target):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._links = [*(link for link in self._links if not link.done), _Link(client, target)]
