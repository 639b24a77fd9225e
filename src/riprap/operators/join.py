"""Match tuples of two ports, key by key.

A tuple first enters its own port's window, then meets the other port's window of its key, oldest tuple first. A null
key meets nothing, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.graph.operators import Join
from riprap.operators.chunk import Chunk, concatenate, struct_of
from riprap.operators.functor import compute
from riprap.operators.history import line_up
from riprap.state.keys import KeyTable
from riprap.state.windows import gather, ranges

Ints = npt.NDArray[np.int64]
Page: TypeAlias = pa.RecordBatch | None

# Pairs are made and tested so many at a time: a bound on memory, large enough to hide the cost of a call.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """One port during a batch: its tuples, and the rows, key by key, from which the other port's tuples take matches.

    ``place`` finds the batch's own tuples among the rows; per key, ``starts`` is where its rows begin and ``fresh``
    where those that came in with the batch do.
    """

    chunk: Chunk
    rows: Mapping[str, pa.Array]
    place: Ints
    starts: Ints
    fresh: Ints
    size: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """Matches in order: the row on each side, and the tuple that made the match."""

    left: Ints
    right: Ints
    rank: Ints
    code: npt.NDArray[np.int32]

    def keep(self, mask: npt.NDArray[np.bool_]) -> Pairs:
        return Pairs(self.left[mask], self.right[mask], self.rank[mask], self.code[mask])


def run_join(
    operator: Join,
    chunks: tuple[Chunk, Chunk],
    keys: KeyTable,
    pages: tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]],
    needed: frozenset[str],
) -> tuple[Chunk, tuple[Page, Page]]:
    """Join a batch; return its matches, and each port's new state page (None where nothing is to be kept)."""
    left, right = (_without_null_keys(chunk, keys) for chunk in chunks)
    touched = np.flatnonzero(
        np.bincount(left.code, minlength=len(keys)) + np.bincount(right.code, minlength=len(keys))
    )
    left_side, left_page = _side(operator, 0, left, keys, touched, pages[0])
    right_side, right_page = _side(operator, 1, right, keys, touched, pages[1])
    pieces = [
        _finish(operator, left_side, right_side, pairs, needed) for pairs in _pairs(left_side, right_side)
    ]
    schema = pa.schema([f for f in operator.schema if f.name in needed])
    return concatenate(pieces, schema), (left_page, right_page)


def columns_of_port(operator: Join, port: int) -> frozenset[str]:
    """Return the columns of an input stream that a join reads."""
    read = {c for n in operator.select for c in n.expression.columns}
    read |= operator.where.columns if operator.where is not None else frozenset()
    prefix = operator.inputs[port] + "."
    return frozenset(c.removeprefix(prefix) for c in read if c.startswith(prefix))


def _without_null_keys(chunk: Chunk, keys: KeyTable) -> Chunk:
    if not keys.has_null.any():
        return chunk
    return chunk.take(np.flatnonzero(~keys.has_null[chunk.code]))


def _side(
    operator: Join, port: int, chunk: Chunk, keys: KeyTable, touched: Ints, pages: Sequence[pa.RecordBatch]
) -> tuple[Side, Page]:
    size = operator.windows[port].tuples
    columns = {c: chunk.columns[c] for c in sorted(columns_of_port(operator, port))}
    if size == 0:
        nothing = np.zeros(len(keys), np.int64)
        return Side(chunk, columns, np.arange(chunk.rows), nothing, nothing, 0), None
    new = struct_of(columns, chunk.rows)
    old = gather(pages, keys.take(touched), size, new.type)
    history = line_up(chunk.code, touched, len(keys), old)
    rows = {c: history.line_up(old.tuples.field(i), new.field(i)) for i, c in enumerate(columns)}
    starts, fresh = history.start_of(len(keys))
    page = history.page(keys, new, size) if chunk.rows else None
    return Side(chunk, rows, history.place, starts, fresh, size), page


