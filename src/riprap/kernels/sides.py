"""The two sides of a join during a batch: the rows of their windows, and the pages that say what they hold after it.

A kept tuple is the columns that expressions read, its time where its window is by time, and, where unmatched tuples are
put out, whether it has matched. The counter beside a window is the time of its key as far as it is known there: that of
the key is the greater of the two sides'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from riprap.arrays import Bools, Ints
from riprap.kernels.chunk import Chunk, struct_of
from riprap.kernels.extents import LONG_AGO
from riprap.kernels.given import Given
from riprap.kernels.history import History, line_up
from riprap.kernels.meetings import WIDTH, BothWindows, Rules
from riprap.state.keys import KeyTable
from riprap.state.windows import Contents, gather, make_page, ranges

_TIME, _MATCHED = "$time", "$matched"


@dataclass(frozen=True, slots=True)
class Side:
    """A port's rows, from number ``first`` on: its window's, then the batch's, key by key; a window of size 0 has none.

    ``columns`` are along the rows, and so are ``time`` and ``matched``, which tell of the rows that were held before.
    """

    first: int
    columns: Mapping[str, pa.Array]
    rows: int
    place: Ints
    history: History | None = None
    old: Contents | None = None
    time: Ints | None = None
    matched: Bools | None = None

    @classmethod
    def of(
        cls,
        rules: Rules,
        kept: Collection[str],
        port: int,
        first: int,
        chunk: Chunk,
        touched: Ints,
        keys: KeyTable,
        given: Given,
    ) -> Side:
        """Take up a port's window of the touched ``keys`` and put the batch's tuples behind it, key by key."""
        columns = {c: chunk.columns[c] for c in kept}
        if rules.empty[port]:
            return cls(first, columns, chunk.rows, np.arange(first, first + chunk.rows))
        extra = {
            **({_TIME: pa.array(np.zeros(chunk.rows, np.int64))} if rules.by_time[port] else {}),
            **({_MATCHED: pa.array(np.zeros(chunk.rows, bool))} if rules.outer[port] else {}),
        }
        new = struct_of({**columns, **extra}, chunk.rows)
        old = gather(given.pages.get(str(port), ()), keys, new.type)
        history = line_up(chunk.code, touched, len(given.keys), old)
        numbers = {
            name: history.line_up_numbers(
                old.tuples.field(name).to_numpy(zero_copy_only=False), column.to_numpy(zero_copy_only=False)
            )
            for name, column in extra.items()
        }
        return cls(
            first,
            {c: history.line_up(old.tuples.field(c), new.field(c)) for c in columns},
            len(history.order),
            history.place + first if first else history.place,
            history,
            old,
            numbers.get(_TIME),
            numbers.get(_MATCHED),
        )


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of the touched ``keys``; ``windows`` and ``matched`` (which rows have) change as a batch is played."""

    left: Side
    right: Side
    touched: Ints
    keys: KeyTable
    windows: BothWindows
    matched: Bools
    _now: Ints

    @classmethod
    def of(
        cls,
        rules: Rules,
        kept: tuple[Collection[str], Collection[str]],
        chunks: tuple[Chunk, Chunk],
        given: Given,
        *,
        wide: bool,
    ) -> Sides:
        """Take up both windows of the keys that a batch touches: of all keys, where it is ``wide``.

        ``kept`` names the columns that are kept with the tuples of each side.
        """
        keys = len(given.keys)
        counts = sum(np.bincount(c.code, minlength=keys) for c in chunks)
        touched = np.arange(keys) if wide else np.flatnonzero(counts)
        mine = given.keys.take(touched)
        left = Side.of(rules, kept[0], 0, 0, chunks[0], touched, mine, given)
        right = Side.of(rules, kept[1], 1, left.rows, chunks[1], touched, mine, given)
        held, now = np.zeros((keys, WIDTH), np.int64), np.full(len(touched), LONG_AGO)
        time, matched = np.empty(left.rows + right.rows, np.int64), np.zeros(left.rows + right.rows, bool)
        for port, side in enumerate((left, right)):
            if side.history is None or side.old is None:
                continue
            held[touched, 2 * port] = side.history.starts[:-1] + side.first
            held[touched, 2 * port + 1] = side.history.fresh + side.first
            now = np.maximum(now, side.old.counters[:, 0] ^ LONG_AGO)
            rows = slice(side.first, side.first + side.rows)
            if side.time is not None:
                time[rows] = side.time
            if side.matched is not None:
                matched[rows] = side.matched
        place = np.concatenate([left.place, right.place])
        windows = BothWindows(held=held, time=time, place=place, has_null=given.keys.has_null)
        windows.now[touched] = now
        return cls(left, right, touched, mine, windows, matched, now)

    def pages(self, rules: Rules) -> dict[str, pa.RecordBatch]:
        """Make the pages that say what the windows hold now, of the sides where that is news."""
        # A clock's time is no key's own.
        now = self._now if rules.clocked else self.windows.now[self.touched]
        both = self.left.history is not None and self.right.history is not None
        found = {}
        for port, side in enumerate((self.left, self.right)):
            page = self._page(port, side, now, alone=not both)
            if page is not None:
                found[str(port)] = page
        return found

    def _page(self, port: int, side: Side, now: Ints, *, alone: bool) -> pa.RecordBatch | None:
        """Write what came in; of a key with an old tuple that has matched since, all that is held."""
        if side.history is None or side.old is None:
            return None
        starts, fresh = side.history.starts[:-1], side.history.fresh
        low, high = (self.windows.held[self.touched, 2 * port + end] - side.first for end in (0, 1))
        since = np.maximum(low, fresh)
        if side.matched is not None:
            mine = self.matched[side.first : side.first + side.rows]
            news = np.flatnonzero(mine & ~side.matched)
            key = np.searchsorted(starts, news, "right") - 1
            rewritten = key[(news >= low[key]) & (news < fresh[key])]
            since[rewritten] = low[rewritten]
        # A tuple that told a later time is held, and so its side is written; if it has a page.
        later = (now != self._now) & alone
        written = np.flatnonzero((high > since) | (high - low != side.old.lengths) | later)
        if not len(written):
            return None
        count = (high - since)[written]
        rows = ranges(since[written], count)
        index = pa.array(rows)
        columns = {c: column.take(index) for c, column in side.columns.items()}
        if side.time is not None:
            columns[_TIME] = pa.array(self.windows.time[rows + side.first])
        if side.matched is not None:
            columns[_MATCHED] = pa.array(self.matched[rows + side.first])
        offsets = np.zeros(len(count) + 1, np.int64)
        np.cumsum(count, out=offsets[1:])
        counters = (now ^ LONG_AGO)[written, np.newaxis]
        contents = Contents(offsets, struct_of(columns, len(rows)), counters)
        return make_page(self.keys.take(written), contents, (high - low)[written])
