"""Turn the rows that arrive with a batch into chunks: keyed, cut down to some buckets, and in tuple order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.operators.chunk import Chunk
from riprap.state.keys import KeyTable, encode_keys

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one source as they were read: columns, and each row's position in the source."""

    columns: Mapping[str, pa.Array]
    position: Ints

    @property
    def rows(self) -> int:
        return len(self.position)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch's input: a chunk a source, the key table, and where each rank comes from."""

    chunks: Mapping[str, Chunk]
    keys: KeyTable
    source: npt.NDArray[np.int16]
    position: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the stage needs to know of a source: the columns of its key, and its ordering column."""

    name: str
    key: tuple[str, ...]
    ordering: str | None = None


def arrive(
    entries: Sequence[Entry], rows: Mapping[str, Rows], span: tuple[int, int] | None = None, buckets: int = 1
) -> Arrival:
    """Key the rows, keep those of buckets ``span[0]`` to ``span[1]`` (all, if None), and rank them.

    The order is the ordering column where there is one, then source, then position. Rows of equal position keep the
    order they were read in.
    """
    key_columns = [
        _concatenate([rows[e.name].columns[e.key[i]] for e in entries]) for i in range(len(entries[0].key))
    ]
    counts = [rows[e.name].rows for e in entries]
    keys, code = encode_keys(key_columns, sum(counts))
    source = np.repeat(np.arange(len(entries), dtype=np.int16), counts)
    position = np.concatenate([rows[e.name].position for e in entries]) if entries else np.empty(0, np.int64)
    mine = None
    if span is not None and (span[1] - span[0]) < buckets:
        low, high = keys.span(*span, buckets)
        mine = np.flatnonzero((code >= low) & (code < high))
        keys, code = keys.slice(low, high), (code[mine] - low).astype(np.int32)
        source, position = source[mine], position[mine]
    order = _order(entries, rows, source, position, mine)
    if order is not None:
        position, source = position[order], source[order]
    chunks = {}
    first = 0
    rank = np.arange(len(position))
    place = rank if order is None else _inverse(order)
    for entry in entries:
        read = rows[entry.name]
        end = first + read.rows
        chosen = None if mine is None else mine[(mine >= first) & (mine < end)] - first
        here = slice(first, end) if mine is None else np.flatnonzero((mine >= first) & (mine < end))
        chunks[entry.name] = _chunk(read, chosen, place[here], code[here])
        first = end
    return Arrival(chunks, keys, source, position)


def _chunk(read: Rows, chosen: Ints | None, rank: Ints, code: npt.NDArray[np.int32]) -> Chunk:
    columns = read.columns
    if chosen is not None:
        index = pa.array(chosen)
        columns = {n: c.take(index) for n, c in columns.items()}
    chunk = Chunk(columns, rank, code)
    if len(rank) > 1 and np.any(rank[1:] < rank[:-1]):
        chunk = chunk.take(np.argsort(rank, kind="stable"))
    return chunk


def _order(
    entries: Sequence[Entry],
    rows: Mapping[str, Rows],
    source: npt.NDArray[np.int16],
    position: Ints,
    mine: Ints | None,
) -> Ints | None:
    """Return the sorting permutation, or None where the rows are in order already, as a single file's are."""
    sort_by: list[npt.NDArray[np.generic]] = [position, source]
    if entries[0].ordering is not None:
        ordering = _concatenate([rows[e.name].columns[e.ordering or ""] for e in entries])
        sort_by.append(order_numbers(ordering if mine is None else ordering.take(pa.array(mine))))
    elif len(position) < 2 or np.all((source[1:] > source[:-1]) | (position[1:] >= position[:-1])):
        return None
    return np.lexsort(sort_by)


def order_numbers(column: pa.Array) -> Ints:
    """Return integers that sort as an ordering column does, nulls first."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    numbers: Ints = column.fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
    return numbers


def _inverse(order: Ints) -> Ints:
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def _concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pa.concat_arrays(plain)
