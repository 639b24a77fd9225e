"""A piece of a stream inside a stage: columns, and the order and key of every tuple.

The order of a tuple is its rank and path. The *rank* is the place, among the stage's input tuples of this batch, of the
one it derives from. The *path* has the numbers that operators on the way added where one tuple made several: two tuples
compare by rank, then by path, number by number; a shorter path comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints
from riprap.state.keys import Codes

PathNumbers = tuple[Ints, ...]

# The code of a punctuation or tick that came in from outside the stage: it is for every key.
EVERY = np.iinfo(np.int32).max
# In a path: before any number, and after every number.
FIRST, LAST = -1, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Marks:
    """Punctuations among the tuples of a chunk: each stands before tuple ``at`` of it."""

    at: Ints
    rank: Ints
    code: Codes
    path: PathNumbers = ()

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: Ints | slice) -> Marks:
        """Return some of the marks."""
        return Marks(self.at[which], self.rank[which], self.code[which], tuple(p[which] for p in self.path))


def no_marks(depth: int = 0) -> Marks:
    """Return no punctuations."""
    none = np.empty(0, np.int64)
    return Marks(none, none, np.empty(0, np.int32), (none,) * depth)


_NO_MARKS = no_marks()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tuples in order, and the punctuations among them.

    ``rank`` and ``path`` are the tuples' order (together never falling); ``code`` is the place of each one's key in the
    batch's key table.
    """

    columns: Mapping[str, pa.Array]
    rank: Ints
    code: Codes
    path: PathNumbers = ()
    marks: Marks = field(default=_NO_MARKS)

    @property
    def rows(self) -> int:
        return len(self.rank)

    def take(self, rows: Ints) -> Chunk:
        """Return some of the tuples, given in rising order, and all punctuations."""
        index = pa.array(rows)
        marks = (
            replace(self.marks, at=np.searchsorted(rows, self.marks.at)) if len(self.marks) else self.marks
        )
        return Chunk(
            {n: c.take(index) for n, c in self.columns.items()},
            self.rank[rows],
            self.code[rows],
            tuple(p[rows] for p in self.path),
            marks,
        )

    def slice(self, start: int, stop: int) -> Chunk:
        """Return consecutive tuples, without copying, and the punctuations among them."""
        columns = {n: c.slice(start, stop - start) for n, c in self.columns.items()}
        marks = self.marks
        if len(marks):
            marks = marks.take(np.flatnonzero((marks.at >= start) & (marks.at <= stop)))
            marks = replace(marks, at=marks.at - start)
        path = tuple(p[start:stop] for p in self.path)
        return Chunk(columns, self.rank[start:stop], self.code[start:stop], path, marks)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Chunk:
        """Return the same tuples with other columns."""
        return replace(self, columns=columns)

    def without_marks(self) -> Chunk:
        """Return the tuples without the punctuations."""
        return replace(self, marks=no_marks(len(self.path)))

    def append(self, number: int) -> Chunk:
        """Add a number to the path of all."""
        marks = replace(self.marks, path=(*self.marks.path, np.full(len(self.marks), number)))
        return replace(self, path=(*self.path, np.full(self.rows, number)), marks=marks)

    def deepen(self, depth: int) -> Chunk:
        """Lengthen the path to ``depth`` numbers: the tuples come first of any with the same beginning."""
        more = depth - len(self.path)
        if more <= 0:
            return self
        marks = replace(self.marks, path=self.marks.path + (np.full(len(self.marks), FIRST),) * more)
        return replace(self, path=self.path + (np.full(self.rows, FIRST),) * more, marks=marks)


def empty_chunk(schema: pa.Schema, depth: int = 0) -> Chunk:
    """Return no tuples of a schema."""
    columns = {f.name: pa.array([], f.type) for f in schema}
    none = np.empty(0, np.int64)
    return Chunk(columns, none, np.empty(0, np.int32), (none,) * depth, no_marks(depth))


def concatenate(chunks: Sequence[Chunk], schema: pa.Schema, depth: int = 0) -> Chunk:
    """Put chunks of one schema, without punctuations, one after the other, with the columns that all of them have."""
    if not chunks:
        return empty_chunk(schema, depth)
    if len(chunks) == 1:
        return chunks[0]
    names = [n for n in chunks[0].columns if all(n in c.columns for c in chunks)]
    columns = {n: concatenate_arrays([c.columns[n] for c in chunks]) for n in names}
    rank = np.concatenate([c.rank for c in chunks])
    path = tuple(np.concatenate(parts) for parts in zip(*(c.path for c in chunks), strict=True))
    return Chunk(columns, rank, np.concatenate([c.code for c in chunks]), path, no_marks(len(path)))


