"""Saving protected operators in the background.

    batch on record -> note() -> pages that came in wait        (names only)
    due -> take what waits -> values -> manifest -> collect      (a thread of its own: reads pages, writes to the store)

Where what came in since is kept and computed again, all operators are saved as of one batch, a *cut*. It is complete
once sinks and channels have all up to that batch for good; before that no other is begun, and the one before it stays.

Where the start of a region says when to make a cut, that batch is *marked*: the newest of those is saved, and no other,
while what came after it waits.

A batch never waits for the store. Pages wait in host memory until they are saved; once they take too much of it,
because the store is away or the time is long, they are let go, and the next checkpoint is of the whole state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from riprap.adapters.retrying import Tell
from riprap.errors import CorruptValueError, MissingPageError
from riprap.runtime.checkpointing.cut_log import CutLog, CutWatch
from riprap.runtime.checkpointing.merging import merge_oldest
from riprap.runtime.checkpointing.protection import ElementProtection, Protected
from riprap.runtime.checkpointing.schedule import (
    FreshPage,
    PendingOperator,
    Schedule,
    Status,
    Taken,
    batch_to_save,
    comes_back,
    cuts_of,
)
from riprap.runtime.checkpointing.values import manifest_of, values_for
from riprap.state.checkpoints.increments import load_compiled
from riprap.state.ledger import BatchRecord

# How often a thread that waits for its time looks whether it is to end.
_LOOK_SECONDS = 0.5
# What could not be saved where it was marked is tried again after so long.
_AGAIN_SECONDS = 1.0
_NEVER = float("inf")
# Pages that wait are let go at such a share of the page limit.
_SHARE = 8


class Checkpointer:
    """Saves the protected operators of a processing element, each in its own time, one after the other."""

    def __init__(
        self,
        protection: ElementProtection,
        newest: BatchRecord | None,
        *,
        clock: Callable[[], float],
        tell: Tell,
        turn: threading.Lock,
        waiting: int = 0,
        before: Mapping[str, Status] | None = None,
        changed: Callable[[], None] = lambda: None,
        cuts: CutLog | None = None,
    ) -> None:
        """``newest`` is the last record, whose state nobody has saved, and ``waiting`` the first batch that a sink may
        still ask for; ``before`` is how things stood when another process saved this element. ``changed`` is called
        when they stand otherwise. ``cuts`` numbers those that are complete, where the element is in a region."""
        self._protection = protection
        self._site = protection.site
        self._clock = clock
        self._tell = tell
        self._turn = turn
        self._changed = changed
        self._oldest = -1
        # The batch of the newest cut, that of the newest made here, and the first that a sink may still ask for.
        self._cut, self.cut, self._asked_from = -1, -1, waiting
        self._watch = CutWatch(protection.element, cuts, clock, self._say)
        self._idle = self._not_before = 0.0
        self._lock = threading.Lock()
        self._ending, self._woken = threading.Event(), threading.Event()
        self._store = protection.durable.open(protection.element)
        self._thread: threading.Thread | None = None
        now = clock()
        self._operators = {
            operator.name: self._track(operator, newest, (before or {}).get(operator.name, Status()), now)
            for operator in protection.operators
        }
        if protection.replays:
            # Nobody knows yet whether the newest cut is complete.
            self._cut = max((t.newest_version for t in self._operators.values()), default=-1)
            self._groups = {protection.element: tuple(self._operators.values())}
            if protection.marks and (
                protection.at_once or not comes_back(self._site.ledger, cuts_of(self._operators.values()))
            ):
                for tracked in self._operators.values():
                    tracked.aim()
        else:
            self._groups = {name: (tracked,) for name, tracked in self._operators.items()}
        # What was taken up is saved at once: until then an older version would come back, whatever was asked for.
        self._schedule = Schedule(
            {name: min(t.protected.every or _NEVER for t in group) for name, group in self._groups.items()},
            now,
            at_once={n for n, group in self._groups.items() if any(t.whole is not None for t in group)},
        )

    def _track(
        self, operator: Protected, newest: BatchRecord | None, before: Status, now: float
    ) -> PendingOperator:
        versions = self._protection.durable.versions(self._store, operator.name)
        marks = self._protection.marks
        tracked = PendingOperator(operator, versions, marks=marks, since=now, until=now, status=before)
        if newest is not None and newest.batch >= 0:
            # What came in before is in the state, and nobody can tell it apart any more.
            tracked.whole = tracked.newest = newest
            if newest.marked or not marks:
                tracked.aim()
        return tracked

    def start(self) -> None:
        """Begin to save in the background."""
        self._thread = threading.Thread(
            target=self._run, name=f"checkpoints of {self._protection.element}", daemon=True
        )
        self._thread.start()

    def stop(self, *, save: bool = False) -> None:
        """End; a checkpoint under way is finished first. With ``save``, everything is saved as it is now."""
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
        if save:
            for group in self._groups.values():
                with self._turn:
                    for tracked in group:
                        tracked.aim()  # as things are now, marked or not
                    self._save(group)
        self._watch.look(self._asked_from)
        self._store.close()

    def note(
        self, record: BatchRecord, fresh: Sequence[FreshPage], entered: Mapping[str, int], waiting: int
    ) -> None:
        """Take note of a batch that is on record, of the pages that came in with it, and of how many tuples each
        operator had. One that is known already, because it was handed over twice, tells nothing new. ``waiting`` is
        the first batch that a sink may still ask for."""
        with self._lock:
            for tracked in self._operators.values():
                if record.batch <= tracked.batch:
                    continue
                tracked.note(record, fresh, self._protection.spans, entered.get(tracked.name, 0))
        self.wait_from(waiting)

    def wait_from(self, waiting: int) -> None:
        """Take note of the first batch that a sink may still ask for: a cut may be complete now."""
        with self._lock:
            self._asked_from = waiting
        if self._protection.marks and self._next()[0] < _NEVER:
            self._woken.set()

    def holding(self) -> set[str]:
        """Name the pages that are still to be saved."""
        with self._lock:
            waiting = {w.page for tracked in self._operators.values() for w in tracked.waiting}
            waiting |= {tracked.making for tracked in self._operators.values() if tracked.making is not None}
            wholes = [r for tracked in self._operators.values() for r in (tracked.whole, tracked.saving)]
            return waiting.union(*(record.pages() for record in wholes if record is not None))

    def statuses(self) -> dict[str, Status]:
        """Say for each operator how its checkpoints stand."""
        with self._lock:
            return {name: tracked.status for name, tracked in self._operators.items()}

    def _run(self) -> None:
        # Compiled code is loaded now, and not while the first checkpoint is due.
        load_compiled()
        self._idle = time.thread_time()
        while not self._ending.is_set():
            due, name = self._next()
            wait = due - self._clock()
            if wait > 0:
                self._woken.wait(min(wait, _LOOK_SECONDS))
                self._woken.clear()
                self._watch.look(self._asked_from)
                for each in self._operators.values():
                    self._make_room(each)
                continue
            group = self._groups[name]
            # Of all elements in this process one at a time.
            with self._turn:
                self._save(group)
            missed = 0 if self._protection.marks else self._schedule.done(name, self._clock())
            for tracked in group if missed else ():
                with self._lock:
                    tracked.status = replace(tracked.status, missed=tracked.status.missed + missed)
                self._say("checkpoint late", operator=tracked.name, missed=missed)
            self._changed()

    def _save(self, group: Sequence[PendingOperator]) -> None:
        """Save operators as of one batch, one after the other."""
        self._watch.look(self._asked_from)
        began = time.perf_counter()
        with self._lock:
            batch = self._due_batch(group)
            taken = [(t, t.take()) for t in group if t.saved_batch != batch] if batch >= 0 else []
        frozen = time.perf_counter()
        for number, (tracked, part) in enumerate(taken):
            try:
                self._save_one(tracked, part)
            except Exception as error:
                # Whatever it is, the application goes on, and people are told.
                self._failed(tracked, error, [other for other, _ in taken[number + 1 :]])
                return
        if taken:
            self._cut, self.cut = batch, batch
            self._watch.made(
                batch=batch,
                time=taken[0][1].until,
                size=sum(tracked.status.size for tracked in group),
                written=sum(tracked.status.written for tracked, _ in taken),
                freeze=frozen - began,
                persist=time.perf_counter() - frozen,
            )
            self._collect(group)

    def _next(self) -> tuple[float, str]:
        """Return who is saved next, and when."""
        if not self._protection.marks:
            return self._schedule.next()
        element = self._protection.element
        with self._lock:
            ready = self._due_batch(self._groups[element]) >= 0
        return self._not_before if ready else _NEVER, element

    def _due_batch(self, group: Sequence[PendingOperator]) -> int:
        """Return the batch as of which operators are to be saved, -1 if there is none, or they must wait."""
        if self._protection.replays and self._cut >= self._asked_from:
            return -1
        return batch_to_save(group)

    def _save_one(self, tracked: PendingOperator, taken: Taken) -> None:
        began = self._clock()
        if tracked.next is None:
            tracked.next = max(tracked.versions.numbers(), default=0) + 1
        slots, values = values_for(self._protection, tracked, taken)
        manifest = manifest_of(self._protection, tracked, taken, slots, tracked.next)
        written = tracked.versions.put(values) + tracked.versions.commit(manifest)
        with self._lock:
            gone = {id(w) for w in taken.waiting}
            tracked.waiting = [w for w in tracked.waiting if id(w) not in gone]
            tracked.slots, tracked.saving, tracked.next = slots, None, tracked.next + 1
            tracked.entered, tracked.since = tracked.entered - taken.entered, taken.until
            tracked.saved_batch = taken.batch
            tracked.status = replace(
                tracked.status,
                version=manifest.version,
                batch=taken.batch,
                time=taken.until,
                size=manifest.size,
                written=written,
                total=tracked.status.total + written,
                taken=tracked.status.taken + 1,
                seconds=self._clock() - began,
                cpu=time.thread_time() - self._idle,
            )

    def _collect(self, group: Sequence[PendingOperator]) -> None:
        """Let go of old versions, and of what input they were kept for."""
        tracked = group[0]
        try:
            if not self._protection.replays:
                tracked.versions.collect(tracked.protected.keep)
                return
            by_batch = {each.name: each.versions.by_batch() for each in group}
            cuts = sorted(set.intersection(*map(set, by_batch.values())), reverse=True)
            # Until the newest cut is complete, the one before it is what an element would come back from.
            cuts = cuts[: max(2, tracked.protected.keep)]
            for tracked in group:
                versions = by_batch[tracked.name]
                tracked.versions.keep_only([versions[batch] for batch in cuts])
        except Exception as error:
            self._say("warning", what=f"checkpoints of '{tracked.name}'", message=f"old ones stay: {error}")
            return
        if len(cuts) > 1:
            self._oldest = cuts[-1]

    @property
    def oldest_batch(self) -> int | None:
        """The oldest batch after which input may have to be computed again; None if none ever has."""
        return self._oldest if self._protection.replays else None

    def _failed(
        self, tracked: PendingOperator, error: Exception, others: Sequence[PendingOperator] = ()
    ) -> None:
        """Say that a checkpoint could not be saved; if pages pile up, or the store is damaged, start over.

        ``others`` were to be saved after it, and have not been.
        """
        self._not_before = self._clock() + _AGAIN_SECONDS
        with self._lock:
            for other in others:
                if other.saving is not None:
                    other.start_over()
            tracked.status = replace(tracked.status, failed=tracked.status.failed + 1)
            start_over = isinstance(error, CorruptValueError | MissingPageError) or tracked.saving is not None
            if start_over or self._piled(tracked):
                tracked.start_over()
        self._say("checkpoint failed", operator=tracked.name, error=type(error).__name__, message=str(error))

    def _say(self, kind: str, **details: Any) -> None:
        """Tell people, if that is possible: the disk they are told on may be full, and this thread goes on."""
        with contextlib.suppress(OSError):
            self._tell(kind, **details)

    def _piled(self, tracked: PendingOperator) -> bool:
        piled = sum(self._site.page_size(w.page) for w in tracked.waiting)
        return piled > self._site.pages.limit // _SHARE

    def _make_room(self, tracked: PendingOperator) -> None:
        """See to it that pages that wait do not become too many, nor too large: an operator may be due once an hour."""
        try:
            with self._lock:
                if self._piled(tracked):
                    tracked.start_over()
            merge_oldest(self._protection, tracked, self._lock)
        except Exception as error:
            # They wait one by one, and nothing is lost by it.
            if str(error) != tracked.trouble:
                tracked.trouble = str(error)
                self._say("warning", what=f"checkpoints of '{tracked.name}'", message=str(error))
