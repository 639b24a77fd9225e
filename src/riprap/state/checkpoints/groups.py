"""Cutting a page into groups, and putting several groups into one value of a store.

A group has some consecutive tuples of each key's window. It has its own digest: one that is damaged costs a key no more
than the tuples it has there. A value is

    table | Arrow schema | a record batch a group, newest first | index | counts | the table again

The table has the length, the digest and the tuples of each part, and the value is named after it; without it nothing
could be read, hence twice. The index is a record batch with the group, hash, held and length of every row. It tells
what a damaged group held, so that what is left of a window can be told from what had left it. The counts, by hash, say
how many tuples came in of each key, of which the groups may have fewer: that is the key's rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import xxhash

from riprap.arrays import Ints
from riprap.state.checkpoints.index import Came, Index
from riprap.state.windows import held_of, merge, ranges, remake_page, window_of

# A page is cut into groups of about so many bytes where the user names no number of tuples.
_GROUP_BYTES = 32 << 20
_INDEX = pa.schema(
    [("group", pa.int32()), ("hash", pa.uint64()), ("held", pa.int64()), ("length", pa.int64())]
)
_ROW = np.dtype([("length", "<u8"), ("tuples", "<u8"), ("digest", "V16")])
_COUNTS = pa.schema([("hash", pa.uint64()), ("came", pa.int64())])
# Besides its groups a value has a schema, an index and counts.
_OTHERS = 3


@dataclass(frozen=True, slots=True)
class PageGroups:
    """The groups of a page: its rows, the oldest group first, and where each group begins and the last one ends."""

    rows: pa.RecordBatch
    bounds: Ints

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """List the groups, newest first."""
        for low, high in reversed(list(pairwise(self.bounds.tolist()))):
            yield self.rows.slice(low, high - low)

    def index(self) -> list[Index]:
        """Return the index of each group, newest first."""
        whole = Index.of(self.rows)
        return [
            Index(whole.hashes[low:high], whole.held[low:high], whole.lengths[low:high], whole.void[low:high])
            for low, high in reversed(list(pairwise(self.bounds.tolist())))
        ]


def cut(page: pa.RecordBatch, group: int | None) -> PageGroups:
    """Cut a page into groups: of at most ``group`` tuples of each key, or by bytes.

    By bytes, all keys that have enough are cut into the same number of groups. So the group of a key is as large as its
    share of the input: one that has a thousand times the tuples of another has groups a thousand times as large.
    """
    offsets, tuples = window_of(page)
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    parts = -(-page.nbytes // _GROUP_BYTES) if group is None else -(-longest // group)
    parts = max(1, min(parts, longest))
    if parts == 1:
        return PageGroups(page, np.array([0, page.num_rows]))
    # Each key has a row in as many groups as it needs; one without tuples says something too.
    many = np.minimum(parts, lengths) if group is None else -(-lengths // group)
    many = np.maximum(many, 1)
    row = np.repeat(np.arange(len(lengths)), many)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    if group is None:
        low, high = (lengths[row] * n // many[row] for n in (nth, nth + 1))
    else:
        low, high = (np.minimum(lengths[row], n * group) for n in (nth, nth + 1))
    by_group = np.lexsort((row, nth))
    row, nth, low, high = row[by_group], nth[by_group], low[by_group], high[by_group]
    # One key's tuples are in order already.
    kept = tuples.slice(int(offsets[0]), int(lengths.sum()))
    if len(lengths) > 1:
        kept = tuples.take(pa.array(ranges(offsets[row] + low, high - low)))
    # As though the newer groups had not come yet.
    holds = np.maximum(held_of(page)[row] - (lengths[row] - high), 0)
    remade = remake_page(page, row, holds, high - low, kept)
    return PageGroups(remade, np.searchsorted(nth, np.arange(parts + 1)))


def put_together(groups: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Make one page of groups, newest first."""
    if len(groups) == 1:
        return groups[0]
    if all(
        group.num_rows == 1 and group.column("hash")[0] == groups[0].column("hash")[0] for group in groups
    ):
        newest = groups[0]
        tuples = pa.concat_arrays([_tuples_of(group) for group in reversed(groups)])
        held, rows = Index.of(newest).held, np.zeros(1, np.int64)
        return remake_page(newest, rows, held, np.array([len(tuples)]), tuples)
    # By halves: every tuple is copied a few times, not once for each group.
    middle = len(groups) // 2
    return merge(put_together(groups[:middle]), put_together(groups[middle:]))


def _tuples_of(page: pa.RecordBatch) -> pa.StructArray:
    offsets, tuples = window_of(page)
    return tuples.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


@dataclass(frozen=True, slots=True)
class ValuePart:
    """A part of a value, and its digest."""

    offset: int
    length: int
    digest: bytes
    tuples: int

    def of(self, data: pa.Buffer) -> pa.Buffer | None:
        """Return the block's bytes, None if they are damaged."""
        if self.offset + self.length > data.size:
            return None
        part = data.slice(self.offset, self.length)
        return part if _digest(part) == self.digest else None


