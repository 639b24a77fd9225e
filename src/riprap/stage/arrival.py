"""Turn the rows that arrive with a batch into chunks: keyed, cut down to some buckets, and in tuple order.

A tuple's place in the order of everything is its *tag*, a list of whole numbers that compare one after the other. A
tuple of a source has three: its ordering number (or, without an ordering column, the batch), the source's number, and
its position. One that comes from another processing element brings its tag along, with the path it took there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.kernels.chunk import EVERY, Chunk, Marks, PathNumbers, concatenate_arrays, no_marks, order_numbers
from riprap.kernels.given import Ticks, hash_part
from riprap.state.keys import Codes, KeyTable, encode_keys, join_tables

Tags = tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows of one entry as they were read.

    A source's have a ``position``. Those of a channel have ``tags`` instead, and there may be punctuations among them,
    which are nothing but tags.
    """

    columns: Mapping[str, pa.Array]
    position: Ints
    tags: Tags = ()
    punctuations: Tags = ()

    @property
    def rows(self) -> int:
        return len(self.position)

    def take(self, which: Ints) -> ReadRows:
        """Return some of the rows, and all punctuations."""
        index = pa.array(which)
        return replace(
            self,
            columns={name: column.take(index) for name, column in self.columns.items()},
            position=self.position[which],
            tags=tuple(numbers[which] for numbers in self.tags),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What the stage needs to know of a stream that comes in.

    ``key`` is the columns of the stage's key, None where the stream has none of its own (its tuples stay together).
    ``tick`` is the time column of a clock, whose tuples go to every task. ``number`` is a source's among all of the
    application's, and None for a channel. ``root`` numbers where a channel's tags come from, where they come from
    several places that cannot be put in one order.
    """

    name: str
    key: tuple[str, ...] | None
    ordering: str | None = None
    tick: str | None = None
    number: int | None = None
    root: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch's input: a chunk an entry, each clock's ticks, the key table, and the tag of every rank.

    ``from_sources`` is whether tags begin with where in a source a tuple comes from. ``ends`` is the rank of the end of
    each key, where the input has ended.
    """

    chunks: Mapping[str, Chunk]
    ticks: Mapping[str, Ticks]
    keys: KeyTable
    tags: Tags
    from_sources: bool = True
    ends: Ints | None = None

    @property
    def marked(self) -> bool:
        """Whether ticks or punctuations came in, which concern every key."""
        return any(len(c.marks) for c in self.chunks.values()) or any(
            len(t.rank) for t in self.ticks.values()
        )

    def tags_at(self, rank: Ints, path: PathNumbers) -> Tags:
        """Return the tags of tuples, or of punctuations, by their ranks and paths."""
        return (*(numbers[rank] for numbers in self.tags), *path)

    def widen(self, tables: Iterable[KeyTable]) -> Arrival:
        """Return the same arrival with more keys in its table, those that have state."""
        keys, places = join_tables([self.keys, *tables])
        code_of = places[0]
        chunks = {
            n: replace(c, code=code_of[c.code]) if c.rows and n not in self.ticks else c
            for n, c in self.chunks.items()
        }
        return replace(self, chunks=chunks, keys=keys)

    def ended(self, frontier: int) -> Arrival:
        """Return an arrival without tuples as the end of the input: an end for each key, in the order of their hashes.

        The tag of an end is ``frontier``, which is beyond the tags of all tuples, and the key's hash.
        """
        keys = len(self.keys)
        numbers = [np.zeros(keys, np.int64) for _ in self.tags]
        numbers[0], numbers[-1] = np.full(keys, frontier, np.int64), hash_part(self.keys)
        return replace(self, tags=tuple(numbers), ends=np.arange(keys))


def arrive(
    entries: Sequence[Intake],
    rows: Mapping[str, ReadRows],
    *,
    batch: int = 0,
    aligned: bool = False,
    root: int = 3,
    span: tuple[int, int] | None = None,
    buckets: int = 1,
) -> Arrival:
    """Key the rows, keep those of buckets ``span[0]`` to ``span[1]`` (all, if None), and rank them.

    The order is the ordering column where there is one, then source, then position. Rows of a source with equal
    position keep the order they were read in. Of the tags that channels bring, the first ``root`` numbers make the
    rank, and the others are the path that a tuple took before: it goes on from there as if nothing had come between.
    """
    data = [e for e in entries if e.tick is None]
    read = {e.name: rows[e.name] for e in entries}
    keys, codes = key_rows(data, read)
    if span is not None and (span[1] - span[0]) < buckets:
        low, high = keys.span(*span, buckets)
        keys = keys.slice(low, high)
        for entry in data:
            # Those below the span wrap around to numbers above it, so that one look tells.
            code = codes[entry.name] - np.int32(low)
            wanted = np.flatnonzero(code.view(np.uint32) < high - low)
            if len(wanted) < len(code):
                code, read[entry.name] = code[wanted], read[entry.name].take(wanted)
            codes[entry.name] = code
    heads = {e.name: _channel_tags(e, read[e.name].tags, batch) for e in entries}
    marks = {e.name: _channel_tags(e, read[e.name].punctuations, batch) for e in entries}
    root += 2 if any(e.root is not None for e in entries) else 0
    ranks, mark_ranks, tags = _rank(entries, read, heads, marks, root, batch, aligned)
    chunks, ticks = {}, {}
    first = span is None or span[0] == 0
    for entry in entries:
        part, rank = read[entry.name], ranks[entry.name]
        if entry.tick is None:
            path, way = heads[entry.name][root:], marks[entry.name][root:]
            chunk = _chunk(part, rank, codes[entry.name], path)
            chunks[entry.name] = _marked(chunk, mark_ranks[entry.name], way)
            continue
        ticks[entry.name] = _ticks(part, rank, entry.tick)
        # Every task hears the ticks; to be passed on as tuples they must be with one only.
        chunk = _chunk(part, rank, np.full(part.rows, EVERY, np.int32), ())
        chunks[entry.name] = chunk if first else chunk.slice(0, 0)
    return Arrival(chunks, ticks, keys, tags, all(e.root is None for e in entries))


def key_rows(entries: Sequence[Intake], rows: Mapping[str, ReadRows]) -> tuple[KeyTable, dict[str, Codes]]:
    """Return the key table of all rows, and each entry's codes in it."""
    counts = [rows[e.name].rows for e in entries]
    keyed = next((e for e in entries if e.key is not None), None)
    kinds = [_plain(rows[keyed.name].columns[k].type) for k in keyed.key] if keyed and keyed.key else []
    columns = [
        concatenate_arrays(
            [
                rows[e.name].columns[e.key[i]] if e.key is not None else pa.nulls(rows[e.name].rows, kind)
                for e in entries
            ]
        )
        for i, kind in enumerate(kinds)
    ]
    keys, code = encode_keys(columns, sum(counts))
    parts = np.split(code, np.cumsum(counts)[:-1]) if entries else []
    return keys, {e.name: part for e, part in zip(entries, parts, strict=True)}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _rank(
    entries: Sequence[Intake],
    read: Mapping[str, ReadRows],
    tags: Mapping[str, Tags],
    marks: Mapping[str, Tags],
    root: int,
    batch: int,
    aligned: bool,
) -> tuple[dict[str, Ints], dict[str, Ints], Tags]:
    """Rank the rows and punctuations of all entries together; return also the tag of each rank."""
    from_channels = any(e.number is None for e in entries)
    nothing = (np.empty(0, np.int64),) * root
    parts = [
        tags[e.name][:root] if from_channels else _source_tags(e, read[e.name], batch, aligned)
        for e in entries
    ]
    marked = [marks[e.name][:root] or nothing for e in entries] if from_channels else []
    columns = tuple(_end_to_end(numbers) for numbers in zip(*parts, *marked, strict=True))
    order = None if _in_order(columns) else np.lexsort(columns[::-1])
    if order is not None:
        columns = tuple(c[order] for c in columns)
    rank = np.arange(len(columns[0]))
    if from_channels and len(rank):
        # Tuples of several streams may derive from one: they have the same tag, so they get the same rank.
        new = np.zeros(len(rank), bool)
        for column in columns:
            new[1:] |= column[1:] != column[:-1]
        new[0] = True
        rank = np.cumsum(new) - 1
        columns = tuple(c[new] for c in columns)
    if order is not None:
        unsorted = np.empty(len(order), np.int64)
        unsorted[order] = rank
        rank = unsorted
    split = np.split(rank, np.cumsum([len(numbers[0]) for numbers in (*parts, *marked)])[:-1])
    names = [e.name for e in entries]
    none = [np.empty(0, np.int64)] * len(names)
    return (
        dict(zip(names, split, strict=False)),
        dict(zip(names, split[len(names) :] or none, strict=True)),
        columns,
    )


def _end_to_end(numbers: Sequence[Ints]) -> Ints:
    return numbers[0] if len(numbers) == 1 else np.concatenate(numbers)


def _source_tags(entry: Intake, read: ReadRows, batch: int, aligned: bool) -> Tags:
    assert entry.number is not None
    own: Tags = (_throughout(entry.number, read.rows), read.position)
    if entry.ordering is not None:
        own = (order_numbers(read.columns[entry.ordering]), *own)
    return own if aligned else (_throughout(batch, read.rows), *own)


def _throughout(number: int, rows: int) -> Ints:
    """Return the same number for all rows, which takes no memory."""
    return np.broadcast_to(np.int64(number), rows)


def _channel_tags(entry: Intake, tags: Tags, batch: int) -> Tags:
    if entry.root is None or not tags:
        return tags
    return np.full(len(tags[0]), batch, np.int64), np.full(len(tags[0]), entry.root, np.int64), *tags


def _in_order(columns: Tags) -> bool:
    """Say whether tags are in order already, as a single file's are."""
    if len(columns[0]) < 2:
        return True
    telling = [column for column in columns if column.strides != (0,)]
    if len(telling) < 2:
        return all(bool((column[1:] >= column[:-1]).all()) for column in telling)
    falls = np.zeros(len(columns[0]) - 1, bool)
    equal = np.ones(len(falls), bool)
    for column in columns:
        falls |= equal & (column[1:] < column[:-1])
        equal &= column[1:] == column[:-1]
        if falls.any():
            return False
        if not equal.any():
            return True
    return True


def _chunk(read: ReadRows, rank: Ints, code: Codes, path: PathNumbers) -> Chunk:
    columns = read.columns
    if not _in_order((rank, *path)):
        order = np.lexsort((*path[::-1], rank))
        columns = {n: c.take(pa.array(order)) for n, c in columns.items()}
        rank, code, path = rank[order], code[order], tuple(p[order] for p in path)
    return Chunk(columns, rank, code, path, no_marks(len(path)))


def _marked(chunk: Chunk, rank: Ints, path: PathNumbers) -> Chunk:
    """Put punctuations among the tuples of a chunk."""
    if not len(rank):
        return chunk
    both = (
        np.concatenate([chunk.rank, rank]),
        *(np.concatenate(p) for p in zip(chunk.path, path, strict=True)),
    )
    order = np.lexsort(both[::-1])
    tuples = order < chunk.rows
    which = order[~tuples] - chunk.rows
    at: Ints = np.cumsum(tuples, dtype=np.int64)[~tuples]
    every = np.full(len(rank), EVERY, np.int32)
    return replace(chunk, marks=Marks(at, rank[which], every, tuple(p[which] for p in path)))


def _ticks(read: ReadRows, rank: Ints, column: str) -> Ticks:
    order = np.argsort(rank, kind="stable")
    return Ticks(rank[order], order_numbers(read.columns[column])[order])
