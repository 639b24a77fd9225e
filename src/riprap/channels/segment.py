"""Segments: the files a channel's log is made of, one for each batch of the producer.

A segment is written under a temporary name and renamed, and never changed afterwards. Its name is its entry in the
index, which is the listing of the folder:

    <batch>-<first tuple>-<tuples>-<frontier>.segment
    0000000012-0000000006000000-0000500000-09223372036854775820.segment
    0000000012-0000000006000000-0000500000-09223372036854775820-0000000031.segment      with records of 31 windows

Tuples are numbered from 0 through the life of the channel. The frontier is written with 2**63 added, so that names
sort by it. The last is there where the writer records its windows (`riprap.state.footprints`). The file, format
``riprap-channel/1``:

    block, block, ...   each starts at a multiple of 64 bytes and is one Arrow IPC stream of one record batch
    footer              JSON, see below
    tail                CRC-32 of the footer (4 bytes), its length (4 bytes), both little-endian, and b"RIPRAPCH"

    {"format": "riprap-channel/1", "stream": "vwap", "schema": "ticker string, price double",
     "batch": 12, "position": 6000000, "rows": 500000, "frontier": 12, "previous": 11,
     "sources": {"feed": [6000000, 6500000]},               what the batch covers, as its record has it
     "ends": {"data": 6500000, "punctuation": 31},          how many rows of each kind the channel now has
     "windows": {"open": 12, "read": 5000},                 only where the writer records its windows: see there
     "blocks": [{"kind": "data",                            "punctuation" or "control"; a reader passes over that
                 "bucket": 0,                               -1: for every bucket
                 "position": 6000000, "count": 61234,       its rows' numbers among the rows of its kind
                 "offset": 0, "length": 5000000, "checksum": 3735928559}, ...]}

The rows of a block are in the order of their tags. A data block holds the stream's columns, the tag, and ``$row``
(int32): the tuple's place among the tuples of the batch, so that blocks are merged without comparing tags.
A segment is synced before it is renamed, and its name after that: whoever has seen it in the log can rely on it, also
after a power cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from riprap.errors import ChannelError, FormatError
from riprap.state.durable_files import fields_of, put_in_place

FORMAT = "riprap-channel/1"
SUFFIX = ".segment"
TEMPORARY = ".tmp"
DATA, PUNCTUATION, CONTROL = "data", "punctuation", "control"
EVERY_BUCKET = -1
# Below every frontier: where a log begins.
BEGIN = -(2**63) - 1
_NAME = re.compile(r"(\d{10,})-(\d{16,})-(\d{10,})-(\d{20})(?:-(\d{10,}))?\.segment")
_MAGIC = b"RIPRAPCH"
_TAIL = struct.Struct("<II8s")
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's file name says of it; of a writer that records its windows, how many ``records`` it has."""

    batch: int
    position: int
    rows: int
    frontier: int
    records: int | None = None

    @property
    def file(self) -> str:
        """Return the file name.

        >>> SegmentName(batch=0, position=0, rows=3, frontier=-1).file
        '0000000000-0000000000000000-0000000003-09223372036854775807.segment'
        """
        records = "" if self.records is None else f"-{self.records:010d}"
        frontier = f"{self.frontier + 2**63:020d}"
        return f"{self.batch:010d}-{self.position:016d}-{self.rows:010d}-{frontier}{records}{SUFFIX}"


