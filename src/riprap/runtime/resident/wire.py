"""Messages between an element's coordinator and its tasks: framed, small, and versioned.

    frame   version (2 bytes), kind (1), round (8), length (4), big-endian; then so many bytes

    HELLO   task -> coordinator     JSON {"token": "...", "task": 0, "attempt": 17, "riprap": "0.1.0"}
    WORK    coordinator -> task     JSON: what there is to read for all, or to compute
    DONE    task -> coordinator     the answer to the round of that number
    END     coordinator -> task     there is no more to do here; the text says why
    REPLACED  coordinator -> task   another attempt is at work in its place

A task says HELLO once, and then answers one WORK after the other until it is told to END. One that is REPLACED fails:
Spark must not take its end for that of the task.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from riprap.errors import FormatError

VERSION = 1
HELLO, WORK, DONE, END, REPLACED = 1, 2, 3, 4, 5
_HEAD = struct.Struct(">HBQI")
# Of one who has not said who it is yet, no more is read.
MOST_OF_A_STRANGER = 4096


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A message, as it was sent."""

    kind: int
    round: int
    body: bytes


def send(link: socket.socket, kind: int, body: bytes, *, number: int = 0) -> None:
    """Send a message, whole."""
    link.sendall(_HEAD.pack(VERSION, kind, number, len(body)) + body)


class Inbox:
    """Puts messages together from what a connection brings."""

    def __init__(self, link: socket.socket, most: int | None = None) -> None:
        self._link = link
        self._data = bytearray()
        self.most = most

    def read(self) -> list[WireMessage] | None:
        """Take what has come in, once; return the messages that are whole, None when the other side is gone."""
        try:
            data = self._link.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            return None
        if not data:
            return None
        self._data += data
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> WireMessage | None:
        if len(self._data) < _HEAD.size:
            return None
        version, kind, number, length = _HEAD.unpack_from(self._data)
        if version != VERSION:
            raise FormatError(
                f"a message of version {version} came from a task, and this version of Riprap speaks {VERSION}: all "
                "processes of a run need the same Riprap installed"
            )
        if self.most is not None and length > self.most:
            raise FormatError(f"a message of {length:,} bytes came from one who has not said who it is")
        end = _HEAD.size + length
        if len(self._data) < end:
            return None
        body = bytes(self._data[_HEAD.size : end])
        del self._data[:end]
        return WireMessage(kind, number, body)
