"""Reading a channel: a consumer's driver plans how far, its tasks read their buckets."""

from __future__ import annotations

import contextlib
import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa

from riprap.channels.folder import FINISHED, OLDER, Channel, list_segments, scan
from riprap.channels.notes import Notes, withdraw
from riprap.channels.segment import BEGIN, DATA, PUNCTUATION, BlockInfo, Footer, SegmentFile, SegmentName
from riprap.channels.tags import FIRST_NUMBER, ROW
from riprap.errors import ChannelError

_FRONTIER = attrgetter("frontier")
_BEYOND = 2**63


@dataclass(frozen=True, slots=True)
class _SegmentRange:
    """The rows of a segment with low < $0 <= high; None: the segment's own bounds."""

    name: SegmentName
    low: int | None
    high: int | None

    def cut(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.low is None and self.high is None:
            return rows
        values = rows.column(FIRST_NUMBER).to_numpy()
        start = 0 if self.low is None else int(np.searchsorted(values, self.low, "right"))
        stop = len(values) if self.high is None else int(np.searchsorted(values, self.high, "right"))
        return rows.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class LaidSegment:
    """A segment as far as it is asked for; ``whole`` is whether that is all of it.

    It can be read as long as it is held, also when it is trimmed.
    """

    file: SegmentFile
    part: _SegmentRange

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        return self.file.footer.blocks

    @property
    def whole(self) -> bool:
        return self.part.low is None and self.part.high is None

    def read(self, number: int) -> pa.RecordBatch:
        """Return the rows of a block, which stay mapped."""
        return self.part.cut(self.file.read(number))


class ChannelReader:
    """One reader of a channel, in any process of it.

    Rows are asked for by frontier value: ``after`` < ``$0`` <= ``upto``, where ``after`` None is the beginning.
    Opening does nothing; the channel need not be there yet.
    """

    def __init__(self, folder: Path, reader: str, *, notes: Path | None = None) -> None:
        self._folder = folder
        self._reader = reader
        # Where replicas write a log each, what readers note is of all of them.
        self._notes = notes or folder
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """What is fixed for the life of the channel: stream, key, buckets, tags, schema."""
        if self._channel is None:
            self._channel = Channel.find(self._folder)
        return self._channel

    @property
    def frontier(self) -> int | None:
        """The newest frontier in the log, None if there is nothing yet."""
        listed = scan(self._folder)
        return listed[-1].frontier if listed else None

    @property
    def newest(self) -> Footer | None:
        """What the newest segment, which is never trimmed, says of itself; None if there is nothing yet."""
        listed = scan(self._folder)
        return self._open(listed[-1]).footer if listed else None

    @property
    def ended(self) -> bool:
        """Whether nothing more comes; a frontier asked for after this is the last."""
        return (self._folder / FINISHED).exists()

    def next(
        self, after: int | None, rows: int, *, upto: Callable[[Footer], object] | None = None
    ) -> int | None:
        """Return the largest frontier of a segment within ``rows`` tuples of ``after``; None if nothing is new.

        A first segment with more tuples counts as within, and none after the first of which ``upto`` is true.
        """
        low, notes = _low(after), Notes.find(self._notes, self._reader)
        listed = list_segments(self._folder, low)
        frontier, total = None, 0
        for name in listed[bisect_right(listed, low, key=_FRONTIER) :]:
            total += sum(self._count(p) for p in self._parts(listed, notes.wanted(low, name.frontier)))
            if frontier is not None and total > rows:
                break
            frontier = low = name.frontier
            if upto is not None and upto(self._open(name).footer):
                break
        return frontier

    def ending_at(self, frontier: int) -> Footer | None:
        """Return what the segment that ends at a frontier says of itself; None if none does."""
        listed = list_segments(self._folder)
        place = bisect_left(listed, frontier, key=_FRONTIER)
        ends = place < len(listed) and listed[place].frontier == frontier
        return self._open(listed[place]).footer if ends else None

    def count(self, after: int | None, upto: int) -> int:
        """Return how many tuples read() would find in all buckets."""
        return sum(self._count(part) for part in self._wanted(after, upto))

    def read(
        self, after: int | None, upto: int, columns: Sequence[str], span: tuple[int, int] | None = None
    ) -> tuple[pa.Table, pa.Table]:
        """Read the tuples (some columns, and the tag) of a range of buckets, and the punctuations; both in order."""
        channel = self.channel
        if unknown := [name for name in columns if name not in channel.schema.names]:
            raise ChannelError(
                f"the channel in {self._folder} has no column {', '.join(unknown)}. It has: {channel.columns}"
            )
        if span is not None and not 0 <= span[0] <= span[1] <= channel.buckets:
            raise ChannelError(
                f"the channel in {self._folder} has buckets 0 to {channel.buckets - 1}, so buckets {span[0]} to "
                f"{span[1] - 1} are another division of its keys. Producer and consumer must agree on buckets"
            )
        tuples: list[tuple[int, pa.RecordBatch]] = []
        punctuations: list[pa.RecordBatch] = []
        before, expected = 0, channel.columns
        for part in self._wanted(after, upto):
            file = self._open(part.name)
            if file.footer.schema != expected:
                raise ChannelError(
                    f"segment {part.name.file} of {self._folder} has columns {file.footer.schema}, and the channel "
                    f"{expected}: it is another channel's. Restore the file"
                )
            for number, entry in enumerate(file.footer.blocks):
                if entry.kind == DATA and entry.within(span):
                    tuples.append((before, part.cut(file.read(number))))
                elif entry.kind == PUNCTUATION and entry.within(span):
                    punctuations.append(part.cut(file.read(number)))
            before += part.name.rows
        ticks = pa.Table.from_batches(punctuations, channel.fields([]))
        return _merge(tuples, channel.fields(columns), before), ticks

    def segments(self, after: int | None, upto: int) -> list[LaidSegment]:
        """Return a range as it lies in the log, for who needs no order among buckets."""
        return [LaidSegment(self._open(part.name), part) for part in self._wanted(after, upto)]

    @property
    def acknowledged(self) -> int | None:
        """The frontier up to which this reader is done, None at first."""
        return Notes.find(self._notes, self._reader).acknowledged

    def acknowledge(self, frontier: int) -> None:
        """Note that rows up to a frontier are never needed again; to acknowledge less than before changes nothing."""
        # What lies before is not asked for.
        self._listed(frontier, _BEYOND)
        notes = Notes.find(self._notes, self._reader)
        if frontier > _low(notes.acknowledged):
            dataclasses.replace(notes, acknowledged=int(frontier)).save(self._notes, self._reader)

    def withdraw(self, frontier: int) -> None:
        """Take back that rows beyond a frontier are not needed any more."""
        withdraw(self._notes, self._reader, frontier)

    @property
    def lost(self) -> int:
        """How many tuples it has left out for good."""
        return sum(skip.lost for skip in Notes.find(self._notes, self._reader).skipped)

    def skip(self, after: int | None, upto: int) -> int:
        """Leave rows out for good, and return how many tuples are lost by it; again, the same number."""
        self._listed(upto, _low(after))
        notes = Notes.find(self._notes, self._reader)
        noted = notes.skipping(after, upto, lambda: self.remaining(after, upto))
        if noted is not notes:
            noted.save(self._notes, self._reader)
        return noted.lost_between(after, upto)

    def remaining(self, after: int | None, upto: int) -> int:
        """Return how many tuples of a range there still are, whatever is gone or damaged."""
        listed = self._listed(upto, _low(after))
        ranges = Notes.find(self._notes, self._reader).wanted(_low(after), upto)
        return sum(self._count(part) for part in self._parts(listed, ranges, complete=False))

    def has(self, after: int | None, upto: int) -> bool:
        """Say whether nothing of what came after a frontier is trimmed."""
        return self.begins <= _low(after)

    @property
    def begins(self) -> int:
        """The frontier after which the log has everything, BEGIN as long as nothing of it was trimmed."""
        while listed := list_segments(self._folder):
            # The oldest goes when its writer trims the log meanwhile: then it begins later.
            with contextlib.suppress(_GoneError):
                return self._start(listed[0])
        return BEGIN

    def _wanted(self, after: int | None, upto: int) -> list[_SegmentRange]:
        """List the parts of segments that a range of frontier values takes, in order."""
        ranges = Notes.find(self._notes, self._reader).wanted(_low(after), upto)
        return self._parts(self._listed(upto, _low(after)), ranges) if ranges else []

    def _listed(self, upto: int, low: int) -> list[SegmentName]:
        """List the segments, which must reach a frontier; those up to ``low`` may be left out."""
        # In this order: what is listed once the channel has ended is all there will ever be.
        ended, listed = self.ended, list_segments(self._folder, low)
        frontier = listed[-1].frontier if listed else None
        if not ended and upto > _low(frontier):
            raise ChannelError(
                f"the log in {self._folder} ends at frontier {frontier}, and '{self._reader}' asks for {upto}. The "
                "folder may be of another run, or not be shared with the producer's host"
            )
        return listed

    def _parts(
        self, listed: Sequence[SegmentName], ranges: Sequence[tuple[int, int]], *, complete: bool = True
    ) -> list[_SegmentRange]:
        parts = []
        for low, high in ranges:
            place = bisect_right(listed, low, key=_FRONTIER)
            if place == len(listed):
                continue
            try:
                start = listed[place - 1].frontier if place else self._start(listed[0])
            except ChannelError:
                if complete:
                    raise
                start = low  # who wants to be rid of a damaged segment need not read it
            if low < start and complete:
                raise self._trimmed(low, start)
            while place < len(listed) and start < high:
                name = listed[place]
                if name.frontier > start:
                    inside = low if low > start else None
                    parts.append(_SegmentRange(name, inside, high if high < name.frontier else None))
                start, place = name.frontier, place + 1
        return parts

    def _start(self, oldest: SegmentName) -> int:
        return BEGIN if oldest.batch == 0 else self._open(oldest).footer.start

    def _count(self, part: _SegmentRange) -> int:
        if part.low is None and part.high is None:
            return part.name.rows
        file = self._open(part.name)
        blocks = enumerate(file.footer.blocks)
        return sum(part.cut(file.read(n)).num_rows for n, entry in blocks if entry.kind == DATA)

    def _open(self, name: SegmentName) -> SegmentFile:
        try:
            return SegmentFile(self._folder, name)
        except FileNotFoundError:
            pass
        try:
            # It may be set aside by now.
            return SegmentFile(self._folder / OLDER, name)
        except FileNotFoundError:
            raise _GoneError(
                f"segment {name.file} of {self._folder} went while '{self._reader}' read the log. It has "
                f"acknowledged {self.acknowledged}, and may not ask for what lies before"
            ) from None

    def _trimmed(self, low: int, start: int) -> ChannelError:
        return ChannelError(
            f"the log in {self._folder} begins after frontier {start}, and '{self._reader}' asks for rows after "
            f"{'the beginning' if low == BEGIN else low}. It has acknowledged {self.acknowledged}; what all readers "
            "acknowledge is removed. Start from there, or skip() what is gone"
        )


class _GoneError(ChannelError):
    """A segment that was listed is not there."""


def _low(frontier: int | None) -> int:
    return BEGIN if frontier is None else frontier


def _merge(parts: Sequence[tuple[int, pa.RecordBatch]], schema: pa.Schema, size: int) -> pa.Table:
    """Put blocks in the order of their rows' places; a block's places count from the number given with it."""
    parts = [(before, rows) for before, rows in parts if rows.num_rows]
    table = pa.Table.from_batches([rows.select(schema.names) for _, rows in parts], schema)
    if len({before for before, _ in parts}) == len(parts):
        return table
    place = np.concatenate([before + rows.column(ROW).to_numpy().astype(np.int64) for before, rows in parts])
    order = np.full(size, -1)
    order[place] = np.arange(len(place))
    return table.combine_chunks().take(pa.array(order[order >= 0]))