@lru_cache(maxsize=1 << 16)
def parse_name(file: str) -> SegmentName | None:
    """Read a segment's file name, None if it is something else's."""
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    batch, position, rows, frontier = map(int, match.groups()[:4])
    records = match.group(5)
    return SegmentName(batch, position, rows, frontier - 2**63, None if records is None else int(records))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockInfo:
    """A block, as the footer lists it."""

    kind: str
    bucket: int
    position: int
    count: int
    offset: int
    length: int
    checksum: int

    def within(self, span: tuple[int, int] | None) -> bool:
        """Say whether the block has rows for a range of buckets."""
        return span is None or self.bucket == EVERY_BUCKET or span[0] <= self.bucket < span[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What a segment holds. ``previous`` is the frontier before it, None at the beginning of the log.

    ``windows`` is there of a writer that records its windows; of records that there are, not all need be counted.
    """

    stream: str
    schema: str
    batch: int
    position: int
    rows: int
    frontier: int
    previous: int | None
    sources: Mapping[str, Sequence[Any]]
    ends: Mapping[str, int]
    blocks: tuple[BlockInfo, ...]
    windows: Mapping[str, int] | None = None

    @property
    def name(self) -> SegmentName:
        records = None
        if self.windows is not None:
            records = sum(block.count for block in self.blocks if block.kind == CONTROL)
        return SegmentName(self.batch, self.position, self.rows, self.frontier, records)

    def to_bytes(self) -> bytes:
        """Return the end of a segment's file."""
        fields = {name: v for name, v in fields_of(self).items() if name != "windows" or v is not None}
        text = json.dumps({"format": FORMAT, **fields}, default=fields_of).encode()
        return text + _TAIL.pack(zlib.crc32(text), len(text), _MAGIC)

    @property
    def start(self) -> int:
        return BEGIN if self.previous is None else self.previous


@dataclass(frozen=True, slots=True)
class NewBlock:
    """Rows to be written as a block."""

    kind: str
    bucket: int
    rows: pa.RecordBatch


def write_segment(
    folder: Path,
    blocks: Sequence[NewBlock],
    *,
    stream: str,
    schema: str,
    batch: int,
    frontier: int,
    previous: int | None,
    sources: Mapping[str, Sequence[Any]],
    ends: Mapping[str, int],
    windows: Mapping[str, int] | None = None,
) -> Footer:
    """Write a segment whose rows are numbered on from ``ends``, the numbers the segment before ended with."""
    temporary = folder / f".{batch:010d}.{os.getpid()}{TEMPORARY}"
    first, numbers = ends.get(DATA, 0), dict(ends)
    entries: list[BlockInfo] = []
    try:
        with open(temporary, "wb", opener=_private) as file:
            for block in blocks:
                entries.append(_write_block(file, block, numbers.setdefault(block.kind, 0)))
                numbers[block.kind] += block.rows.num_rows
            footer = Footer(
                stream=stream,
                schema=schema,
                batch=batch,
                position=first,
                rows=numbers.get(DATA, 0) - first,
                frontier=frontier,
                previous=previous,
                sources={source: list(positions) for source, positions in sources.items()},
                ends=numbers,
                blocks=tuple(entries),
                windows=windows,
            )
            file.write(footer.to_bytes())
        put_in_place(temporary, folder / footer.name.file)
    except OSError as error:
        raise ChannelError(
            f"batch {batch} of stream '{stream}' cannot be written to {folder}: {error}. What was in the log is "
            "whole; remove the cause and start the producer again"
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return footer


def _write_block(file: BinaryIO, block: NewBlock, position: int) -> BlockInfo:
    data = _to_bytes(block.rows)
    entry = BlockInfo(
        kind=block.kind,
        bucket=block.bucket,
        position=position,
        count=block.rows.num_rows,
        offset=file.tell(),
        length=data.size,
        checksum=zlib.crc32(data),
    )
    file.write(data)
    file.write(bytes(-data.size % _ALIGNMENT))
    return entry


class SegmentFile:
    """A segment, mapped. The footer is verified when it is opened, a block before its rows are used."""

    def __init__(self, folder: Path, name: SegmentName) -> None:
        """Open a segment; that it is not there is a FileNotFoundError, for the caller to judge."""
        self._path, self._name = folder / name.file, name
        with pa.memory_map(str(self._path)) as file:
            self._data = file.read_buffer()
        self.footer = self._read_footer()

    def read(self, number: int) -> pa.RecordBatch:
        """Verify a block and return its rows, which stay mapped."""
        entry = self.footer.blocks[number]
        where = f"block {number} ({entry.kind}, bucket {entry.bucket}, {entry.length:,} bytes at {entry.offset:,})"
        if entry.offset + entry.length > self._data.size:
            raise self._damage(f"{where} reaches beyond its end")
        data = self._data.slice(entry.offset, entry.length)
        checksum = zlib.crc32(data)
        if checksum != entry.checksum:
            raise self._damage(f"{where} has checksum {checksum:08x}, not {entry.checksum:08x}")
        try:
            rows: pa.RecordBatch = pa.ipc.open_stream(data).read_next_batch()
        except (pa.ArrowInvalid, StopIteration) as error:
            raise self._damage(f"{where} is not one Arrow record batch: {error}") from error
        if rows.num_rows != entry.count:
            raise self._damage(f"{where} has {rows.num_rows} rows, not {entry.count}")
        return rows

    def _read_footer(self) -> Footer:
        size = self._data.size
        if size < _TAIL.size:
            raise self._damage(f"it has {size} bytes, fewer than the end of a segment takes")
        checksum, length, magic = _TAIL.unpack(self._data.slice(size - _TAIL.size))
        if magic != _MAGIC:
            raise self._damage("it does not end as a segment does")
        if length > size - _TAIL.size:
            raise self._damage(f"its footer would have {length:,} bytes, more than the file")
        text = self._data.slice(size - _TAIL.size - length, length)
        if zlib.crc32(text) != checksum:
            raise self._damage(f"its footer has checksum {zlib.crc32(text):08x}, not {checksum:08x}")
        data: dict[str, Any] = json.loads(text.to_pybytes())
        if data.pop("format", None) != FORMAT:
            raise FormatError(f"{self._path} is not of format {FORMAT}, the one this version reads")
        footer = Footer(**{**data, "blocks": tuple(BlockInfo(**block) for block in data["blocks"])})
        if footer.name != self._name:
            raise self._damage(f"its name is not its own, which is {footer.name.file}")
        return footer

    def _damage(self, what: str) -> ChannelError:
        return ChannelError(
            f"segment {self._path} is damaged: {what}. Restore the file; or let its readers skip the segment, whose "
            f"frontier is {self._name.frontier}, and lose its {self._name.rows:,} tuples"
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _to_bytes(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()
