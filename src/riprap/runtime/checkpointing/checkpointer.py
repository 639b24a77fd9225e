"""Saving protected operators in the background.

    batch on record -> note() -> pages that came in wait        (the query's thread: names only)
    due -> take what waits -> values -> manifest -> collect      (a thread of its own: reads pages, writes to the store)

A batch never waits for the store. Pages wait in host memory until they are saved; once they take too much of it,
because the store is away or the time is long, they are let go, and the next checkpoint is of the whole state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.channels import ChannelReader
from riprap.compiler import Plan
from riprap.errors import CorruptValueError, MissingPageError
from riprap.runtime.checkpointing.durable import Durable, holds_objects
from riprap.runtime.checkpointing.schedule import Schedule
from riprap.runtime.site import Site
from riprap.runtime.task import Answer
from riprap.state.checkpoints.groups import put_together
from riprap.state.checkpoints.increments import Fresh, SlotState, load_compiled, no_seal
from riprap.state.checkpoints.index import Came, Index
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved
from riprap.state.checkpoints.restoring import newest_pace
from riprap.state.checkpoints.versions import Versions
from riprap.state.ledger import Record
from riprap.state.windows import restrict

Tell = Callable[..., None]
Range = tuple[int, int]
# How often a thread that waits for its time looks whether it is to end.
_LOOK_SECONDS = 0.5
# Pages that wait are put together once there are so many of a slot, and let go at such a share of the page limit.
_MANY_WAIT = 64
_SHARE = 8


@dataclass(frozen=True, slots=True)
class Waiting:
    """A page that is not saved yet: what came in with a batch, or several, in a slot and a range of buckets."""

    slot: str
    buckets: Range
    page: str
    since: float
    until: float
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


@dataclass(slots=True)
class _Operator:
    """What is known of a protected operator: pages that wait, and the durable state they come on top of.

    ``whole`` is the record whose whole state is to be saved next, because the one before cannot be added to;
    ``saving`` is such a record while it is being saved.
    """

    name: str
    versions: Versions
    waiting: list[Waiting] = field(default_factory=list)
    slots: dict[tuple[str, Range], SlotState] = field(default_factory=dict)
    whole: Record | None = None
    saving: Record | None = None
    next: int | None = None
    making: str | None = None
    entered: int = 0
    since: float = 0.0
    until: float = 0.0
    batch: int = -1
    saved_batch: int = -1
    trouble: str = ""
    status: Status = Status()


class Checkpointer:
    """Saves the protected operators of a processing element, each in its own time, one after the other."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        durable: Durable,
        layouts: Mapping[str, str],
        *,
        clock: Callable[[], float],
        tell: Tell,
        turn: threading.Lock,
        channels: Path,
    ) -> None:
        self._plan = plan
        self._site = site
        self._durable = durable
        self._layouts = layouts
        self._clock = clock
        self._tell = tell
        self._turn = turn
        self._channels = channels
        self._oldest = -1
        self._idle = 0.0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._store = durable.open(plan.name)
        self._thread: threading.Thread | None = None
        now = clock()
        self._operators = {name: self._known(name, now) for name in plan.protected}
        # What was taken up is saved at once: until then an older version would come back, whatever was asked for.
        self._schedule = Schedule(
            {n: p.every for n, p in plan.protected.items()},
            now,
            at_once={n for n, known in self._operators.items() if known.whole is not None},
        )

    def _known(self, name: str, now: float) -> _Operator:
        known = _Operator(name, self._durable.versions(self._store, name), since=now, until=now)
        batches = self._site.ledger.batches()
        if batches and batches[-1] >= 0:
            # What came in before is in the state, and nobody can tell it apart any more.
            known.whole = self._site.ledger.get(batches[-1])
            known.batch = known.whole.batch
        return known

    def start(self) -> None:
        """Begin to save in the background."""
        self._thread = threading.Thread(
            target=self._run, name=f"checkpoints of {self._plan.name}", daemon=True
        )
        self._thread.start()

    def stop(self, *, save: bool = False) -> None:
        """End; a checkpoint under way is finished first. With ``save``, everything is saved as it is now."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if save:
            for known in self._operators.values():
                with self._turn:
                    self._save(known)
        self._store.close()

    def note(self, record: Record, answers: Sequence[Answer]) -> None:
        """Take note of a batch that is on record, and of the pages that came in with it."""
        with self._lock:
            for known in self._operators.values():
                slots = set(self._plan.saved_slots(known.name))
                came = sum(a.activity[known.name].tuples_in for a in answers if known.name in a.activity)
                known.entered += came
                for answer in answers:
                    known.waiting += [
                        Waiting(slot, answer.manifest.buckets, page, known.until, record.time)
                        for slot, page in answer.fresh.items()
                        if slot in slots
                    ]
                known.until, known.batch = record.time, record.batch
                if known.whole is not None:
                    known.whole, known.waiting = record, []

    def holding(self) -> set[str]:
        """Name the pages that are still to be saved."""
        with self._lock:
            waiting = {w.page for known in self._operators.values() for w in known.waiting}
            waiting |= {known.making for known in self._operators.values() if known.making is not None}
            wholes = [r for known in self._operators.values() for r in (known.whole, known.saving)]
            return waiting.union(*(record.pages() for record in wholes if record is not None))

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Say for each operator how its checkpoints stand."""
        now = self._clock()
        with self._lock:
            return {
                name: {
                    **{k: v for k, v in asdict(known.status).items() if k != "time"},
                    "age": _age(known, now),
                }
                for name, known in self._operators.items()
            }

    def _run(self) -> None:
        # Compiled code is loaded now, and not while the first checkpoint is due.
        load_compiled()
        self._idle = time.thread_time()
        while not self._ending.is_set():
            due, name = self._schedule.next()
            wait = due - self._clock()
            if wait > 0:
                self._ending.wait(min(wait, _LOOK_SECONDS))
                for each in self._operators.values():
                    self._make_room(each)
                continue
            known = self._operators[name]
            # Of all elements in this process one at a time.
            with self._turn:
                self._save(known)
            missed = self._schedule.done(name, self._clock())
            if missed:
                with self._lock:
                    known.status = replace(known.status, missed=known.status.missed + missed)
                self._say("checkpoint late", operator=name, missed=missed)

    def _save(self, known: _Operator) -> None:
        with self._lock:
            taken, whole, batch = list(known.waiting), known.whole, known.batch
            entered, since, until = known.entered, known.since, known.until
            if batch == known.saved_batch or batch < 0:
                return
            known.saving, known.whole = whole, None
        began = self._clock()
        try:
            if known.next is None:
                known.next = max(known.versions.numbers(), default=0) + 1
            slots, values = self._advance(known, taken, whole)
            manifest = CheckpointManifest(
                operator=known.name,
                layout=self._layouts[known.name],
                version=known.next,
                time=until,
                batch=batch,
                buckets=self._plan.buckets,
                rate=entered / (until - since) if until > since else 0.0,
                slots={
                    slot: tuple(
                        k.saved for (name, _), state in slots.items() if name == slot for k in state.kept
                    )
                    for slot in self._plan.saved_slots(known.name)
                },
            )
            written = known.versions.put(values) + known.versions.commit(manifest)
        except Exception as error:
            # Whatever it is, the application goes on, and people are told.
            self._failed(known, error)
            return
        with self._lock:
            gone = {id(w) for w in taken}
            known.waiting = [w for w in known.waiting if id(w) not in gone]
            known.slots, known.saving, known.next = slots, None, known.next + 1
            known.entered, known.since, known.saved_batch = known.entered - entered, until, batch
            known.status = replace(
                known.status,
                version=manifest.version,
                batch=batch,
                time=until,
                size=manifest.size,
                written=written,
                total=known.status.total + written,
                taken=known.status.taken + 1,
                seconds=self._clock() - began,
                cpu=time.thread_time() - self._idle,
            )
        try:
            known.versions.collect(self._plan.protected[known.name].keep)
            if self._plan.graph[known.name].replays:
                self._let_go_upstream(known)
        except Exception as error:
            self._say("warning", what=f"checkpoints of '{known.name}'", message=f"old ones stay: {error}")

    @property
    def oldest_batch(self) -> int | None:
        """The oldest batch after which input may have to be computed again; None if none ever has."""
        return self._oldest if self._plan.replays else None

    def _let_go_upstream(self, known: _Operator) -> None:
        """Let channels go of what the oldest version that stays has in it."""
        oldest = min(known.versions.manifest(number).batch for number in known.versions.numbers())
        done = self._site.ledger.get(oldest).sources
        for channel in self._plan.inlets.values():
            frontier = done[channel.root][1] if channel.root in done else None
            if frontier is not None:
                ChannelReader(self._channels / channel.name, self._plan.name).acknowledge(frontier)
        self._oldest = oldest

    def _advance(
        self, known: _Operator, taken: Sequence[Waiting], whole: Record | None
    ) -> tuple[dict[tuple[str, Range], SlotState], dict[str, dict[str, pa.Buffer]]]:
        """Return the durable state of every slot and range of buckets, and the values it takes to store it."""
        policy = self._plan.protected[known.name]
        group = None if policy.group == "auto" else policy.group
        fresh: dict[tuple[str, Range], list[Fresh]] = {}
        if whole is not None:
            fresh = self._all_of(known, whole)
        else:
            for each in reversed(taken):
                page = Fresh(self._site.find_page(each.page), each.since, each.until, each.came)
                fresh.setdefault((each.slot, each.buckets), []).append(page)
        slots = {} if whole is not None else dict(known.slots)
        values: dict[str, dict[str, pa.Buffer]] = {}
        seal = known.versions.seal if holds_objects(self._plan.graph[known.name]) else no_seal

        def load(saved: Saved) -> list[pa.RecordBatch]:
            found = known.versions.read(saved)
            if not found.whole:
                raise CorruptValueError(f"value {saved.name} of '{known.name}' is damaged in the store")
            return [g for g in found.groups if g is not None]

        for place, pages in fresh.items():
            state = slots.get(place) or SlotState(place[1], group, [], seal)
            slots[place], made = state.advance(pages, load)
            values.setdefault(place[0], {}).update(made)
        return slots, values

    def _all_of(self, known: _Operator, record: Record) -> dict[tuple[str, Range], list[Fresh]]:
        """Return the whole state of an operator, as the tasks have it.

        How fast it was filled is known from the version before: what will be lost next must push as much out.
        """
        found: dict[tuple[str, Range], list[Fresh]] = {}
        operator = self._plan.graph[known.name]
        slides = {f"{known.name}/{slot}" for slot in operator.slides}
        spans = [self._plan.span(task) for task in range(self._plan.tasks)]
        for slot in self._plan.saved_slots(known.name):
            pace = newest_pace(known.versions, slot, self._layouts[known.name]) if slot in slides else None
            for span in spans:
                pages = [
                    Fresh(
                        restrict(self._site.find_page(name), *m.buckets, self._plan.buckets),
                        record.time,
                        record.time,
                    )
                    for m in record.state_of(*span)
                    for name in m.pages.get(slot, ())
                ]
                if pace is not None and pages:
                    came = pace.came.within(*span, self._plan.buckets)
                    pages[0] = replace(pages[0], came=came, over=pace.seconds)
                found[slot, span] = pages
        return found

    def _failed(self, known: _Operator, error: Exception) -> None:
        """Say that a checkpoint could not be saved; if pages pile up, or the store is damaged, start over."""
        with self._lock:
            known.status = replace(known.status, failed=known.status.failed + 1)
            start_over = isinstance(error, CorruptValueError | MissingPageError) or known.saving is not None
            if start_over or self._piled(known):
                self._start_over(known)
        self._say("checkpoint failed", operator=known.name, error=type(error).__name__, message=str(error))

    def _say(self, kind: str, **details: Any) -> None:
        """Tell people, if that is possible: the disk they are told on may be full, and this thread goes on."""
        with contextlib.suppress(OSError):
            self._tell(kind, **details)

    def _piled(self, known: _Operator) -> bool:
        piled = sum(self._site.page_size(w.page) for w in known.waiting)
        return piled > self._site.pages.limit // _SHARE

    def _start_over(self, known: _Operator) -> None:
        known.waiting, known.slots, known.saving = [], {}, None
        known.whole = self._site.ledger.get(known.batch)

    def _make_room(self, known: _Operator) -> None:
        """See to it that pages that wait do not become too many, nor too large: an operator may be due once an hour."""
        try:
            with self._lock:
                if self._piled(known):
                    self._start_over(known)
            self._put_together(known)
        except Exception as error:
            # They wait one by one, and nothing is lost by it.
            if str(error) != known.trouble:
                known.trouble = str(error)
                self._say("warning", what=f"checkpoints of '{known.name}'", message=str(error))

    def _put_together(self, known: _Operator) -> None:
        """Make one page of the oldest that wait, where there are many."""
        with self._lock:
            counts = Counter((w.slot, w.buckets) for w in known.waiting)
            place, many = counts.most_common(1)[0] if counts else (("", (0, 0)), 0)
            if many <= _MANY_WAIT:
                return
            old = [w for w in known.waiting if (w.slot, w.buckets) == place][: _MANY_WAIT // 2]
            # Named before it is there: whoever collects pages meanwhile leaves it alone.
            known.making = name = f"{old[-1].page}-and-before"
        try:
            pages = [self._site.find_page(w.page) for w in reversed(old)]
            came = [w.came or Came.of(Index.of(p)) for w, p in zip(reversed(old), pages, strict=True)]
            self._site.pages.write(name, put_together(pages))
            made = replace(old[-1], page=name, since=old[0].since, came=Came.over(came))
            self._take_for(known, old, made)
        finally:
            known.making = None

    def _take_for(self, known: _Operator, old: Sequence[Waiting], made: Waiting) -> None:
        gone = set(map(id, old))
        with self._lock:
            first = next((n for n, w in enumerate(known.waiting) if id(w) in gone), None)
            if first is not None:
                # They may have been let go meanwhile.
                known.waiting[first] = made
                known.waiting = [w for w in known.waiting if id(w) not in gone]


def _age(known: _Operator, now: float) -> float | None:
    """Return for how many seconds what came in has not been saved; None if there is no checkpoint."""
    if known.status.time is None:
        return None
    return 0.0 if known.batch == known.saved_batch else now - known.status.time
