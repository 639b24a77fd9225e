"""Recorded sources as the input of a processing element: batches are chosen by row, and read by row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from riprap.compiler import Plan
from riprap.errors import LedgerError, RunError
from riprap.feeds.feed import Feed, open_feed
from riprap.feeds.pacing import pace_start
from riprap.feeds.reading import read_rows
from riprap.feeds.segments import FeedSegment
from riprap.graph.connectors import ReadBySpark
from riprap.graph.options import RunOptions
from riprap.kernels.chunk import order_numbers
from riprap.operators.source import Source
from riprap.runtime.folder import RunFolder
from riprap.runtime.offsets import END, FRONTIER, Offset, Piece, is_end
from riprap.runtime.positions import Positions
from riprap.runtime.settings import Setting
from riprap.stage.arrival import ReadRows
from riprap.state.ledger import MARK


def read_source(plan: Plan, name: str, start: int, end: int, segments: list[FeedSegment]) -> ReadRows:
    """Read the columns of a source that the stage needs."""
    source = plan.graph[name]
    assert isinstance(source, Source)
    return read_rows(segments, start, end, source, sorted(plan.needed[name]))


def recorded(plan: Plan) -> list[Source]:
    """Return the plan's sources that are read by row."""
    return [s for s in plan.graph.of_kind(Source) if not isinstance(s.connector, ReadBySpark)]


