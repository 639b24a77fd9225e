"""What a checkpoint has to write: the tuples that came in since the last one and still count.

A slot's durable state is a list of values, newest first, like its pages in host memory. A checkpoint puts one value in
front. A value of which nothing counts any more leaves the list, and what has merely lost its older tuples stays as it
is. Where keys slide at different speeds, values fill up with tuples that no longer count; once these are two thirds of
everything, the values that are mostly dead are written anew without them. So on average no more than half as much again
is written as comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.state.checkpoints.groups import cut, encode, put_together
from riprap.state.checkpoints.index import Came, Index, Reckoning, uses
from riprap.state.checkpoints.manifest import Saved
from riprap.state.windows import align, held_of, merge, ranges, remake_page, window_of

# Of a slot's tuples and rows in the store, at most so many to one that counts; few are never worth cleaning up.
_MOST_DEAD = 3
_NOT_WORTH = 4096
# More values than this are too many to name in every manifest: the smallest neighbours become one.
_MOST_VALUES = 64
_MERGED_AT_ONCE = 32
# Pages smaller than this are put together before they are cut.
_SMALL = 1 << 18


@dataclass(frozen=True, slots=True)
class Fresh:
    """A page that came in since the last checkpoint, between two times, and how many tuples that was if the page does
    not say. With no time in between it is state of which nobody knows when it came in; ``came`` may then be of before,
    ``over`` so many seconds."""

    page: pa.RecordBatch
    since: float
    until: float
    came: Came | None = None
    over: float | None = None

    @property
    def counted(self) -> bool:
        return self.until > self.since or self.over is not None


@dataclass(frozen=True, slots=True)
class Kept:
    """A value of the durable state, what its rows are, and how many tuples came in between its times."""

    saved: Saved
    index: Index
    came: Came


Load = Callable[[Saved], Sequence[pa.RecordBatch]]
Seal = Callable[[pa.Buffer], str | None]


def no_seal(data: pa.Buffer) -> None:
    """Leave a value unsealed."""


@dataclass(slots=True)
class SlotState:
    """The durable state of a slot for a range of buckets, as a list of values, newest first."""

    buckets: tuple[int, int]
    group: int | None
    kept: list[Kept]
    seal: Seal = no_seal

    def advance(self, fresh: Sequence[Fresh], load: Load) -> tuple[SlotState, dict[str, pa.Buffer]]:
        """Return the state with pages that came in, newest first, and the values it takes to store it."""
        indexes = [Index.of(f.page) for f in fresh]
        used = uses([*indexes, *(k.index for k in self.kept)])
        living = [f for f, use in zip(fresh, used[: len(fresh)], strict=True) if use.needed]
        kept = [k for k, use in zip(self.kept, used[len(fresh) :], strict=True) if use.needed]
        written: dict[str, pa.Buffer] = {}
        unsaved: dict[str, Sequence[pa.RecordBatch]] = {}
        if living:
            pages = _together([f.page for f in living])
            # What no longer counts came in too.
            counts = [f.came or Came.of(index) for f, index in zip(fresh, indexes, strict=True) if f.counted]
            times = min(f.since for f in fresh), max(f.until for f in fresh)
            over = max((f.over for f in fresh if f.over is not None), default=None)
            new, data = self._make(pages, Came.over(counts), *times, over)
            unsaved[new.saved.name] = pages
            written[new.saved.name] = data
            kept = [new, *kept]
        cleaned, values = self._clean(kept, lambda saved: unsaved.get(saved.name) or load(saved))
        # A value that was made and cleaned up at once need not be stored.
        named = {k.saved.name for k in cleaned}
        values = {name: data for name, data in {**written, **values}.items() if name in named}
        return replace(self, kept=cleaned), values

    def _make(
        self,
        pages: Sequence[pa.RecordBatch],
        came: Came,
        since: float,
        until: float,
        over: float | None = None,
    ) -> tuple[Kept, pa.Buffer]:
        value = encode([cut(page, self.group) for page in pages], came)
        saved = Saved(
            name=value.name,
            size=value.data.size,
            groups=value.groups,
            tuples=value.tuples,
            buckets=self.buckets,
            since=since,
            until=until,
            seal=self.seal(value.data),
            over=over,
        )
        return Kept(saved, Index.over([Index.of(page) for page in pages]), came), value.data

    def _clean(self, kept: list[Kept], load: Load) -> tuple[list[Kept], dict[str, pa.Buffer]]:
        """Write values anew where too little of them counts, or where there are too many."""
        span = _mostly_dead([k.index for k in kept]) or _crowded([k.saved.size for k in kept])
        if span is None:
            return kept, {}
        first, end = span
        reckoning = Reckoning.begin()
        for each in kept[:first]:
            reckoning.take(each.index)
        pages = [page for each in kept[first:end] for page in load(each.saved)]
        left = _trim(put_together(pages), reckoning, oldest=end == len(kept))
        if not left.num_rows:
            return [*kept[:first], *kept[end:]], {}
        until = max(k.saved.until for k in kept[first:end])
        since = min(k.saved.begin for k in kept[first:end])
        cleaned, data = self._make([left], Came.over([k.came for k in kept[first:end]]), since, until)
        return [*kept[:first], cleaned, *kept[end:]], {cleaned.saved.name: data}


def load_compiled() -> None:
    """Load, or compile, what a checkpoint runs: it takes half a second, once in a process."""
    align(np.empty(0, np.uint64), np.empty(0, np.uint64))
    ranges(np.empty(0, np.int64), np.empty(0, np.int64))


def _together(pages: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Put small neighbours together, newest first."""
    merged: list[pa.RecordBatch] = []
    for page in pages:
        if merged and merged[-1].nbytes + page.nbytes <= _SMALL:
            merged[-1] = merge(merged[-1], page)
        else:
            merged.append(page)
    return merged


