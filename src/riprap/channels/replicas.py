"""A channel that several replicas write, each a log of its own: which there are, and which of them is read.

<channel>/
    logs/a.0/                       the log of replica a: a channel's folder without readers (riprap.channels.folder)
    logs/b.0/                       the log of replica b, up to where it was lost,
    logs/b.1.09223372036854775820/  and the one it began when it came back with the state of another replica, whose
                                    frontier then, with 2**63 added, is in the name: what lies before is elsewhere
    readers/                        how far each reader is, in whichever log (riprap.channels.notes)

Tags do not depend on the replica, so rows up to a frontier are the same in every log that has them: a reader goes on in
another where it was. A replica that is replaced writes on in a log that nobody reads.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from riprap.channels.folder import make_private, scan
from riprap.channels.notes import Notes, withdraw
from riprap.channels.reader import ChannelReader
from riprap.channels.segment import BEGIN, Footer
from riprap.errors import ChannelError

_LOGS = "logs"
_NAME = re.compile(r"([a-z])\.(\d+)(?:\.(\d{20}))?")


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A log of a replica: the how manieth of it, and the frontier after which it begins."""

    folder: Path
    letter: str
    number: int
    start: int

    @property
    def frontier(self) -> int:
        """How far it has come, BEGIN if there is nothing in it."""
        listed = scan(self.folder)
        return listed[-1].frontier if listed else BEGIN


def list_logs(channel: Path) -> list[ReplicaLog]:
    """List the logs of a channel, by replica and age."""
    try:
        names = sorted(os.listdir(channel / _LOGS))
    except FileNotFoundError:
        return []
    return sorted(
        (
            ReplicaLog(
                channel / _LOGS / name,
                match[1],
                int(match[2]),
                BEGIN if match[3] is None else int(match[3]) - 2**63,
            )
            for name in names
            if (match := _NAME.fullmatch(name))
        ),
        key=lambda log: (log.letter, log.number),
    )


def newest_log(channel: Path, letter: str) -> ReplicaLog:
    """Return the log that a replica writes; one that has never begun has its first."""
    own = [log for log in list_logs(channel) if log.letter == letter]
    return own[-1] if own else ReplicaLog(channel / _LOGS / f"{letter}.0", letter, 0, BEGIN)


def begin_log(channel: Path, letter: str, frontier: int) -> ReplicaLog:
    """Begin another log of a replica, which has what comes after a frontier."""
    number = newest_log(channel, letter).number + 1
    folder = channel / _LOGS / f"{letter}.{number}.{frontier + 2**63:020d}"
    make_private(folder)
    return ReplicaLog(folder, letter, number, frontier)


def forget_logs(channel: Path, letter: str, acknowledged: int | None) -> None:
    """Remove the earlier logs of a replica of which all readers have had everything."""
    own = [log for log in list_logs(channel) if log.letter == letter]
    for log in own[:-1]:
        if acknowledged is not None and log.frontier <= acknowledged:
            # Under its name it would have holes for a while.
            gone = log.folder.rename(log.folder.with_name(f".{log.folder.name}"))
            shutil.rmtree(gone, ignore_errors=True)


