"""The three requests of Kafka's protocol that the tests' broker is asked, so that no client library is needed.

    request   size int32, kind int16, version int16, number int32, client string, body
    answer    size int32, number int32, body
    string    length int16, bytes

The versions used are old ones that brokers of the 3 series know (https://kafka.apache.org/protocol).
"""

from __future__ import annotations

import socket
import struct

_METADATA = (3, 0)
_API_VERSIONS = (18, 0)
_CREATE_TOPICS = (19, 2)

TOPIC_ALREADY_EXISTS = 36


class RefusedError(Exception):
    """The broker answered with an error; ``code`` is its number."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: the broker answers with error {code}")
        self.code = code


def answers(host: str, port: int) -> bool:
    """Say whether the broker serves requests."""
    (code,) = struct.unpack_from(">h", _ask(host, port, _API_VERSIONS, b""))
    return bool(code == 0)


def create_topic(host: str, port: int, name: str, partitions: int) -> None:
    """Create a topic, or raise ``RefusedError``."""
    one_copy, no_assignments, no_settings, patience_ms, for_good = 1, 0, 0, 30000, 0
    body = struct.pack(">i", 1) + _string(name) + struct.pack(">ih", partitions, one_copy)
    body += struct.pack(">iiiB", no_assignments, no_settings, patience_ms, for_good)
    answer = _ask(host, port, _CREATE_TOPICS, body)
    # The time we were held up, the number of topics, and the name come before the code.
    (code,) = struct.unpack_from(">h", answer, 8 + len(_string(name)))
    if code:
        raise RefusedError(f"creating the topic {name}", code)


def is_led(host: str, port: int, topic: str) -> bool:
    """Say whether the broker knows the topic and leads its partitions."""
    answer = _ask(host, port, _METADATA, struct.pack(">i", 1) + _string(topic))
    (brokers,) = struct.unpack_from(">i", answer)
    at = 4
    for _ in range(brokers):
        (length,) = struct.unpack_from(">h", answer, at + 4)
        at += 4 + 2 + length + 4
    (code,) = struct.unpack_from(">h", answer, at + 4)
    return bool(code == 0)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _ask(host: str, port: int, kind: tuple[int, int], body: bytes) -> bytes:
    """Send one request on a connection of its own and return the body of the answer."""
    request = struct.pack(">hhi", *kind, 1) + _string("tests") + body
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return received