def _mostly_dead(indexes: Sequence[Index]) -> tuple[int, int] | None:
    """Return the values [first, end) to write anew, if too little counts of all of them together."""
    used = uses(indexes)
    total, living = sum(i.weight for i in indexes), sum(u.weight for u in used)
    if total <= _MOST_DEAD * living + _NOT_WORTH:
        return None
    poor = [n for n, (i, u) in enumerate(zip(indexes, used, strict=True)) if 2 * u.weight <= i.weight]
    return poor[0], poor[-1] + 1


def _crowded(sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return the smallest neighbours, if there are too many values."""
    if len(sizes) <= _MOST_VALUES:
        return None
    sums = np.convolve(sizes, np.ones(_MERGED_AT_ONCE, np.int64), "valid")
    first = int(sums.argmin())
    return first, first + _MERGED_AT_ONCE


def _trim(page: pa.RecordBatch, newer: Reckoning, *, oldest: bool) -> pa.RecordBatch:
    """Leave out of a page what newer pages say no longer counts."""
    index = Index.of(page)
    _, known_row, row = align(newer.hashes, index.hashes)
    newer_row = np.full(len(index.hashes), -1)
    newer_row[row[row >= 0]] = known_row[row >= 0]
    renewed = newer_row >= 0
    left = np.where(renewed, newer.missing[newer_row] if len(newer.missing) else 0, index.held)
    lengths = np.minimum(index.lengths, left)
    rows = np.flatnonzero((lengths > 0) | (~renewed & ~(index.void & oldest)))
    offsets, tuples = window_of(page)
    kept = tuples.take(pa.array(ranges(offsets[1:][rows] - lengths[rows], lengths[rows])))
    # Of a key that newer pages tell of: what they still miss, which older pages may have too.
    held: Ints = np.where(renewed, left, held_of(page))
    return remake_page(page, rows, held[rows], lengths[rows], kept)