class SourceInflow:
    """Recorded sources: an offset is each one's number of rows."""

    def __init__(self, plan: Plan, setting: Setting, options: RunOptions, rates: Mapping[str, float]) -> None:
        self._plan = plan
        self._flush = options.flush
        self._folder = Path(setting.sources)
        self._rates = rates
        run = RunFolder(Path(setting.folder), options.clock)
        self._feeds: dict[str, Feed] = {}
        try:
            for source in recorded(plan):
                self._feeds[source.name] = open_feed(
                    source,
                    self._folder / source.name,
                    run.quarantine(source.name),
                    finite=options.interval is None,
                    batch_rows=options.most_rows,
                    tell=run.event,
                    by_file=source.name in plan.marked,
                )
            self._positions = {
                s.name: Positions(s, self._feeds[s.name].log)
                for s in recorded(plan)
                if s.position is not None
            }
        except BaseException:
            # What one holds, nobody else could take.
            self.close()
            raise

    def initial(self) -> Offset:
        offset: Offset = dict.fromkeys(self._feeds, 0) | ({FRONTIER: None} if self._plan.aligned else {})
        marks = {MARK: dict.fromkeys(self._plan.marked, 0)} if self._plan.marked else {}
        return offset | marks | ({END: 0} if self._flush else {})

    def fix(self) -> None:
        for feed in self._feeds.values():
            feed.fix()

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    def latest(self, start: Offset, rows: int) -> Offset:
        for name, feed in self._feeds.items():
            feed.find(start[name])
            if start[name] > feed.log.rows:
                raise LedgerError(
                    f"source '{name}' is on record up to row {start[name]:,}, and there are {feed.log.rows:,}: rows "
                    "that were read are gone. Put back its files, and the run's folder as it was, from a copy; or "
                    "start a new run"
                )
        end = self._next_or_end({name: at for name, at in start.items() if name != MARK}, rows)
        if self._plan.marked:
            end[MARK] = self._marks(start, end)
        for name, positions in self._positions.items():
            positions.check(start[name], end[name])
        for feed in self._feeds.values():
            feed.log.sync()
        return end

    def _marks(self, start: Offset, end: Offset) -> dict[str, int]:
        """Return the newest mark of each source that has any: how many rows it has up to the end of a file."""
        return {
            name: end[name]
            if end[name] > start[name] and self._feeds[name].ends_file(end[name])
            else start[MARK].get(name, 0)
            for name in self._plan.marked
        }

    def _next_or_end(self, start: Offset, rows: int) -> Offset:
        reached = {name: end for name, end in start.items() if name != END}
        further = self._next(reached, rows)
        if further != reached or not self._flush:
            return further | ({END: start[END]} if END in start else {})
        if start.get(END) or not all(
            feed.ended and start[name] == feed.log.rows for name, feed in self._feeds.items()
        ):
            return start
        beyond = {FRONTIER: start[FRONTIER] + 1} if start.get(FRONTIER) is not None else {}
        return {**start, **beyond, END: 1}

    def _next(self, start: Offset, rows: int) -> Offset:
        if not self._plan.aligned:
            return {name: self._upto(name, start[name], rows) for name in self._feeds}
        while True:
            # Tuples that have the same ordering number stay together, so a batch may have to be larger.
            ends = {name: self._upto(name, start[name], rows) for name in self._feeds}
            offset = self._align(start, ends)
            # More rows help only if it is the size of the batch that holds all up, and not a silent source.
            silent = any(ends[n] == start[n] and not self._exhausted(n, ends[n]) for n in ends)
            if offset != start or silent or all(ends[n] < start[n] + rows for n in ends):
                return offset
            rows *= 2

    def pieces(self, start: Offset, end: Offset, *, alone: bool = False) -> list[Piece]:
        plan = self._plan.alone if alone else self._plan
        for name, feed in self._feeds.items():
            feed.find(end[name])
        pieces = []
        for task in range(plan.tasks):
            sources = {}
            for name, feed in self._feeds.items():
                low, high = start[name], end[name]
                if not plan.keyed:
                    span = high - low
                    low, high = low + span * task // plan.tasks, low + span * (task + 1) // plan.tasks
                sources[name] = (low, high, feed.log.between(low, high))
            pieces.append(Piece(task, sources, {}, is_end(start, end), end.get(FRONTIER), alone))
        return pieces

    def commit(self, end: Offset) -> None:
        for name, feed in self._feeds.items():
            feed.release(end[name])

    def _upto(self, name: str, start: int, rows: int) -> int:
        rate = self._rates.get(name)
        if rate is not None:
            due = int((time.time() - pace_start(self._folder / name, rate)) * rate)
            rows = max(0, min(rows, due - start))
        return self._feeds[name].upto(start, rows)

    def _align(self, start: Offset, ends: Mapping[str, int]) -> Offset:
        """Cut all sources at one ordering number: the greatest that none of them can still have a tuple of."""
        numbers = {name: self._ordering(name, start, end) for name, end in ends.items()}
        open_ends = []
        for name in self._feeds:
            if self._exhausted(name, ends[name]):
                continue
            # Its next tuple may have the same number as its last, and one without new tuples may have any.
            newest = numbers[name][-1] if len(numbers[name]) else start[FRONTIER]
            open_ends.append(
                np.iinfo(np.int64).min if newest is None else int(newest) - bool(len(numbers[name]))
            )
        if open_ends:
            frontier = min(open_ends)
        elif any(len(n) for n in numbers.values()):
            frontier = max(int(n[-1]) for n in numbers.values() if len(n))
        else:
            return start
        cut = {name: start[name] + int(np.searchsorted(n, frontier, "right")) for name, n in numbers.items()}
        if all(cut[name] == start[name] for name in cut):
            return start
        return {**cut, FRONTIER: frontier}

    def _exhausted(self, name: str, end: int) -> bool:
        """Say whether a source has no more to come."""
        feed = self._feeds[name]
        return feed.over and end == feed.log.rows

    def _ordering(self, name: str, start: Offset, end: int) -> np.ndarray:
        """Return the ordering numbers of a source's next tuples; it must not fall behind what has been done."""
        source = self._plan.graph[name]
        assert isinstance(source, Source)
        assert source.ordering is not None
        first = start[name]
        rows = read_rows(
            self._feeds[name].log.between(first, end), first, end, source, [source.ordering], position=False
        )
        numbers = order_numbers(rows.columns[source.ordering])
        falls = np.flatnonzero(numbers[1:] < numbers[:-1]) + 1
        late = np.flatnonzero(numbers[:1] <= start[FRONTIER]) if start[FRONTIER] is not None else falls[:0]
        for row in (*late, *falls[:1]):
            raise RunError(
                f"source '{name}' ({source.location}): its ordering column '{source.ordering}' falls at row "
                f"{first + int(row)}, so tuples of several sources cannot be put in one order. Sort its input, or "
                "leave out ordering="
            )
        return numbers