def _pairs(left: Side, right: Side) -> Iterator[Pairs]:
    """Find who meets whom, some at a time."""
    side, row, start, length = _meetings(
        left.chunk.rank, left.chunk.code, left.starts, left.fresh, left.size,
        right.chunk.rank, right.chunk.code, right.starts, right.fresh, right.size,
    )  # fmt: skip
    cut = np.cumsum(length) // _PAIRS_AT_ONCE
    for part in np.split(np.arange(len(side)), np.flatnonzero(np.diff(cut)) + 1):
        if not len(part):
            continue
        mine, from_left, match = row[part], side[part] == 0, start[part]
        if length[part].max() > 1:
            mine, from_left = np.repeat(mine, length[part]), np.repeat(from_left, length[part])
            match = ranges(match, length[part])
        if not from_left.any():
            yield Pairs(match, right.place[mine], right.chunk.rank[mine], right.chunk.code[mine])
        elif from_left.all():
            yield Pairs(left.place[mine], match, left.chunk.rank[mine], left.chunk.code[mine])
        else:
            pairs = [np.empty(len(mine), np.int64) for _ in range(3)]
            code = np.empty(len(mine), np.int32)
            for own, mask, (here, there) in ((left, from_left, (0, 1)), (right, ~from_left, (1, 0))):
                pairs[here][mask], pairs[there][mask] = own.place[mine[mask]], match[mask]
                pairs[2][mask], code[mask] = own.chunk.rank[mine[mask]], own.chunk.code[mine[mask]]
            yield Pairs(pairs[0], pairs[1], pairs[2], code)


def _finish(operator: Join, left: Side, right: Side, pairs: Pairs, needed: frozenset[str]) -> Chunk:
    """Test the pairs and compute the result columns of those that pass."""
    if operator.where is not None:
        columns = _columns(operator, left, right, pairs, operator.where.columns)
        passed = pc.fill_null(operator.where.evaluate(columns, len(pairs.rank)), False)
        pairs = pairs.keep(passed.to_numpy(zero_copy_only=False))
    read = frozenset(c for n in operator.select if n.name in needed for c in n.expression.columns)
    chunk = Chunk(_columns(operator, left, right, pairs, read), pairs.rank, pairs.code)
    return chunk.with_columns(compute(operator.select, chunk, needed))


def _columns(
    operator: Join, left: Side, right: Side, pairs: Pairs, names: frozenset[str]
) -> dict[str, pa.Array]:
    columns = {}
    for stream, side, rows in (
        (operator.inputs[0], left, pairs.left),
        (operator.inputs[1], right, pairs.right),
    ):
        index = pa.array(rows)
        for name, column in side.rows.items():
            if f"{stream}.{name}" in names:
                columns[f"{stream}.{name}"] = column.take(index)
    return columns


@numba.njit(cache=True)
def _meetings(  # type: ignore[no-untyped-def]
    l_rank, l_code, l_start, l_fresh, l_size, r_rank, r_code, r_start, r_fresh, r_size
):
    total = len(l_rank) + len(r_rank)
    side = np.empty(total, np.int8)
    row = np.empty(total, np.int64)
    start = np.empty(total, np.int64)
    length = np.empty(total, np.int64)
    l_next, r_next = l_fresh.copy(), r_fresh.copy()
    i = j = found = 0
    while i < len(l_rank) or j < len(r_rank):
        # The lower port goes first when both tuples derive from one source tuple.
        if j == len(r_rank) or (i < len(l_rank) and l_rank[i] <= r_rank[j]):
            key = l_code[i]
            l_next[key] += 1
            low, high = max(r_start[key], r_next[key] - r_size), r_next[key]
            if r_size > 0 and high > low:
                side[found], row[found], start[found], length[found] = 0, i, low, high - low
                found += 1
            i += 1
        else:
            key = r_code[j]
            r_next[key] += 1
            low, high = max(l_start[key], l_next[key] - l_size), l_next[key]
            if l_size > 0 and high > low:
                side[found], row[found], start[found], length[found] = 1, j, low, high - low
                found += 1
            j += 1
    return side[:found], row[:found], start[:found], length[:found]
