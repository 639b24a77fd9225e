"""What keys hold as queues: the oldest tuples are read, the others are counted and stay where they are.

An operator that holds much and lets little go with a batch then pays for what it lets go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.errors import FormatError
from riprap.machine_code import compiled
from riprap.state.keys import KeyTable
from riprap.state.windows import Contents, gather, ranges

_NO_TUPLE = pa.struct([])


@dataclass(frozen=True, slots=True)
class _Part:
    """What a page has of the keys' queues: those of key ``i`` are ``lengths[i]`` tuples from ``starts[i]`` on."""

    tuples: pa.StructArray
    starts: Ints
    lengths: Ints


@dataclass(frozen=True, slots=True)
class Queues:
    """How many tuples each of some keys holds, and its counters; the tuples are in parts, the oldest part first."""

    lengths: Ints
    counters: Ints
    _parts: tuple[_Part, ...]

    @classmethod
    def of(cls, pages: Sequence[pa.RecordBatch], keys: KeyTable, counters: int) -> Queues:
        """Find what keys hold, in pages from the newest to the oldest; an unknown key holds nothing and has zeros."""
        held, numbers = np.full(len(keys), -1), np.zeros((len(keys), counters), np.int64)
        wanted, parts = np.zeros(len(keys), np.int64), []
        for page in pages:
            key, row = _look_up(page, keys)
            first = held[key] < 0
            held[key[first]] = wanted[key[first]] = page.column("held").to_numpy()[row[first]]
            flat = page.column("counters").flatten().to_numpy()
            numbers[key[first]] = flat.reshape(page.num_rows, counters)[row[first]]
            window = page.column("window")
            end = window.offsets.to_numpy()[row + 1].astype(np.int64)
            starts, lengths = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
            lengths[key] = np.minimum(end - window.offsets.to_numpy()[row], wanted[key])
            starts[key] = end - lengths[key]
            wanted -= lengths
            parts.append(_Part(window.values, starts, lengths))
        if np.any(wanted > 0):
            raise FormatError(
                f"state pages lack {int(wanted[wanted > 0].sum())} tuples that they say are held"
            )
        return cls(np.maximum(held, 0), numbers, tuple(reversed(parts)))

    def due(self, field: str, limit: Ints) -> Ints:
        """Count each key's tuples whose number ``field``, which rises along a queue, is at most its limit."""
        counts = np.zeros(len(self.lengths), np.int64)
        for part in self._parts:
            if part.lengths.any():
                counts += _count(part.tuples.field(field).to_numpy(), part.starts, part.lengths, limit)
        return counts

    def first(self, counts: Ints, layout: pa.StructType) -> Contents:
        """Read so many of each key's tuples, from the oldest on."""
        left, parts = counts.copy(), []
        for part in self._parts:
            lengths = np.minimum(part.lengths, left)
            left -= lengths
            if lengths.any():
                parts.append((part.tuples.take(pa.array(ranges(part.starts, lengths))), lengths))
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        if not parts:
            return Contents(offsets, pa.array([], layout), self.counters)
        if len(parts) == 1:
            return Contents(offsets, parts[0][0], self.counters)
        bases = np.cumsum([0, *(len(tuples) for tuples, _ in parts[:-1])])
        starts = [base + np.cumsum(n) - n for base, (_, n) in zip(bases, parts, strict=True)]
        order = ranges(np.column_stack(starts).ravel(), np.column_stack([n for _, n in parts]).ravel())
        tuples = pa.concat_arrays([t for t, _ in parts]).take(pa.array(order))
        return Contents(offsets, tuples, self.counters)


def _look_up(page: pa.RecordBatch, keys: KeyTable) -> tuple[Ints, Ints]:
    """Return which of the keys a page has, and in which rows."""
    rows = page.num_rows
    none = pa.Array.from_buffers(_NO_TUPLE, 0, [None])
    # A page that has, of each key, only the row that it stands in, counted from 1.
    numbered = pa.RecordBatch.from_arrays(
        [
            page.column("hash"),
            page.column("key"),
            pa.array(np.zeros(rows, np.int64)),
            pa.FixedSizeListArray.from_arrays(pa.array(np.arange(1, rows + 1)), 1),
            pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), none),
        ],
        page.schema.names,
    )
    found = gather([numbered], keys, _NO_TUPLE).counters[:, 0]
    key = np.flatnonzero(found)
    return key, found[key] - 1


@compiled(types=("Array(i8, 1, 'C', True), i8[::1], i8[::1], i8[::1]",))
def _count(numbers, starts, lengths, limit):  # type: ignore[no-untyped-def]
    """Count, in runs of rising numbers, those that are at most the run's limit."""
    counts = np.empty(len(starts), np.int64)
    for k in range(len(starts)):
        counts[k] = np.searchsorted(numbers[starts[k] : starts[k] + lengths[k]], limit[k], "right")
    return counts