class ReplicatedReader:
    """One reader of a channel of replicas. It reads the newest log of the one it prefers, None: of whichever is ahead.

    Where that log begins after what is asked for, another has it.
    """

    def __init__(self, channel: Path, reader: str, prefer: str | None) -> None:
        self._folder = channel
        self._reader = reader
        self._prefer = prefer

    def _open(self, log: ReplicaLog) -> ChannelReader:
        return ChannelReader(log.folder, self._reader, notes=self._folder)

    def _newest(self) -> list[ReplicaLog]:
        """List the newest log of each replica, or of the preferred one."""
        newest = {log.letter: log for log in list_logs(self._folder)}
        return [log for log in newest.values() if self._prefer in (None, log.letter)]

    @property
    def _foremost(self) -> ChannelReader | None:
        """The log that is further than others, of two that have come as far one that has ended."""
        opened = [(self._open(log), log.frontier) for log in self._newest()]
        return max(opened, key=lambda each: (each[1], each[0].ended))[0] if opened else None

    def chosen(self, after: int | None) -> ReplicaLog | None:
        """Return the log in which to go on after a frontier, None if there is none yet."""
        low = BEGIN if after is None else after
        logs = [log for log in list_logs(self._folder) if log.start <= low]
        newest = {log.folder for log in self._newest()}
        preferred = [log for log in logs if log.folder in newest]
        if self._prefer is not None and preferred:
            return preferred[0]
        return max(logs, key=lambda log: (log.frontier, log.folder in newest), default=None)

    @property
    def frontier(self) -> int | None:
        """The newest frontier, None if there is nothing yet."""
        foremost = self._foremost
        return None if foremost is None else foremost.frontier

    @property
    def newest(self) -> Footer | None:
        """What the newest segment says of itself, None if there is none."""
        foremost = self._foremost
        return None if foremost is None else foremost.newest

    @property
    def ended(self) -> bool:
        """Whether nothing more comes; a frontier asked for after this is the last."""
        foremost = self._foremost
        return foremost is not None and foremost.ended

    def next(
        self, after: int | None, rows: int, *, upto: Callable[[Footer], object] | None = None
    ) -> int | None:
        """Return the largest frontier within ``rows`` tuples of ``after``, as a channel's reader does."""
        log = self.chosen(after)
        return None if log is None else self._open(log).next(after, rows, upto=upto)

    def ending_at(self, frontier: int) -> Footer | None:
        """Return what a segment that ends at a frontier says of itself; None if none does."""
        footers = (self._open(log).ending_at(frontier) for log in list_logs(self._folder))
        return next((footer for footer in footers if footer is not None), None)

    def count(self, after: int | None, upto: int) -> int:
        """Return how many tuples read() would find in all buckets."""
        return self._having(after, upto).count(after, upto)

    def read(
        self, after: int | None, upto: int, columns: Sequence[str], span: tuple[int, int] | None = None
    ) -> tuple[pa.Table, pa.Table]:
        """Read the tuples of a range of buckets and the punctuations from one log that has them, both in order."""
        return self._having(after, upto).read(after, upto, columns, span)

    def _having(self, after: int | None, upto: int) -> ChannelReader:
        """Open the log that has all up to a frontier: that of the preferred replica, if that is one."""
        low = BEGIN if after is None else after
        if not Notes.find(self._folder, self._reader).wanted(low, upto):
            # All of it is passed over, so that nobody need have it.
            return self._open(newest_log(self._folder, self._prefer or "a"))
        log = self._whole(low, upto)
        if log is None:
            found = ", ".join(log.folder.name for log in list_logs(self._folder)) or "none"
            raise ChannelError(
                f"no log of a replica in {self._folder} has what '{self._reader}' asks for, from {after} up to {upto}. "
                f"There are: {found}. The folder may be of another run, or not be shared with the replicas' hosts"
            )
        return self._open(log)

    def _whole(self, low: int, upto: int) -> ReplicaLog | None:
        """Return the log in which to read a range, None if none has come so far."""
        logs = [log for log in list_logs(self._folder) if log.start <= low]
        whole = [log for log in logs if log.frontier >= upto or self._open(log).ended]
        return max(whole, key=lambda log: (log.letter == self._prefer, log.number), default=None)

    def has(self, after: int | None, upto: int) -> bool:
        """Say whether one log has a range, and nothing of it is trimmed."""
        low = BEGIN if after is None else after
        log = self._whole(low, upto)
        return log is not None and self._open(log).begins <= low

    @property
    def acknowledged(self) -> int | None:
        """The frontier up to which this reader is done, None at first."""
        return Notes.find(self._folder, self._reader).acknowledged

    def acknowledge(self, frontier: int) -> None:
        """Note that rows up to a frontier are never needed again, of any log; less than before changes nothing."""
        notes = Notes.find(self._folder, self._reader)
        if notes.acknowledged is None or frontier > notes.acknowledged:
            replace(notes, acknowledged=int(frontier)).save(self._folder, self._reader)

    def withdraw(self, frontier: int) -> None:
        """Take back that rows beyond a frontier are not needed any more."""
        withdraw(self._folder, self._reader, frontier)

    @property
    def lost(self) -> int:
        """How many tuples it has left out for good."""
        return sum(skip.lost for skip in Notes.find(self._folder, self._reader).skipped)

    def skip(self, after: int | None, upto: int) -> int:
        """Leave rows out for good, and return how many tuples are lost by it; again, the same number."""
        notes = Notes.find(self._folder, self._reader)
        noted = notes.skipping(after, upto, lambda: self._remaining(after, upto))
        if noted is not notes:
            noted.save(self._folder, self._reader)
        return noted.lost_between(after, upto)

    def _remaining(self, after: int | None, upto: int) -> int:
        """Count the tuples of a range: of the preferred replica where that has them, of others before that."""
        count, low = 0, BEGIN if after is None else after
        while low < upto:
            further = [log for log in list_logs(self._folder) if log.start <= low < log.frontier]
            if not further:
                # That it cannot be had is an error, unless all have ended.
                return count + self._having(after if low == BEGIN else low, upto).remaining(low, upto)
            log = max(further, key=lambda log: (log.letter == self._prefer, log.frontier))
            end = min(log.frontier, upto)
            count += self._open(log).remaining(low, end)
            low = end
        return count

    @property
    def begins(self) -> int:
        """The frontier after which everything is in one of the logs, BEGIN as long as nothing was trimmed."""
        spans = [(max(log.start, self._open(log).begins), log.frontier) for log in list_logs(self._folder)]
        begins, further = max((max(span) for span in spans), default=BEGIN), True
        while further:
            # One that was lost may end before others begin by now.
            before = min((low for low, high in spans if high >= begins), default=begins)
            further, begins = before < begins, min(before, begins)
        return begins
