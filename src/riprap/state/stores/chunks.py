"""Values cut into chunks of a size the store can take: a head under the key, and the chunks under names of their own.

The head is written last, so a value is there when all of it is. It names the chunks by a stamp that no other put()
has, so a value that is being replaced stays whole until its new head is in place.

    head     {"format": "riprap-value/1", "stamp": "5f0c...", "length": 40000000, "chunk": 16777216}
    chunks   <key>:<stamp>:0, <key>:<stamp>:1, ... as many as the length asks for
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError
from riprap.state.stores.base import Buffer, view

FORMAT = "riprap-value/1"
# Each is made because somebody replaced the value within the one before it.
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Head:
    """What a store keeps under a key: how long the value is and where its chunks are."""

    stamp: str
    length: int
    chunk: int

    @classmethod
    def of(cls, value: Buffer, chunk: int) -> Self:
        """Return the head for a new value."""
        return cls(uuid.uuid4().hex, len(view(value)), chunk)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Read a head, or raise ``CorruptValueError`` or ``FormatError``."""
        try:
            content = json.loads(data)
            version, head = content["format"], cls(content["stamp"], content["length"], content["chunk"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptValueError(f"{where}: its head cannot be read: {data[:80]!r}") from error
        if version != FORMAT:
            raise FormatError(f"{where} has format {version!r}, this version reads {FORMAT!r}")
        return head

    def encode(self) -> bytes:
        content = {"format": FORMAT, "stamp": self.stamp, "length": self.length, "chunk": self.chunk}
        return json.dumps(content).encode()

    def names(self, key: str) -> list[str]:
        """Return the names of the chunks in order."""
        return [f"{key}:{self.stamp}:{index}" for index in range(-(-self.length // self.chunk))]

    def cut(self, value: Buffer) -> list[memoryview]:
        """Cut the value up, without copying it."""
        data = view(value)
        return [data[start : start + self.chunk] for start in range(0, self.length, self.chunk)]

    def join(self, chunks: Sequence[bytes | None], where: str) -> pa.Buffer:
        """Put the chunks together, or raise ``CorruptValueError`` where one is missing or too short."""
        sizes = [-1 if chunk is None else len(chunk) for chunk in chunks]
        wanted = [min(self.chunk, self.length - start) for start in range(0, self.length, self.chunk)]
        for index, (size, right) in enumerate(zip(sizes, wanted, strict=True)):
            if size != right:
                has = "is missing" if size < 0 else f"has {size:,} bytes instead of {right:,}"
                raise CorruptValueError(f"{where}: chunk {index} of {len(wanted)} {has}")
        if len(chunks) == 1:
            return pa.py_buffer(chunks[0])
        whole = pa.allocate_buffer(self.length)
        target, start = memoryview(whole).cast("B"), 0
        for chunk in chunks:
            assert chunk is not None
            target[start : start + len(chunk)] = chunk
            start += len(chunk)
        return whole


def read_value(
    key: str,
    where: str,
    read_head: Callable[[], bytes | None],
    read_chunks: Callable[[list[str]], Sequence[bytes | None]],
) -> pa.Buffer:
    """Read a value by its head and chunks; if it is replaced while we read, read the new one."""
    seen: bytes | None = None
    for _ in range(_ATTEMPTS):
        data = read_head()
        if data is None:
            raise KeyError(key)
        head = Head.decode(data, where)
        try:
            return head.join(read_chunks(head.names(key)), where)
        except CorruptValueError:
            if data == seen:
                raise
            seen = data
    raise CorruptValueError(f"{where}: it is replaced again and again while it is read")
