"""Cutting a page into groups, and putting several groups into one value of a store.

A group has some consecutive tuples of each key's window. It has its own digest: one that is damaged costs a key no more
than the tuples it has there. A value is

    Arrow schema | a record batch a group, newest first | a record batch: group, hash, held, length of every row

The last part tells what a damaged group held, so that what is left of a window can be told from what had left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

from riprap.state.checkpoints.index import Index
from riprap.state.windows import Ints, held_of, ranges, remake_page, window_of

# A page is cut into groups of about so many bytes where the user names no number of tuples.
_GROUP_BYTES = 32 << 20
_INDEX = pa.schema(
    [("group", pa.int32()), ("hash", pa.uint64()), ("held", pa.int64()), ("length", pa.int64())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a value, and its digest."""

    offset: int
    length: int
    digest: str
    tuples: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Groups as one run of bytes, named after its content."""

    name: str
    data: pa.Buffer
    header: int
    groups: tuple[Block, ...]
    index_block: Block
    indexes: tuple[Index, ...]


def cut(page: pa.RecordBatch, group: int | None) -> list[pa.RecordBatch]:
    """Cut a page into groups, newest first: of at most ``group`` tuples of each key, or by bytes.

    By bytes, all keys are cut into the same number of groups. So the group of a key is as large as its share of the
    input: one that has a thousand times the tuples of another has groups a thousand times as large.

    >>> from riprap.state.checkpoints.testing import page_of
    >>> [g.column("window").to_pylist() for g in cut(page_of({"a": [1, 2, 3], "b": [4]}), 2)]
    [[[{'v': 3}]], [[{'v': 1}, {'v': 2}], [{'v': 4}]]]
    """
    offsets, tuples = window_of(page)
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    parts = -(-page.nbytes // _GROUP_BYTES) if group is None else -(-longest // group)
    parts = max(1, min(parts, longest))
    if parts == 1:
        return [page]
    held, made = held_of(page), []
    for part in range(parts):
        if group is None:
            low, high = lengths * part // parts, lengths * (part + 1) // parts
        else:
            low, high = np.minimum(lengths, part * group), np.minimum(lengths, (part + 1) * group)
        # Rows without tuples say something too.
        rows = np.flatnonzero((high > low) | ((lengths == 0) & (part == 0)))
        kept = _slice(tuples, offsets[rows] + low[rows], (high - low)[rows])
        # As though the newer groups had not come yet.
        holds = np.maximum(held - (lengths - high), 0)[rows]
        made.append(remake_page(page, rows, holds, (high - low)[rows], kept))
    return made[::-1]


def _slice(tuples: pa.StructArray, starts: Ints, lengths: Ints) -> pa.StructArray:
    if len(starts) == 1:
        return tuples.slice(int(starts[0]), int(lengths[0]))
    return tuples.take(pa.array(ranges(starts, lengths)))


def encode(groups: Sequence[pa.RecordBatch]) -> Value:
    """Put groups, newest first, into a value."""
    schema = groups[0].schema.remove_metadata()
    header = schema.serialize()
    sink = pa.BufferOutputStream()
    sink.write(header)
    ends = [sink.tell()]
    for group in groups:
        sink.write(group.replace_schema_metadata(None).serialize())
        ends.append(sink.tell())
    indexes = tuple(Index.of(group) for group in groups)
    sink.write(_written(indexes).serialize())
    ends.append(sink.tell())
    data = sink.getvalue()
    tuples = [*(int(i.lengths.sum()) for i in indexes), 0]
    blocks = [
        Block(offset=low, length=high - low, digest=digest(data.slice(low, high - low)), tuples=many)
        for low, high, many in zip(ends[:-1], ends[1:], tuples, strict=True)
    ]
    name = name_of(header, blocks)
    return Value(name, data, len(header), tuple(blocks[:-1]), blocks[-1], indexes)


def name_of(header: pa.Buffer, blocks: Sequence[Block]) -> str:
    """Name a value after its content: its header, its groups, and its index."""
    return digest("".join([digest(header), *(b.digest for b in blocks)]).encode())


def digest(data: pa.Buffer | bytes) -> str:
    """Return the digest of some bytes. It finds damage; it does not keep out forgery."""
    return xxhash.xxh3_128_hexdigest(data)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came out of a value: its groups, newest first, with None for a damaged one; and what its rows were."""

    groups: tuple[pa.RecordBatch | None, ...]
    indexes: tuple[Index, ...] | None

    @property
    def whole(self) -> bool:
        return all(group is not None for group in self.groups)


def decode(data: pa.Buffer, name: str, header: int, groups: Sequence[Block], index: Block) -> Decoded:
    """Read a value back, block by block; what does not have its digest is damaged."""
    if data.size < header or name_of(data.slice(0, header), [*groups, index]) != name:
        # Without the schema in front no group can be read.
        return Decoded((None,) * len(groups), _indexes(data, index, len(groups)))
    try:
        schema = pa.ipc.read_schema(data.slice(0, header))
    except (pa.ArrowInvalid, OSError, ValueError):
        return Decoded((None,) * len(groups), _indexes(data, index, len(groups)))
    found = tuple(_read(data, block, schema) for block in groups)
    if all(group is not None for group in found):
        return Decoded(found, tuple(Index.of(group) for group in found))
    return Decoded(found, _indexes(data, index, len(groups)))


def _read(data: pa.Buffer, block: Block, schema: pa.Schema) -> pa.RecordBatch | None:
    if block.offset + block.length > data.size:
        return None
    part = data.slice(block.offset, block.length)
    if digest(part) != block.digest:
        return None
    try:
        return pa.ipc.read_record_batch(part, schema)
    except (pa.ArrowInvalid, OSError, ValueError):
        return None


def _written(indexes: Sequence[Index]) -> pa.RecordBatch:
    numbers = np.repeat(np.arange(len(indexes), dtype=np.int32), [len(i.hashes) for i in indexes])
    columns = [
        numbers,
        *(np.concatenate([getattr(i, n) for i in indexes]) for n in ("hashes", "held", "lengths")),
    ]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=_INDEX)


def _indexes(data: pa.Buffer, index: Block, groups: int) -> tuple[Index, ...] | None:
    rows = _read(data, index, _INDEX)
    if rows is None:
        return None
    group, hashes, held, lengths = (column.to_numpy() for column in rows.columns)
    ends = np.searchsorted(group, np.arange(groups + 1))
    return tuple(
        Index(hashes[low:high], held[low:high], lengths[low:high], np.zeros(high - low, bool))
        for low, high in pairwise(ends)
    )
