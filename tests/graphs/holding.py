"""What operators mean that let tuples pass now, later or never: deduplicate, delay, throttle, gate."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.graphs.expressions import Row
from tests.graphs.model import Happening, Key, Operator, Output, Schema, hash_of, key_of
from tests.operators.model import latest

import riprap as rr


@dataclass(frozen=True, kw_only=True)
class Passing(Operator):
    """An operator that never changes a tuple. Time is told by column ``on``, or else by the clock."""

    by: tuple[str, ...] = ()
    on: str | None = None

    @property
    def clocked(self) -> bool:
        return self.on is None

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]]


@dataclass(frozen=True, kw_only=True)
class Deduplicate(Passing):
    """Drops what was put out shortly before: ``tuples``, or microseconds of ``time``."""

    tuples: int | None = None
    time: int | None = None

    @property
    def clocked(self) -> bool:
        return self.time is not None and self.on is None

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        if self.tuples is not None:
            return [app.deduplicate(self.name, ports[0], by=self.by, tuples=self.tuples)]
        heard = clock if self.clocked else None
        return [
            app.deduplicate(
                self.name, ports[0], by=self.by, time=(self.time or 0) / 1_000_000, on=self.on, clock=heard
            )
        ]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        number, clock = 0, None
        put_out: dict[Key, int | None] = {}
        times: dict[Key, int | None] = {}
        for event in events:
            if event.time is not None:
                clock = latest(clock, event.time)
                continue
            if event.row is None:
                output.pass_on(event)
                continue
            key = key_of(event.row, self.by)
            number += 1
            times[key] = latest(times.get(key), event.row[self.on]) if self.on is not None else clock
            now = number if self.tuples is not None else times[key]
            if key not in put_out or self._passes(put_out[key], now):
                put_out[key] = now
                output.put(event, event.row)
        return [output]

    def _passes(self, before: int | None, now: int | None) -> bool:
        if self.tuples is not None:
            assert before is not None
            assert now is not None
            return now - before > self.tuples
        if now is None or before is None:
            # Long ago is one time, which lies further back than any other.
            return now is not None
        return now - before >= (self.time or 0)


@dataclass
class Queue:
    """The tuples of a key that wait, each with when it is due (None: when time begins)."""

    now: int | None = None
    waiting: deque[tuple[int | None, Row]] = field(default_factory=deque)
    last_due: int | None = None

    def leave(self) -> list[Row]:
        """Let go of what is due now."""
        gone = []
        while (
            self.waiting
            and self.now is not None
            and (self.waiting[0][0] is None or self.waiting[0][0] <= self.now)
        ):
            gone.append(self.waiting.popleft()[1])
        return gone


@dataclass(frozen=True, kw_only=True)
class Held(Passing):
    """An operator in which tuples wait."""

    @property
    def depth(self) -> int:
        return 2 if self.clocked else 1

    def enter(self, queue: Queue, row: Row) -> list[Row]:
        """Let a tuple come at the queue's time; return what leaves."""
        raise NotImplementedError

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        queues: dict[Key, Queue] = {}
        clock: int | None = None
        for event in events:
            if event.time is not None:
                clock = latest(clock, event.time)
                hashes = {key: hash_of(key, self.by, schemas[0]) for key in queues}
                for key in sorted(queues, key=lambda key: hashes[key]):
                    queues[key].now = clock
                    for row in queues[key].leave():
                        output.put(event, row, hashes[key])
            elif event.row is not None:
                queue = queues.setdefault(key_of(event.row, self.by), Queue())
                queue.now = latest(queue.now, event.row[self.on]) if self.on is not None else clock
                for row in self.enter(queue, event.row):
                    output.put(event, row)
        return [output]


@dataclass(frozen=True, kw_only=True)
class Delay(Held):
    """Puts out tuples ``time`` microseconds later."""

    time: int

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        heard = clock if self.clocked else None
        return [
            app.delay(
                self.name, ports[0], time=(self.time or 0) / 1_000_000, on=self.on, clock=heard, by=self.by
            )
        ]

    def enter(self, queue: Queue, row: Row) -> list[Row]:
        gone = queue.leave()
        queue.waiting.append((None if queue.now is None else queue.now + self.time, row))
        return gone


@dataclass(frozen=True, kw_only=True)
class Throttle(Held):
    """Puts out at most ``rate`` tuples a second."""

    rate: float

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        heard = clock if self.clocked else None
        return [app.throttle(self.name, ports[0], rate=self.rate, on=self.on, clock=heard, by=self.by)]

    def enter(self, queue: Queue, row: Row) -> list[Row]:
        gap = math.ceil(1_000_000 / Fraction(repr(float(self.rate))))
        if queue.now is None:
            queue.waiting.append((None, row))
            return []
        due = queue.now if queue.last_due is None else max(queue.now, queue.last_due + gap)
        queue.last_due = due
        queue.waiting.append((due, row))
        return queue.leave()


@dataclass(frozen=True, kw_only=True)
class Gate(Operator):
    """Lets tuples pass while few are unacknowledged."""

    by: tuple[str, ...] = ()
    unacknowledged: int

    @property
    def depth(self) -> int:
        return 1

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        return [app.gate(self.name, ports[0], ports[1], unacknowledged=self.unacknowledged, by=self.by)]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        outstanding: defaultdict[Key, int] = defaultdict(int)
        waiting: defaultdict[Key, deque[Row]] = defaultdict(deque)
        for event in events:
            if event.row is None:
                continue
            key = key_of(event.row, self.by)
            if event.port == 0:
                waiting[key].append(event.row)
            else:
                outstanding[key] = max(outstanding[key] - 1, 0)
            if waiting[key] and outstanding[key] < self.unacknowledged:
                outstanding[key] += 1
                output.put(event, waiting[key].popleft())
        return [output]