@dataclass(frozen=True, slots=True)
class Table:
    """The parts of a value, and whether both copies of the table say so."""

    header: ValuePart
    groups: tuple[ValuePart, ...]
    index: ValuePart
    counts: ValuePart
    twice: bool

    @classmethod
    def read(cls, data: pa.Buffer, name: str, groups: int) -> Self | None:
        """Find the table of a value of that name and so many groups; None if both copies of it are damaged."""
        size = (groups + _OTHERS) * _ROW.itemsize
        if data.size < size:
            return None
        copies = [data.slice(offset, size) for offset in (0, data.size - size)]
        sound = [copy for copy in copies if digest(copy) == name]
        if not sound:
            return None
        rows = np.frombuffer(sound[0], _ROW)
        ends = (np.cumsum(rows["length"], dtype=np.int64) + size).tolist()
        lengths, tuples = rows["length"].tolist(), rows["tuples"].tolist()
        header, *others = (
            ValuePart(end - length, length, checksum.tobytes(), many)
            for end, length, checksum, many in zip(ends, lengths, rows["digest"], tuples, strict=True)
        )
        *blocks, index, counts = others
        return cls(header, tuple(blocks), index, counts, len(sound) == len(copies))


def is_intact(data: pa.Buffer, name: str, groups: int) -> bool:
    """Say whether nothing at all of a value is damaged, not even what it could be read without."""
    table = Table.read(data, name, groups)
    if table is None or not table.twice:
        return False
    return all(
        block.of(data) is not None for block in (table.header, *table.groups, table.index, table.counts)
    )


@dataclass(frozen=True, slots=True)
class StoredValue:
    """Groups as one run of bytes, named after its content."""

    name: str
    data: pa.Buffer
    groups: int
    tuples: int


def encode(pages: Sequence[PageGroups], came: Came) -> StoredValue:
    """Put the groups of pages, newest page first, into a value."""
    indexes = [index for page in pages for index in page.index()]
    schema = pages[0].rows.schema.remove_metadata()
    groups = [g for page in pages for g in PageGroups(page.rows.cast(schema), page.bounds)]
    ends = [
        _written(indexes).serialize(),
        pa.RecordBatch.from_arrays([came.hashes, came.counts], schema=_COUNTS).serialize(),
    ]
    header = schema.serialize().size
    table = np.zeros(len(groups) + _OTHERS, _ROW)
    size = header + sum(map(pa.ipc.get_record_batch_size, groups)) + sum(end.size for end in ends)
    # Written where it stays: to make a large buffer larger is to have it twice, and fresh memory is dear.
    whole = np.empty(2 * table.nbytes + size, np.uint8)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(whole[table.nbytes :]))
    # Begins with the schema. It is not closed, which would write an end.
    stream = pa.ipc.new_stream(sink, schema)
    bounds = [0, header]
    for group in groups:
        stream.write_batch(group)
        bounds.append(sink.tell())
    for end in ends:
        sink.write(end)
        bounds.append(sink.tell())
    data = pa.py_buffer(whole)
    parts = (data.slice(table.nbytes + low, high - low) for low, high in pairwise(bounds))
    table["length"] = np.diff(bounds)
    table["tuples"][1 : 1 + len(indexes)] = [index.lengths.sum() for index in indexes]
    table["digest"] = np.frombuffer(b"".join(map(_digest, parts)), "V16")
    copy = table.tobytes()
    whole[: table.nbytes] = whole[-table.nbytes :] = np.frombuffer(copy, np.uint8)
    return StoredValue(digest(copy), data, len(indexes), int(table["tuples"].sum()))


def digest(data: pa.Buffer | bytes) -> str:
    """Return the digest of some bytes. It finds damage; it does not keep out forgery."""
    return xxhash.xxh3_128_hexdigest(data)


def _digest(data: pa.Buffer) -> bytes:
    return xxhash.xxh3_128_digest(data)


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """What came out of a value: its groups, newest first, with None for a damaged one; what its rows were, and how many
    tuples came in, as far as that can be told."""

    groups: tuple[pa.RecordBatch | None, ...]
    indexes: tuple[Index, ...] | None
    came: Came | None

    @property
    def whole(self) -> bool:
        return all(group is not None for group in self.groups)


def decode(data: pa.Buffer, name: str, groups: int) -> DecodedValue:
    """Read a value of so many groups back, part by part; what does not have its digest is damaged."""
    table = Table.read(data, name, groups)
    if table is None:
        return DecodedValue((None,) * groups, None, None)
    header = table.header.of(data)
    schema = pa.ipc.read_schema(header) if header is not None else None
    # Without the schema in front no group can be read.
    decoded = tuple(_read(data, block, schema) if schema is not None else None for block in table.groups)
    sound = all(group is not None for group in decoded)
    indexes = tuple(Index.of(group) for group in decoded) if sound else _indexes(data, table.index, groups)
    counts = _read(data, table.counts, _COUNTS)
    came = Came(*(column.to_numpy() for column in counts.columns)) if counts is not None else None
    return DecodedValue(decoded, indexes, came)


def _read(data: pa.Buffer, block: ValuePart, schema: pa.Schema) -> pa.RecordBatch | None:
    part = block.of(data)
    return None if part is None else pa.ipc.read_record_batch(part, schema)


def _written(indexes: Sequence[Index]) -> pa.RecordBatch:
    numbers = np.repeat(np.arange(len(indexes), dtype=np.int32), [len(i.hashes) for i in indexes])
    columns = [
        numbers,
        *(np.concatenate([getattr(i, n) for i in indexes]) for n in ("hashes", "held", "lengths")),
    ]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=_INDEX)


def _indexes(data: pa.Buffer, index: ValuePart, groups: int) -> tuple[Index, ...] | None:
    rows = _read(data, index, _INDEX)
    if rows is None:
        return None
    group, hashes, held, lengths = (column.to_numpy() for column in rows.columns)
    ends = np.searchsorted(group, np.arange(groups + 1))
    return tuple(
        Index(hashes[low:high], held[low:high], lengths[low:high], np.zeros(high - low, bool))
        for low, high in pairwise(ends)
    )
