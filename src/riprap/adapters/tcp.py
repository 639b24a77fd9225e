"""Lines over TCP: read from a server, or sent to one."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.csv

from riprap.adapters.bad_records import KEPT_BYTES
from riprap.adapters.decoding import decode_messages
from riprap.adapters.json_lines import json_bytes
from riprap.errors import ConnectionLost, RunError
from riprap.graph.connectors import BadRecord, Cursor, Fetched, Fetcher, FromTcp, Target, ToTcp

_CONNECT_SECONDS = 5.0
_RECEIVE_BYTES = 1 << 20
# What has come is handed on when there is so much of it, or after so long.
_PIECE_BYTES = 16 << 20
_PIECE_SECONDS = 0.1
# Of what is sent: so much at a time, and how long the server may take to read it.
_SLICE_BYTES = 64 << 10
_SEND_SECONDS = 30.0
# How often what the server says is read before something is sent.
_MOST_READS = 64
# How long a server may take to read the rest and close, after the last row.
_GOODBYE_SECONDS = 5.0
# A server that has vanished is asked after, and given up after a minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class TcpFetcher(Fetcher):
    """Reads lines until the server closes the connection. A cursor counts the lines there were."""

    def __init__(self, connector: FromTcp, clock: Callable[[], float] = time.monotonic) -> None:
        self._connector = connector
        self._clock = clock
        self._socket: socket.socket | None = None

    def fetch(self, after: Cursor) -> Iterator[Fetched | None]:
        lines = after if isinstance(after, int) else 0
        self._socket = _connect(self._connector.host, self._connector.port)
        self._socket.settimeout(_PIECE_SECONDS)
        cutter = _LineCutter(self._connector.max_record_bytes)
        received = 0
        began = self._clock()
        ended = False
        while not ended:
            lost: OSError | None = None
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
                ended = not data
                cutter.take(data)
                received += len(data)
            except OSError as error:
                # Without a number it is our own time limit; with one, the system's word that the server has vanished.
                if not isinstance(error, TimeoutError) or error.errno is not None:
                    lost, ended = error, True
            if ended or received >= _PIECE_BYTES or self._clock() - began >= _PIECE_SECONDS:
                parts = self._fetched(cutter, lines, last=ended and lost is None)
                received, began = 0, self._clock()
                for part in parts:
                    assert isinstance(part.cursor, int)
                    lines = part.cursor
                    yield part
                if not ended:
                    # A server that takes a connection and has nothing to say is not a lost one.
                    yield None
            if lost is not None:
                rest, size = cutter.rest()
                if size:
                    yield Fetched(
                        table=self._connector.schema.empty_table(),
                        cursor=lines + 1,
                        bad=[self._bad(lines, "the connection was lost within the line", rest, size)],
                    )
                raise ConnectionLost(f"{self._connector.host}:{self._connector.port}: {lost}") from lost
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _fetched(self, cutter: _LineCutter, first: int, *, last: bool) -> list[Fetched]:
        lines, oversized = cutter.lines(last=last)
        if not lines and not oversized:
            return []
        connector = self._connector
        count = len(lines) + len(oversized)
        numbers = [n for n in range(count) if n not in oversized]
        if connector.format != "text":
            blank = {i for i, line in enumerate(lines) if not line.strip()}
            if blank:
                lines = [line for i, line in enumerate(lines) if i not in blank]
                numbers = [n for i, n in enumerate(numbers) if i not in blank]
        decoded = decode_messages(
            pa.array(lines, pa.large_binary()),
            connector.format,
            connector.schema,
            limit=connector.max_record_bytes,
            notation=connector.notation,
        )
        bad = {
            numbers[i]: self._bad(first + numbers[i], reason, self._kept(lines[i]), len(lines[i]))
            for i, reason in decoded.bad
        }
        for number, (start, size) in oversized.items():
            reason = f"{size:,} bytes, more than the {connector.max_record_bytes:,} allowed: raise max_record_bytes="
            bad[number] = self._bad(first + number, reason, start, size)
        if bad and connector.on_bad_record == "fail":
            # The lines before it are not to be had again, so they come first.
            worst = min(bad)
            wrong = {i for i, _ in decoded.bad}
            before = sum(n < worst for i, n in enumerate(numbers) if i not in wrong)
            return [
                Fetched(table=decoded.table.slice(0, before), cursor=first + worst),
                Fetched(table=decoded.table.slice(0, 0), cursor=first + count, bad=[bad[worst]]),
            ]
        return [Fetched(table=decoded.table, cursor=first + count, bad=[bad[n] for n in sorted(bad)])]

    def _kept(self, line: bytes) -> bytes:
        return line if len(line) <= self._connector.max_record_bytes else line[:KEPT_BYTES]

    def _bad(self, line: int, reason: str, record: bytes, size: int) -> BadRecord:
        where: dict[str, int | str] = {
            "server": f"{self._connector.host}:{self._connector.port}",
            "line": line + 1,
        }
        return BadRecord(position=where, reason=reason, record=record, size=size)


class _LineCutter:
    """Cuts what comes into lines; of one that is too long it keeps the beginning and the size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        # Of the line at hand: bytes that were let go of because it is too long.
        self._start = b""
        self._gone = 0

    def take(self, data: bytes) -> None:
        """Take what came."""
        if data:
            self._parts.append(data)

    def lines(self, *, last: bool) -> tuple[list[bytes], dict[int, tuple[bytes, int]]]:
        """Return the whole lines, and by number those that are too long; ``last``: what is left is a line too."""
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts = [rest]
        if last and rest:
            lines.append(rest)
            self._parts = []
        oversized: dict[int, tuple[bytes, int]] = {}
        if self._gone and lines:
            oversized[0] = self._start, self._gone + len(lines.pop(0))
            self._start, self._gone = b"", 0
        elif self._gone and last:
            oversized[0] = self._start, self._gone
            self._start, self._gone = b"", 0
        if self._parts and len(rest) + self._gone > self._limit:
            self._start = self._start or rest[:KEPT_BYTES]
            self._gone += len(rest)
            self._parts = []
        return [line.removesuffix(b"\r") for line in lines], oversized

    def rest(self) -> tuple[bytes, int]:
        """Return what is kept of an unfinished line, and how long it was so far."""
        held = b"".join(self._parts)
        return self._start or held, self._gone + len(held)


