"""Match tuples of two ports, key by key.

A tuple first enters its own port's window, then meets the other port's window of its key, oldest tuple first. A null
key meets nothing, as in SQL. In an outer join a tuple that leaves its window unmatched is put out with nulls for the
other side; the left side's key then shows the key of whichever tuple there is, so that a bare key column is never null
for want of a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import normalise
from riprap.graph.operators import Join
from riprap.graph.operators.base import read_by
from riprap.machine_code import compiled
from riprap.operators.chunk import Chunk, Ints, concatenate, no_marks, order_numbers
from riprap.operators.extents import LONG_AGO
from riprap.operators.functor import compute
from riprap.operators.given import Given, Result, hash_part
from riprap.operators.meetings import Happenings, Leaves, Meetings, Rules, meet, pairs_of, pieces
from riprap.operators.sides import Side, Sides
from riprap.state.keys import KeyTable

# Pairs are made and tested so many at a time: a bound on memory, large enough to hide the cost of a call.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs in order, and unmatched rows among them, whose other side is -1: rows, event, and code of the key."""

    left: Ints
    right: Ints
    event: Ints
    code: npt.NDArray[np.int32]

    def keep(self, mask: npt.NDArray[np.bool_]) -> Matches:
        return Matches(self.left[mask], self.right[mask], self.event[mask], self.code[mask])


def run_join(operator: Join, given: Given) -> Result:
    """Join a batch: its matches, and each port's new state page."""
    left, right = (_that_count(operator, port, given) for port in (0, 1))
    happenings = Happenings.of(left, right, given.ticks)
    sides = Sides.of(operator, (left, right), given, wide=len(happenings.tick_time) > 0)
    meetings, leaves = meet(happenings, _rules(operator), sides.windows, _stamps(operator, left, right))
    needed = given.needed[operator.name]
    read = read_by(n for n in operator.select if n.name in needed)
    chunks = []
    for matches in _matches(operator, sides, happenings, meetings, leaves, given.keys):
        columns = _columns(operator, sides, matches, read, given.keys)
        chunk = Chunk(columns, matches.event, matches.code)
        chunks.append(chunk.with_columns(compute(operator.select, chunk, needed)))
    made = concatenate(chunks, operator.schema)
    return Result(outputs=(_in_order(made, happenings, given, operator.depth),), pages=sides.pages(operator))


def _that_count(operator: Join, port: int, given: Given) -> Chunk:
    """Leave out tuples that can do nothing: with a null key, unless they are to be put out as unmatched."""
    chunk, has_null = given.inputs[port].without_marks(), given.keys.has_null
    if operator.puts_out_unmatched(port) or not has_null.any():
        return chunk
    return chunk.take(np.flatnonzero(~has_null[chunk.code]))


def _rules(operator: Join) -> Rules:
    left, right = operator.windows
    return Rules(
        empty=(left.empty, right.empty),
        by_time=(operator.keeps_time(0), operator.keeps_time(1)),
        size=(left.tuples or left.time or 0, right.tuples or right.time or 0),
        outer=(operator.puts_out_unmatched(0), operator.puts_out_unmatched(1)),
        clocked=operator.clock is not None,
    )


def _stamps(operator: Join, left: Chunk, right: Chunk) -> Ints:
    """Return the time of every tuple as its column tells it; long ago where none does."""
    columns = [operator.time_column(port) for port in (0, 1)]
    if columns == [None, None]:
        return np.empty(0, np.int64)
    return np.concatenate(
        [
            np.full(chunk.rows, LONG_AGO) if column is None else order_numbers(chunk.columns[column])
            for chunk, column in zip((left, right), columns, strict=True)
        ]
    )


def _matches(
    operator: Join, sides: Sides, happenings: Happenings, meetings: Meetings, leaves: Leaves, keys: KeyTable
) -> Iterator[Matches]:
    """Test who met, some at a time; put what left unmatched in its place among the matches."""
    done = 0
    for which in pieces(meetings, _PAIRS_AT_ONCE):
        left, right, event = pairs_of(meetings, which, happenings, sides.windows)
        matches = Matches(left, right, event, happenings.code[happenings.source[event]])
        if operator.where is not None and len(event):
            columns = _columns(operator, sides, matches, operator.where.columns, keys)
            passed = pc.fill_null(operator.where.evaluate(columns, len(event)), False)
            matches = matches.keep(passed.to_numpy(zero_copy_only=False))
        if operator.outer != "inner":
            sides.matched[matches.left] = True
            sides.matched[matches.right] = True
            # What leaves before the next piece can match no more.
            until = meetings.event[which.stop : which.stop + 1]
            end = int(np.searchsorted(leaves.before, until, "right")[0]) if len(until) else len(leaves)
            matches = _with_unmatched(matches, leaves, np.arange(done, end), sides)
            done = end
        yield matches


def _with_unmatched(matches: Matches, leaves: Leaves, which: Ints, sides: Sides) -> Matches:
    which = which[~sides.matched[leaves.row[which]]]
    if not len(which):
        return matches
    at = np.searchsorted(matches.event, leaves.before[which])
    row = leaves.row[which]
    from_left = row < sides.right.first
    return Matches(
        np.insert(matches.left, at, np.where(from_left, row, -1)),
        np.insert(matches.right, at, np.where(from_left, -1, row)),
        np.insert(matches.event, at, leaves.event[which]),
        np.insert(matches.code, at, leaves.code[which]),
    )


def _columns(
    operator: Join, sides: Sides, matches: Matches, names: frozenset[str], keys: KeyTable
) -> dict[str, pa.Array]:
    """Return the columns of both sides that are read, as ``port.column``."""
    columns, code = {}, pa.array(matches.code)
    for port, side, rows in ((0, sides.left, matches.left), (1, sides.right, matches.right)):
        missing = rows < 0 if operator.outer != "inner" else None
        index = pa.array(rows - side.first if side.first else rows, mask=missing)
        for name in operator.columns_of_port(port):
            if f"{operator.names[port]}.{name}" not in names:
                continue
            of_key = keys.columns[operator.by.index(name)].take(code) if name in operator.by else None
            columns[f"{operator.names[port]}.{name}"] = _column(operator, port, side, name, index, of_key)
    return columns


def _column(operator: Join, port: int, side: Side, name: str, index: pa.Array, of_key: pa.Array) -> pa.Array:
    """Return a column of one side; ``index`` is null where that is missing."""
    own = side.columns[name].take(index) if name in side.columns else None
    if own is None:
        return of_key if port == 0 or not index.null_count else pc.if_else(index.is_null(), None, of_key)
    if port == 0 and name in operator.by and index.null_count:
        return pc.if_else(index.is_null(), of_key, normalise(own))
    return own


def _in_order(made: Chunk, happenings: Happenings, given: Given, depth: int) -> Chunk:
    """Give outputs, which say their event, the order of what made them."""
    number = happenings.source[made.rank]
    rank, path = happenings.rank[number], tuple(p[number] for p in happenings.path)
    if depth == 2:
        by_tick = number >= happenings.tuples
        path = (*path, np.where(by_tick, hash_part(given.keys)[made.code], 0))
    path = (*path, _index_among(made.rank, made.code))
    return Chunk(made.columns, rank, made.code, path, no_marks(len(path)))


@compiled(types=("i8[::1], i4[::1]",))
def _index_among(event, code):  # type: ignore[no-untyped-def]
    """Number the outputs that an event makes for a key from 0."""
    index = np.zeros(len(event), np.int64)
    for i in range(1, len(event)):
        if event[i] == event[i - 1] and code[i] == code[i - 1]:
            index[i] = index[i - 1] + 1
    return index
