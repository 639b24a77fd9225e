"""A pack: the values of one put() in one file, or the keys that one delete() took away.

    "riprap-pack/1" and zeros   16 bytes  \\
    length of the index          8        |  little-endian; this head keeps its shape in later versions
    size of the file             8        |
    CRC-32                       4       /   of the 32 bytes before it and the index
    index                        JSON: {"values": {"<key>": [<offset>, <length>], ...}, "gone": ["<key>", ...]}
    values                       each begins at a multiple of 64, so that Arrow can use it where it lies

A name is ``<number>-<token>-<edition>.pack``. What a pack with a higher number says of a key counts. A pack of which
little is left is written again with the next edition, and then the older edition is as good as gone.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from riprap.errors import CorruptValueError, FormatError
from riprap.state.stores.base import Buffer, view

FORMAT = "riprap-pack/1"
SUFFIX = ".pack"
_HEAD = struct.Struct("<16sQQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CRC.size
_ALIGNMENT = 64
_NAME = re.compile(r"(\d{12})-([0-9a-f]{12})-(\d{4})\.pack")

PackPlace = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class PackName:
    """What a pack's name says; names sort by what counts."""

    number: int
    token: str
    edition: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a file's name, None if it is no pack's."""
        match = _NAME.fullmatch(text)
        return cls(int(match[1]), match[2], int(match[3])) if match else None

    def __str__(self) -> str:
        return f"{self.number:012d}-{self.token}-{self.edition:04d}{SUFFIX}"

    def next_edition(self) -> PackName:
        return PackName(self.number, self.token, self.edition + 1)


@dataclass(frozen=True, eq=False)
class Pack:
    """The index of a pack: where its values are, and which keys it takes away."""

    name: PackName
    size: int
    values: Mapping[str, PackPlace]
    gone: frozenset[str] = frozenset()

    @cached_property
    def mentions(self) -> frozenset[str]:
        """Every key the pack says something of."""
        return self.gone | self.values.keys()


_LAST = PackName(10**12, "")


def make_pack(
    name: PackName, values: Mapping[str, Buffer], gone: Collection[str] = ()
) -> tuple[Pack, list[memoryview]]:
    """Lay out a pack; return its index and the pieces of the file in order. No value is copied."""
    views = {key: view(value) for key, value in values.items()}
    # Offsets count from the end of the index, whose length depends on them: so place the values, then shift them.
    places, end = {}, 0
    for key, data in views.items():
        places[key] = (end, len(data))
        end = _aligned(end + len(data))
    start = 0
    while True:
        index = _index({key: (start + at, length) for key, (at, length) in places.items()}, gone)
        needed = _aligned(HEAD_BYTES + len(index))
        if needed <= start:
            break
        start = needed
    end = max((start + at + length for at, length in places.values()), default=HEAD_BYTES + len(index))
    head = _HEAD.pack(FORMAT.encode(), len(index), end)
    crc = _CRC.pack(zlib.crc32(index, zlib.crc32(head)))
    pieces, at = [memoryview(head + crc + index)], HEAD_BYTES + len(index)
    placed = {key: (start + offset, length) for key, (offset, length) in places.items()}
    for key, data in views.items():
        pieces += [memoryview(bytes(placed[key][0] - at)), data]
        at = placed[key][0] + len(data)
    return Pack(name, end, placed, frozenset(gone)), [piece for piece in pieces if len(piece)]


def index_length(head: bytes, size: int, where: str) -> int:
    """Return the length of the index from the first bytes of a pack whose file has ``size`` bytes."""
    if len(head) < HEAD_BYTES:
        raise CorruptValueError(f"{where} is cut short: it has {size:,} bytes, less than a head")
    _, length, _ = _HEAD.unpack_from(head)
    if HEAD_BYTES + length > size:
        raise CorruptValueError(f"{where} is damaged: an index of {length:,} bytes in a file of {size:,}")
    return int(length)


def read_index(name: PackName, beginning: bytes, size: int, where: str) -> Pack:
    """Read the index of a pack from its first bytes, or raise ``CorruptValueError`` or ``FormatError``."""
    length = index_length(beginning, size, where)
    magic, _, declared = _HEAD.unpack_from(beginning)
    (crc,) = _CRC.unpack_from(beginning, _HEAD.size)
    index = beginning[HEAD_BYTES : HEAD_BYTES + length]
    if len(index) < length or crc != zlib.crc32(index, zlib.crc32(beginning[: _HEAD.size])):
        raise CorruptValueError(f"{where} is damaged: its head and index do not agree with their checksum")
    format_name = magic.rstrip(b"\0").decode("ascii", "replace")
    if format_name != FORMAT:
        raise FormatError(f"{where} has format {format_name!r}, this version reads {FORMAT!r}")
    if size != declared:
        raise CorruptValueError(f"{where} has {size:,} bytes instead of {declared:,}")
    content = json.loads(index)
    values = {key: (at, count) for key, (at, count) in content["values"].items()}
    return Pack(name, size, values, frozenset(content["gone"]))


def newest_editions(names: Collection[PackName]) -> list[PackName]:
    """Return the packs that count, oldest first."""
    newest: dict[tuple[int, str], PackName] = {}
    for name in sorted(names):
        newest[name.number, name.token] = name
    return sorted(newest.values())


def live_keys(packs: Sequence[Pack]) -> dict[str, Pack]:
    """Return which pack holds each key that is there; packs come oldest first."""
    homes: dict[str, Pack] = {}
    for pack in packs:
        for key in pack.gone:
            homes.pop(key, None)
        for key in pack.values:
            homes[key] = pack
    return homes


def needless(packs: Sequence[Pack]) -> list[Pack]:
    """Return the packs that can go, oldest first; so removed, no older value comes to light in between.

    A pack without a live value is needed while it is the newest to take a key away that an older pack still holds.
    """
    newest = {key: pack for pack in packs for key in pack.mentions}
    unneeded: list[Pack] = []
    held: set[str] = set()
    for pack in packs:
        last_word = {key for key in pack.mentions if newest[key] is pack}
        if last_word.isdisjoint(pack.values) and last_word.isdisjoint(held):
            unneeded.append(pack)
        else:
            held |= pack.values.keys()
    return unneeded


def removable(packs: Sequence[Pack], keys: Collection[str]) -> list[Pack]:
    """Return the packs that go with ``keys``, oldest first, and uncover nothing if nobody notes them as gone."""
    without = needless([*packs, Pack(_LAST, 0, {}, frozenset(keys))])
    old: list[Pack] = []
    held: set[str] = set()
    for pack in packs:
        if pack in without and pack.mentions.isdisjoint(held):
            old.append(pack)
        else:
            held |= pack.values.keys()
    return old


def _index(places: Mapping[str, PackPlace], gone: Collection[str]) -> bytes:
    return json.dumps({"values": places, "gone": sorted(gone)}, separators=(",", ":")).encode()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