class TcpTarget(Target):
    """Sends lines to a server; what was under way when the connection was lost is sent again."""

    def __init__(self, connector: ToTcp, schema: pa.Schema) -> None:
        self._connector = connector
        self._schema = schema
        self._socket: socket.socket | None = None

    def open(self, *, resume: bool) -> None:
        if self._socket is None:
            self._socket = _connect(self._connector.host, self._connector.port)

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        self.open(resume=True)
        if self._hung_up():
            # Known before anything is sent, so nothing is sent twice.
            self._drop()
            raise ConnectionLost(f"{self._connector.host}:{self._connector.port}: closed by the server")
        try:
            for part in self._encoded(table):
                self._send(part)
        except OSError as error:
            self._drop()
            raise ConnectionLost(f"{self._connector.host}:{self._connector.port}: {error}") from error

    def read(self) -> pa.Table:
        raise RunError(f"rows sent as {self._connector} cannot be read back")

    def close(self) -> None:
        if self._socket is None:
            return
        deadline = time.monotonic() + _GOODBYE_SECONDS
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            # To close while there is something to read is a reset, by which the server loses what it has not read.
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(_RECEIVE_BYTES):
                    break
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _send(self, part: memoryview) -> None:
        assert self._socket is not None
        for start in range(0, len(part), _SLICE_BYTES):
            # A server that waits until somebody reads what it says would read no more.
            if self._hung_up():
                raise ConnectionAbortedError("closed by the server")
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(part[start : start + _SLICE_BYTES])

    def _hung_up(self) -> bool:
        assert self._socket is not None
        self._socket.setblocking(False)
        try:
            # Whatever the server says is of no interest; nothing at all means that it has closed the connection. One
            # that goes on and on has not.
            return not all(self._socket.recv(_RECEIVE_BYTES) for _ in range(_MOST_READS))
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _encoded(self, table: pa.Table) -> Iterator[memoryview]:
        for batch in table.to_batches(max_chunksize=50_000):
            if self._connector.format == "csv":
                sink = pa.BufferOutputStream()
                pa.csv.write_csv(batch, sink, pa.csv.WriteOptions(include_header=False))
                yield memoryview(sink.getvalue())
            else:
                yield json_bytes(batch)


def _connect(host: str, port: int) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise ConnectionLost(f"{host}:{port}: {error}") from error
    # A batch is sent as it is: the system would hold a small one back until the server has acknowledged the one before.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Not every system has them.
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
