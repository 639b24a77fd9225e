"""When each protected operator is due, what of it waits to be saved, and how its checkpoints stand."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from riprap.errors import CorruptValueError, FormatError
from riprap.runtime.checkpointing.protection import Protected, Range
from riprap.state.checkpoints.increments import SlotState
from riprap.state.checkpoints.index import Came
from riprap.state.checkpoints.versions import Versions
from riprap.state.ledger import MARK, BatchRecord, Ledger


class FreshPage(NamedTuple):
    """A page of what came in with a batch, in a slot and a range of buckets."""

    slot: str
    buckets: Range
    page: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A page that is not saved yet: what came in with a batch, or several, in a slot and a range of buckets."""

    slot: str
    buckets: Range
    page: str
    since: float
    until: float
    batch: int
    came: Came | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How an operator's checkpoints stand. ``time`` is the newest one's, None if there is none, and ``batch`` the last
    batch in it; ``total``, ``taken`` and ``cpu`` count since the element was started. The last is the processor time of
    the thread, for all its operators."""

    version: int = 0
    batch: int = -1
    time: float | None = None
    size: int = 0
    written: int = 0
    seconds: float = 0.0
    missed: int = 0
    failed: int = 0
    total: int = 0
    taken: int = 0
    cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What of an operator is to be saved now: the pages that wait, or the whole state of a record."""

    waiting: Sequence[Waiting]
    whole: BatchRecord | None
    batch: int
    entered: int
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class AsOf:
    """The batch as of which an operator is saved next, and how things stood then."""

    record: BatchRecord
    entered: int
    until: float


