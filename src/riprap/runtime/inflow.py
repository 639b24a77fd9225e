"""How a batch of a processing element is chosen and read: from recorded sources by row, from channels by frontier.

Both say how far there is input (an *offset*), cut a batch up into pieces for the tasks, and read a piece.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from riprap.channels import ChannelReader, Footer
from riprap.compiler import Plan
from riprap.errors import LedgerError, RunError
from riprap.feeds.feed import Feed, open_feed
from riprap.feeds.pacing import pace_start
from riprap.feeds.reading import read_rows
from riprap.feeds.segments import Segment
from riprap.graph.connectors import ReadBySpark
from riprap.graph.operators import Source
from riprap.graph.options import RunOptions
from riprap.operators.chunk import order_numbers
from riprap.runtime.folder import RunFolder
from riprap.runtime.positions import Positions
from riprap.runtime.settings import Setting
from riprap.stage.arrival import Rows
from riprap.state.ledger import Record

Offset = dict[str, Any]

# In the offset of sources that interleave by an ordering column: the ordering number up to which all are read.
FRONTIER = "$frontier"
# In the offset of finite input that is to be flushed: 1 once its end has been planned, which is a batch of its own.
END = "$end"
# Below every frontier: nothing is complete.
NOTHING_YET = -(2**63)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task reads: for each source rows from start to end, in these segments; for each root, frontiers.

    Or it reads nothing and puts out what is held at the end of the input, if ``ends``: at ``frontier``, or where there
    is none, at the batch.
    """

    task: int
    sources: Mapping[str, tuple[int, int, list[Segment]]] = field(default_factory=dict)
    frontiers: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    ends: bool = False
    frontier: int | None = None

    def end(self, batch: int) -> int | None:
        """Return the frontier of the end of the input, None where this is not the end."""
        if not self.ends:
            return None
        return batch if self.frontier is None else self.frontier

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Piece:
        """Make a piece of what :func:`dataclasses.asdict` has made of one."""
        sources = {n: (a, b, [Segment(**s) for s in found]) for n, (a, b, found) in data["sources"].items()}
        frontiers = {n: (a, b) for n, (a, b) in data["frontiers"].items()}
        return cls(data["task"], sources, frontiers, data["ends"], data["frontier"])


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a batch ends in each source or root, and how far the element's streams are complete by it."""

    ends: dict[str, Any]
    frontier: int

    @classmethod
    def of(cls, plan: Plan, batch: int, offset: Offset) -> Planned:
        """Say what a batch that reaches an offset is."""
        ends = {name: end for name, end in offset.items() if name != FRONTIER}
        if plan.root in plan.roots:
            reached: int | None = ends[plan.root]
        else:
            reached = offset.get(FRONTIER) if plan.aligned else batch
        # Spark runs a first batch even if nothing has come: then all is complete up to the least there is.
        return cls(ends, NOTHING_YET if reached is None else reached)

    @staticmethod
    def reached(record: Record | None, initial: Offset) -> Offset:
        """Return the offset up to which the input is on record; ``initial`` is that of the beginning."""
        if record is None:
            return initial
        ends = {name: end for name, (_, end) in record.sources.items()}
        offset = {name: ends.get(name, begin) for name, begin in initial.items()}
        if FRONTIER in initial:
            offset[FRONTIER] = None if record.frontier == NOTHING_YET else record.frontier
        return offset

    def compare(self, record: Record, element: str) -> None:
        """Refuse other input for a batch than it has on record: tuples would be left out, or counted twice."""
        had = {name: end for name, (_, end) in record.sources.items()}
        if self.ends != had:
            raise LedgerError(
                f"batch {record.batch} of '{element}' is on record up to {had}, and is planned up to {self.ends}: "
                "tuples would be left out or counted twice. Put back the run's folder as it was, from a copy; or start "
                "a new run"
            )


class Inflow(Protocol):
    """Where a processing element's input comes from."""

    def initial(self) -> Offset:
        """Return the offset of the beginning."""

    def latest(self, start: Offset, rows: int) -> Offset:
        """Return how far the next batch may go, with about so many rows of each source, or channel."""

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        """Cut a batch up for the tasks."""

    def commit(self, end: Offset) -> None:
        """Let go of what was read up to an offset."""

    def fix(self) -> None:
        """Take no input into account that is not there now."""

    def close(self) -> None:
        """Let go of it."""


def open_inflow(plan: Plan, setting: Setting, options: RunOptions, rates: Mapping[str, float]) -> Inflow:
    """Open the input of a plan; some sources have a rate."""
    if plan.inlets:
        return ChannelInflow(plan, setting, flush=options.flush)
    return SourceInflow(plan, setting, options, rates)


