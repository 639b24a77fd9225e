"""A Redis server for tests, which keeps its data when it is killed."""

from __future__ import annotations

import shutil
import socket

from tests.services.server import Server, UnavailableError, fresh_name


def redis_program() -> str | None:
    """Return the path of redis-server, or None where it is not installed."""
    return shutil.which("redis-server")


class Redis(Server):
    """Redis with an append-only file, so that what it has answered is there after a restart."""

    name = "redis"

    def __init__(self) -> None:
        program = redis_program()
        if program is None:
            raise UnavailableError("Redis is not installed: apt-get install redis-server")
        super().__init__()
        self._program = program

    @property
    def url(self) -> str:
        """The address as client libraries take it."""
        return f"redis://{self.address}/0"

    def prefix(self) -> str:
        """Return a prefix for keys and streams that no other test uses."""
        self.ensure_running()
        return f"{fresh_name()}:"

    def _command(self) -> list[str]:
        return [
            self._program,
            *("--bind", self.host, "--port", str(self.port), "--dir", str(self.folder)),
            *("--daemonize", "no", "--save", "", "--appendonly", "yes"),
            # Written before each answer. With the default (everysec) a write may wait for a slow fsync.
            *("--appendfsync", "no"),
        ]

    def _answers(self) -> bool:
        with socket.create_connection((self.host, self.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            # While it reads its file it answers -LOADING.
            return connection.recv(64).startswith(b"+PONG")
