"""Comparing the logs of replicas: a stretch of frontiers at a time, by digest, and tuple by tuple where they differ.

    a    |----12----|--18--|------31------|--36--|
    b    |-----15-----|----25----|------36-------|---40---|
                                                 ^ both have all up to here: one stretch, or several if it is long

A stretch ends at a frontier that two logs have reached, where possible one at which a segment of each ends: segments
that were cut alike have checksums, and need not be read. A third log is compared when it comes that far. A log that
begins later is compared from where another has rows too.

What all readers have had is trimmed, maybe before anybody looked. So whoever compares notes how far he is as a reader
does (:data:`riprap.channels.notes.COMPARED`), and the writers keep what lies beyond: but no more than 256 segments or a
million rows of a log (:mod:`riprap.channels.log_index`), so that one that lags, or is gone, costs a bounded
amount. What was trimmed all the same is passed over and counted (``missed``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from riprap.channels.differences import Differing, LaidRows, find_differing
from riprap.channels.folder import list_segments
from riprap.channels.notes import COMPARED, Notes
from riprap.channels.reader import ChannelReader
from riprap.channels.replicas import ReplicaLog, list_logs
from riprap.channels.segment import BEGIN, SegmentName
from riprap.errors import ChannelError

# A stretch has no more rows of a log, unless a segment has.
STRETCH_ROWS = 65_536
# What is compared in one go, in rows of all logs: some 0.1 s.
LOOK_ROWS = 1_000_000
# What it takes to open a segment, and to read a block, is as much as so many rows take.
_SEGMENT_ROWS = 1_000
_BLOCK_ROWS = 500
# So long a difference waits for further replicas, which would show who is wrong.
PATIENCE_SECONDS = 0.5
_PENDING = 512
_FIRST = 5


@dataclass(slots=True)
class Counts:
    """What was compared: rows and bytes of all logs, stretches, those that differ, and rows that were gone before."""

    rows: int = 0
    bytes: int = 0
    stretches: int = 0
    differences: int = 0
    missed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDifference:
    """Logs differ after a frontier, None: from the beginning, and up to another.

    ``wrong`` are those whom most contradict, none where there is no majority.
    """

    after: int | None
    upto: int
    replicas: tuple[str, ...]
    wrong: tuple[str, ...]
    differing: Differing


@dataclass(frozen=True, slots=True)
class _Log:
    """A log as it is now: it has all after ``start`` up to its frontier, and more may come if it is ``newest``."""

    replica: ReplicaLog
    start: int
    segments: Sequence[SegmentName]
    newest: bool

    @property
    def letter(self) -> str:
        return self.replica.letter

    @property
    def frontier(self) -> int:
        return self.segments[-1].frontier if self.segments else self.start

    def has(self, low: int, high: int) -> bool:
        return self.start <= low and high <= self.frontier

    def within(self, low: int, high: int) -> list[SegmentName]:
        """List the segments that end in a stretch."""
        return [name for name in self.segments if low < name.frontier <= high]


@dataclass(slots=True)
class _Stretch:
    low: int
    high: int
    sides: dict[str, LaidRows] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    differs_since: float | None = None
    told: bool = False

    def groups(self) -> list[list[str]]:
        """Group the letters of those that have the same, the largest group first."""
        sums = {side.checksums for side in self.sides.values()}
        if len(sums) == 1 and None not in sums:
            return [list(self.sides)]
        groups: dict[int, list[str]] = {}
        for letter, side in self.sides.items():
            groups.setdefault(side.digest, []).append(letter)
        return sorted(groups.values(), key=len, reverse=True)


class LogComparison:
    """Compares what the logs of one channel have got since the last look. It begins where it is noted to have been."""

    def __init__(
        self,
        channel: Path,
        letters: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        stretch_rows: int = STRETCH_ROWS,
    ) -> None:
        self._channel = channel
        self._letters = tuple(letters)
        self._clock = clock
        self._stretch_rows = stretch_rows
        noted = Notes.find(channel, COMPARED).acknowledged
        # From now on writers keep what comes.
        Notes(acknowledged=BEGIN if noted is None else noted).save(channel, COMPARED)
        self._upto = self._noted = BEGIN if noted is None else noted
        self._pending: list[_Stretch] = []
        self._ends: dict[Path, int] = {}
        self.counts = Counts()
        self.behind = False

    def look(self, out: Collection[str] = (), *, rows: int = LOOK_ROWS) -> list[LogDifference]:
        """Compare what there is by now, up to so many rows; ``out`` are those of whom nothing is expected."""
        logs = [log for each in self._list() if (log := self._scan(*each)) is not None]
        self._divide(logs, out)
        self._note_ends(logs)
        found, left = [], rows
        self.behind = len(self._pending) == _PENDING
        for stretch in self._pending:
            if left <= 0:
                self.behind = True
                break
            left -= self._open(stretch, logs)
            difference = self._judge(stretch, self._expected(stretch, logs, out))
            if difference is not None:
                found.append(difference)
        kept = [s for s in self._pending if not _is_done(s, self._expected(s, logs, out))]
        self.counts.stretches += len(self._pending) - len(kept)
        for stretch in kept[: max(0, len(kept) - _PENDING)]:
            self.counts.missed += max((side.count for side in stretch.sides.values()), default=0)
        self._pending = kept[-_PENDING:]
        self._note(logs, out)
        return found

    def close(self) -> None:
        """Let writers keep nothing for it any more."""
        Notes().save(self._channel, COMPARED)

    # What there is

    def _list(self) -> list[tuple[ReplicaLog, bool]]:
        logs = list_logs(self._channel)
        newest = {log.letter: log for log in logs}
        return [(log, newest[log.letter] is log) for log in logs]

    def _scan(self, log: ReplicaLog, newest: bool) -> _Log | None:
        """Look at a log, None if there is nothing in it to compare any more, or it changes too fast to be seen."""
        low = self._pending[0].low if self._pending else self._upto
        try:
            segments = list_segments(log.folder, low)
            if not segments:
                return _Log(log, log.start, (), newest) if newest else None
            first = segments[0]
            near = first.frontier <= low
            start = (
                first.frontier
                if near
                else BEGIN
                if first.batch == 0 and log.start == BEGIN
                else ChannelReader(log.folder, COMPARED).begins
            )
        except (ChannelError, FileNotFoundError):
            return None
        return _Log(log, start, segments, newest) if newest or segments[-1].frontier > low else None

    def _divide(self, logs: Sequence[_Log], out: Collection[str]) -> None:
        """Cut what at least two have, and nobody has looked at, into stretches."""
        while len(self._pending) < _PENDING:
            low = self._upto
            having = {log.letter: log for log in logs if log.start <= low < log.frontier}
            if len(having) < 2:
                later = min(
                    (log.start for log in logs if log.start > low and log.frontier > low), default=None
                )
                if later is None:
                    return
                if len(self._coming(low, logs, out)) > 1:
                    # Another begins further on, and one that has not come this far may yet.
                    if any(log.frontier <= later for log in logs if log.start > low):
                        return
                    self._pending.append(_Stretch(low, later))
                self._count_missed(low, later, logs)
                self._upto = later
                continue
            reached = sorted(having.values(), key=lambda log: log.frontier)[-2]
            stops = [log.start for log in logs] + [log.frontier for log in logs if not log.newest]
            high = min([reached.frontier, *(stop for stop in stops if stop > low)])
            high = self._shorten(having.values(), reached, low, high)
            self._pending.append(_Stretch(low, high))
            self._upto = high

    def _shorten(self, having: Collection[_Log], measure: _Log, low: int, high: int) -> int:
        """Return where a stretch ends that is not too long: if possible where segments of all do."""
        ends: list[int] = []
        rows = 0
        for name in measure.within(low, high):
            rows += name.rows + _SEGMENT_ROWS
            if rows > self._stretch_rows and ends:
                break
            ends.append(name.frontier)
        common = set(ends).intersection(
            *({name.frontier for name in log.within(low, high)} for log in having)
        )
        return max(common) if common else ends[-1] if ends else high

    def _coming(self, low: int, logs: Sequence[_Log], out: Collection[str]) -> set[str]:
        """Name those that have what follows a frontier, or may come to have it."""
        having = {log.letter for log in logs if log.start <= low < log.frontier}
        going_on = {log.letter for log in logs if log.newest and log.start <= low and log.letter not in out}
        begun = {log.letter for log in logs}
        unbegun = {x for x in self._letters if x not in begun and x not in out} if low == BEGIN else set()
        return having | going_on | unbegun

    def _expected(self, stretch: _Stretch, logs: Sequence[_Log], out: Collection[str]) -> set[str]:
        return (set(stretch.sides) | self._coming(stretch.low, logs, out)) - stretch.unreadable

    def _count_missed(self, low: int, later: int, logs: Sequence[_Log]) -> None:
        """Count the rows that two had, of whom one has them no more: about, where a segment was compared in part."""
        had = {log.letter for log in logs if log.replica.start <= low < log.frontier}
        if len(had) < 2:
            return
        first = {
            log.replica.folder: log.segments[0].position
            for log in logs
            if log.replica.start <= low < log.start <= later and log.segments
        }
        self.counts.missed += max((at - self._ends.get(log, 0) for log, at in first.items()), default=0)

    def _note_ends(self, logs: Sequence[_Log]) -> None:
        for log in logs:
            past = [name for name in log.segments if name.frontier <= self._upto]
            if past:
                self._ends[log.replica.folder] = past[-1].position + past[-1].rows

    # What it is

    def _open(self, stretch: _Stretch, logs: Sequence[_Log]) -> int:
        """Take hold of the rows of those who have come so far; return what that costs, in rows."""
        cost = 0
        for log in logs:
            known = stretch.sides.keys() | stretch.unreadable
            if log.letter not in known and log.has(stretch.low, stretch.high):
                reader = ChannelReader(log.replica.folder, COMPARED)
                try:
                    laid = LaidRows(reader.segments(stretch.low, stretch.high))
                except (ChannelError, FileNotFoundError):
                    # Trimmed; or damaged, of which its readers tell.
                    stretch.unreadable.add(log.letter)
                    continue
                stretch.sides[log.letter] = laid
                self.counts.rows += laid.count
                self.counts.bytes += laid.size
                cost += laid.count + _SEGMENT_ROWS * laid.segments + _BLOCK_ROWS * laid.blocks
        return cost

    def _judge(self, stretch: _Stretch, expected: set[str]) -> LogDifference | None:
        if len(stretch.sides) < 2 or stretch.told:
            return None
        groups = stretch.groups()
        if len(groups) == 1:
            return None
        now = self._clock()
        stretch.differs_since = now if stretch.differs_since is None else stretch.differs_since
        if expected > set(stretch.sides) and now - stretch.differs_since < PATIENCE_SECONDS:
            return None
        stretch.told = True
        self.counts.differences += 1
        most = len(groups[0]) * 2 > len(stretch.sides)
        return LogDifference(
            after=None if stretch.low == BEGIN else stretch.low,
            upto=stretch.high,
            replicas=tuple(sorted(stretch.sides)),
            wrong=tuple(sorted(letter for group in groups[1:] for letter in group)) if most else (),
            differing=find_differing({group[0]: stretch.sides[group[0]] for group in groups}, _FIRST),
        )

    def _note(self, logs: Sequence[_Log], out: Collection[str]) -> None:
        compared = self._pending[0].low if self._pending else self._upto
        if not self._pending and len(self._coming(self._upto, logs, out)) < 2:
            # One goes on alone: whoever joins it begins where it is by then.
            compared = max((log.frontier for log in logs), default=compared)
        if compared > self._noted:
            self._noted = compared
            Notes(acknowledged=compared).save(self._channel, COMPARED)


def _is_done(stretch: _Stretch, expected: set[str]) -> bool:
    """Say whether nothing more is to be found out about a stretch."""
    if stretch.told or len(expected) < 2:
        return True
    return expected <= stretch.sides.keys() and stretch.differs_since is None