def merge_streams(chunks: Sequence[Chunk]) -> Chunk:
    """Merge the streams of one port: by order, the earlier stream first where that is the same."""
    depth = max(len(c.path) for c in chunks)
    chunks = [c.deepen(depth) for c in chunks]
    filled = [c for c in chunks if c.rows or len(c.marks)]
    if len(filled) < 2:
        return filled[0] if filled else chunks[0]
    # Tuples and punctuations of every chunk as one sequence of elements, which is in order already.
    sequences = [_elements(c) for c in filled]
    order = _sort(
        np.concatenate([s.rank for s in sequences]),
        tuple(np.concatenate(parts) for parts in zip(*(s.path for s in sequences), strict=True)),
    )
    row = np.concatenate([s.row for s in sequences])
    which = np.repeat(np.arange(len(filled)), [len(s.row) for s in sequences])
    bases = np.cumsum([0, *(c.rows for c in filled)])
    tuples = row >= 0
    in_order = order[tuples[order]]
    together = concatenate([c.without_marks() for c in filled], pa.schema([]))
    merged = together.take(row[in_order] + bases[which[in_order]])
    if tuples.all():
        return merged
    return replace(merged, marks=_merged_marks(filled, row, which, order, tuples))


def _merged_marks(
    chunks: Sequence[Chunk], row: Ints, which: Ints, order: Ints, tuples: npt.NDArray[np.bool_]
) -> Marks:
    at: Ints = np.cumsum(tuples[order], dtype=np.int64)[~tuples[order]]
    first = np.cumsum([0, *(len(c.marks) for c in chunks)])
    picked = order[~tuples[order]]
    number = -row[picked] - 1 + first[which[picked]]
    path = tuple(np.concatenate(parts)[number] for parts in zip(*(c.marks.path for c in chunks), strict=True))
    rank = np.concatenate([c.marks.rank for c in chunks])[number]
    return Marks(at, rank, np.concatenate([c.marks.code for c in chunks])[number], path)


def places(chunks: Sequence[Chunk]) -> list[Ints]:
    """Number the tuples of several ports in the order they arrive: the lower port first where that is the same."""
    depth = max(len(c.path) for c in chunks)
    deep = [c.deepen(depth) for c in chunks]
    path = tuple(np.concatenate(parts) for parts in zip(*(c.path for c in deep), strict=True))
    order = _sort(np.concatenate([c.rank for c in deep]), path)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return np.split(place, np.cumsum([c.rows for c in chunks])[:-1])


def struct_of(columns: Mapping[str, pa.Array], rows: int) -> pa.StructArray:
    """Bundle columns as tuples; none at all makes tuples without values."""
    plain = {n: c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for n, c in columns.items()}
    if not plain:
        return pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.StructArray.from_arrays(list(plain.values()), list(plain))


def concatenate_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Put arrays one after the other, decoding where they are encoded differently."""
    if len(arrays) == 1:
        return arrays[0]
    if any(pa.types.is_dictionary(a.type) for a in arrays):
        arrays = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pa.concat_arrays(arrays)


def order_numbers(column: pa.Array) -> Ints:
    """Return integers that sort as an ordering or time column does, nulls first."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    numbers: Ints = column.fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
    return numbers


@dataclass(frozen=True, slots=True)
class _Elements:
    """Tuples and punctuations in one sequence: ``row`` is the tuple's, or -1 less the punctuation's number."""

    row: Ints
    rank: Ints
    path: PathNumbers


def _elements(chunk: Chunk) -> _Elements:
    marks = chunk.marks
    if not len(marks):
        return _Elements(np.arange(chunk.rows), chunk.rank, chunk.path)
    row = np.insert(np.arange(chunk.rows), marks.at, -1 - np.arange(len(marks)))
    rank = np.insert(chunk.rank, marks.at, marks.rank)
    return _Elements(
        row, rank, tuple(np.insert(p, marks.at, m) for p, m in zip(chunk.path, marks.path, strict=True))
    )


def _sort(rank: Ints, path: PathNumbers) -> Ints:
    if not path:
        return np.argsort(rank, kind="stable")
    return np.lexsort((*reversed(path), rank))