@dataclass(slots=True)
class PendingOperator:
    """What is known of a protected operator: pages that wait, and the durable state they come on top of.

    ``whole`` is the record whose whole state is to be saved next, because the one before cannot be added to;
    ``saving`` is such a record while it is being saved. ``newest`` is the last one there is. It is saved ``as_of`` that
    one; with ``marks`` as of the newest that is marked, while what comes after it waits (as of none, if it was let go).
    """

    protected: Protected
    versions: Versions
    marks: bool = False
    as_of: AsOf | None = None
    waiting: list[Waiting] = field(default_factory=list)
    slots: dict[tuple[str, Range], SlotState] = field(default_factory=dict)
    whole: BatchRecord | None = None
    saving: BatchRecord | None = None
    next: int | None = None
    making: str | None = None
    entered: int = 0
    since: float = 0.0
    until: float = 0.0
    newest: BatchRecord | None = None
    saved_batch: int = -1
    trouble: str = ""
    status: Status = Status()

    @property
    def name(self) -> str:
        return self.protected.name

    @property
    def batch(self) -> int:
        return self.newest.batch if self.newest is not None else -1

    @property
    def newest_version(self) -> int:
        """The batch of its newest version, -1 if there is none."""
        numbers = self.versions.numbers()
        try:
            return self.versions.manifest(numbers[0]).batch if numbers else -1
        except (CorruptValueError, FormatError):
            return self.batch

    def note(
        self, record: BatchRecord, fresh: Sequence[FreshPage], spans: Sequence[Range], entered: int
    ) -> None:
        """Take note of a batch, of the pages that came in with it, and of how many tuples it had."""
        self.entered += entered
        self.waiting += [
            Waiting(each.slot, span, each.page, self.until, record.time, record.batch)
            for each in fresh
            if each.slot in self.protected.slots
            for span in spans
            # One task may have computed all buckets.
            if each.buckets[0] <= span[0] and span[1] <= each.buckets[1]
        ]
        self.until, self.newest = record.time, record
        if record.marked or not self.marks:
            self.aim()
        elif self.as_of is None and self.whole is not None:
            self.whole, self.waiting = record, []

    def aim(self) -> None:
        """Let it be saved as of the newest batch, if there is any."""
        if self.newest is None:
            return
        self.as_of = AsOf(self.newest, self.entered, self.until)
        if self.whole is not None:
            self.whole, self.waiting = self.newest, []

    def take(self) -> Taken:
        """Take what is to be saved; what came in after that is for the next time."""
        assert self.as_of is not None
        batch = self.as_of.record.batch
        whole, self.saving, self.whole = self.whole, self.whole, None
        waiting = [w for w in self.waiting if w.batch <= batch]
        return Taken(waiting, whole, batch, self.as_of.entered, self.since, self.as_of.until)

    def start_over(self) -> None:
        """Let pages that wait go: what is saved next is the whole state."""
        self.waiting, self.slots, self.saving = [], {}, None
        self.whole = self.newest
        if self.as_of is not None and self.as_of.record is not self.newest:
            # Its pages may be gone, and what came in since is not to be in it.
            self.as_of = None

    def put_together(self, old: Sequence[Waiting], merged: Waiting) -> None:
        """Let one page wait for several."""
        gone = set(map(id, old))
        first = next((n for n, w in enumerate(self.waiting) if id(w) in gone), None)
        if first is not None:
            # They may have been let go meanwhile.
            self.waiting[first] = merged
            self.waiting = [w for w in self.waiting if id(w) not in gone]

    def mergeable(self, many: int) -> list[Waiting]:
        """Return the oldest half of what waits of a slot and range of buckets, where that is more than so many."""
        upto = self.as_of.record.batch if self.as_of is not None else -1
        # What is saved next, and what comes after it, stay apart.
        places = Counter((w.slot, w.buckets, w.batch <= upto) for w in self.waiting)
        place, count = places.most_common(1)[0] if places else (None, 0)
        if count <= many:
            return []
        return [w for w in self.waiting if (w.slot, w.buckets, w.batch <= upto) == place][: many // 2]


def cuts_of(operators: Iterable[PendingOperator]) -> list[int]:
    """Return the batches as of which all of some operators are saved, the newest first."""
    return sorted(set.intersection(*(set(o.versions.by_batch()) for o in operators)), reverse=True)


def comes_back(ledger: Ledger, cuts: Collection[int]) -> bool:
    """Say whether an element of marked batches can come back to what is on record, from a cut or from the beginning.

    Input is kept for the batches that it has had since its region marks them: those before say nothing of marks.
    """
    batches = set(ledger.batches())
    for batch in sorted(batches, reverse=True):
        if batch in cuts or batch < 0:
            return True
        if batch - 1 not in batches or MARK not in ledger.get(batch).sources:
            return False
    return True


def batch_to_save(group: Sequence[PendingOperator]) -> int:
    """Return the batch as of which operators are to be saved together, -1 if there is none, or all are."""
    batches = {o.as_of.record.batch if o.as_of is not None else -1 for o in group}
    # One that has started over waits for a batch that all can be saved as of.
    batch = batches.pop() if len(batches) == 1 else -1
    return batch if any(o.saved_batch != batch for o in group) else -1


class Schedule:
    """Operators by the time they are due next. The first times are spread out, so that not all are due together; those
    in ``at_once`` are due now, one after the other.

    >>> schedule = Schedule({"a": 10.0, "b": 10.0}, now=0.0)
    >>> schedule.next()
    (5.0, 'a')
    >>> schedule.done("a", now=6.0), schedule.next()
    (0, (10.0, 'b'))
    """

    def __init__(self, every: Mapping[str, float], now: float, at_once: Collection[str] = ()) -> None:
        self._every = dict(every)
        shares = enumerate(self._every.items(), 1)
        self._queue = [
            (now if name in at_once else now + period * n / len(self._every), name)
            for n, (name, period) in shares
        ]
        heapq.heapify(self._queue)

    def next(self) -> tuple[float, str]:
        """Return who is due next, and when."""
        return self._queue[0]

    def done(self, name: str, now: float) -> int:
        """Put the one that was due back in the queue; return how many of its times have passed meanwhile."""
        due, newest = heapq.heappop(self._queue)
        assert newest == name
        period = self._every[name]
        missed = max(0, int((now - due) // period))
        heapq.heappush(self._queue, (due + (missed + 1) * period, name))
        return missed
