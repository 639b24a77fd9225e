"""Which keys a page has rows for: enough to tell which of its tuples still count, without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from riprap.arrays import Bools, Ints
from riprap.state.hashing import Hashes, first_hash
from riprap.state.windows import align, counters_of, hashes_of, held_of, window_of


@dataclass(frozen=True, slots=True)
class Index:
    """The rows of a page, in order of hash: how many tuples each key holds in all, and how many of them are in the
    page. A *void* row says that its key has nothing at all."""

    hashes: Hashes
    held: Ints
    lengths: Ints
    void: Bools

    @classmethod
    def of(cls, page: pa.RecordBatch) -> Index:
        """Read a page's index off it."""
        offsets, _ = window_of(page)
        held = held_of(page)
        return cls(hashes_of(page), held, np.diff(offsets), (held == 0) & ~counters_of(page).any(axis=1))

    @classmethod
    def over(cls, parts: Sequence[Index]) -> Index:
        """Return the index of several pages taken as one, newest first."""
        return reduce(_put_under, parts)

    @property
    def weight(self) -> int:
        """Its tuples and rows: what it costs to write."""
        return int(self.lengths.sum()) + len(self.hashes)


@dataclass(frozen=True, slots=True)
class Came:
    """How many tuples of each key came in, in order of hash: of a window that is small, more than it ever holds."""

    hashes: Hashes
    counts: Ints

    @classmethod
    def of(cls, index: Index) -> Came:
        """Count the tuples in a page."""
        return cls(index.hashes, index.lengths)

    @classmethod
    def over(cls, parts: Sequence[Came]) -> Came:
        """Add up."""
        hashes = np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)])
        counts = np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts)])
        keys, place = np.unique(hashes, return_inverse=True)
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, place, counts)
        return cls(keys, total)

    def within(self, first_bucket: int, end_bucket: int, buckets: int) -> Came:
        """Return what is in some buckets."""
        low = np.searchsorted(self.hashes, first_hash(first_bucket, buckets))
        end = len(self.hashes)
        high = np.searchsorted(self.hashes, first_hash(end_bucket, buckets)) if end_bucket < buckets else end
        return Came(self.hashes[low:high], self.counts[low:high])


@dataclass(frozen=True, slots=True)
class Use:
    """What still counts of a page: so many tuples and rows. It is not needed if nothing would be missed."""

    tuples: int
    rows: int
    needed: bool

    @property
    def weight(self) -> int:
        return self.tuples + self.rows


@dataclass(slots=True)
class Reckoning:
    """How many tuples each key still misses, page after page, newest first."""

    hashes: Hashes
    missing: Ints

    @classmethod
    def begin(cls) -> Reckoning:
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64))

    def take(self, page: Index, *, oldest: bool = False) -> Use:
        """Take the next older page into account, and say what of it counts."""
        hashes, before, row = align(self.hashes, page.hashes)
        seen = before >= 0
        missing = np.zeros(len(hashes), np.int64)
        missing[seen] = self.missing[before[seen]]
        first = ~seen
        missing[first] = page.held[row[first]]
        here = row >= 0
        lengths = np.zeros(len(hashes), np.int64)
        lengths[here] = page.lengths[row[here]]
        live = np.minimum(missing, lengths)
        # A row that says its key has nothing matters while there are older pages.
        listed = first.copy()
        if oldest:
            listed[here] &= ~page.void[row[here]]
        self.hashes, self.missing = hashes, missing - live
        tuples, rows = int(live.sum()), int(listed.sum())
        return Use(tuples, rows, tuples > 0 or rows > 0)


def uses(pages: Sequence[Index]) -> list[Use]:
    """Say what of each page still counts, newest page first."""
    reckoning = Reckoning.begin()
    return [reckoning.take(page, oldest=page is pages[-1]) for page in pages]


def _put_under(newer: Index, older: Index) -> Index:
    hashes, old_row, new_row = align(older.hashes, newer.hashes)
    has_old, has_new = old_row >= 0, new_row >= 0
    held, lengths = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.int64)
    void = np.zeros(len(hashes), bool)
    for rows, has, page in ((old_row, has_old, older), (new_row, has_new, newer)):
        held[has], void[has] = page.held[rows[has]], page.void[rows[has]]
        lengths[has] += page.lengths[rows[has]]
    return Index(hashes, held, lengths, void)