def read_piece(plan: Plan, setting: Setting, piece: Piece) -> dict[str, Rows]:
    """Read what a task has to compute."""
    if plan.inlets:
        return {entry.name: _read_channel(plan, setting, entry.name, piece) for entry in plan.entries}
    return {name: read_source(plan, name, *rows) for name, rows in piece.sources.items()}


def is_end(start: Offset, end: Offset) -> bool:
    """Say whether a batch is the end of its input."""
    return bool(end.get(END)) and not start.get(END)


def holds_end(segment: Footer | None) -> bool:
    """Say whether the newest segment of a channel is of the end of the input, after which nothing comes."""
    return segment is not None and bool(segment.sources.get(END, (None, None))[1])


def has_all(reader: ChannelReader) -> bool:
    """Say whether a channel has all there will ever be, what is put out at the end of the input included.

    One that is finished need not: a run that is stopped finishes its channels too, with its windows still open.
    """
    return reader.ended and holds_end(reader.newest)


def read_source(plan: Plan, name: str, start: int, end: int, segments: list[Segment]) -> Rows:
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
        return offset | ({END: 0} if self._flush else {})

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
        end = self._next_or_end(start, rows)
        for name, positions in self._positions.items():
            positions.check(start[name], end[name])
        for feed in self._feeds.values():
            feed.log.sync()
        return end

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

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        plan = self._plan
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
            pieces.append(Piece(task, sources, ends=is_end(start, end), frontier=end.get(FRONTIER)))
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
            known = numbers[name][-1] if len(numbers[name]) else start[FRONTIER]
            open_ends.append(
                np.iinfo(np.int64).min if known is None else int(known) - bool(len(numbers[name]))
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


class ChannelInflow:
    """Channels: an offset is, for each root, the frontier up to which all of its channels are read."""

    def __init__(self, plan: Plan, setting: Setting, *, flush: bool) -> None:
        self._plan = plan
        self._setting = setting
        self._flush = flush

    def initial(self) -> Offset:
        return dict.fromkeys(self._plan.roots) | ({END: 0} if self._flush else {})

    def fix(self) -> None: ...

    def close(self) -> None: ...

    def latest(self, start: Offset, rows: int) -> Offset:
        end, flush, over = dict(start), self._flush, self._flush
        for root in self._plan.roots:
            found = []
            for stream, channel in self._plan.inlets.items():
                if channel.root == root:
                    reader = reader_of(self._plan, self._setting, stream)
                    # In this order: what is there once a channel has all is all there will ever be.
                    whole = flush and has_all(reader)
                    further = reader.next(start[root], rows)
                    over &= whole and further is None
                    # One that has ended holds up none that goes further: their last batches are after its own.
                    if not whole or further is not None:
                        found.append(further)
            if found and all(f is not None for f in found):
                end[root] = min(f for f in found if f is not None)
        if over and not start.get(END):
            root = self._plan.root
            if end.get(root) is not None:
                end[root] += 1
            end[END] = 1
        return end

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        frontiers = {root: (start[root], end[root]) for root in self._plan.roots}
        ends, frontier = is_end(start, end), end.get(self._plan.root)
        return [Piece(task, {}, frontiers, ends, frontier) for task in range(self._plan.tasks)]

    def commit(self, end: Offset) -> None:
        if self._plan.replays:
            # Kept upstream until it is saved: the checkpointer says when.
            return
        for stream, channel in self._plan.inlets.items():
            if end[channel.root] is not None:
                reader_of(self._plan, self._setting, stream).acknowledge(end[channel.root])


def reader_of(plan: Plan, setting: Setting, stream: str) -> ChannelReader:
    """Open the channel that a stream comes by."""
    return ChannelReader(Path(setting.folder) / "channels" / plan.inlets[stream].name, plan.name)


def _read_channel(plan: Plan, setting: Setting, stream: str, piece: Piece) -> Rows:
    channel = plan.inlets[stream]
    after, upto = piece.frontiers[channel.root]
    columns = sorted(plan.needed[stream])
    tags = [f"${i}" for i in range(channel.tags)]
    if piece.ends or upto is None or upto == after:
        schema = pa.schema([*(channel.schema.field(c) for c in columns), *((t, pa.int64()) for t in tags)])
        tuples, punctuations = schema.empty_table(), pa.schema([(t, pa.int64()) for t in tags]).empty_table()
    else:
        span = plan.span(piece.task) if plan.keyed and channel.key else None
        tuples, punctuations = reader_of(plan, setting, stream).read(after, upto, columns, span)
    if not plan.keyed:
        rows, task, tasks = tuples.num_rows, piece.task, plan.tasks
        first = rows * task // tasks
        tuples = tuples.slice(first, rows * (task + 1) // tasks - first)
    return Rows(
        {c: _one(tuples.column(c)) for c in columns},
        np.arange(tuples.num_rows),
        tuple(tuples.column(t).to_numpy() for t in tags),
        tuple(punctuations.column(t).to_numpy() for t in tags) if punctuations.num_rows else (),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )
