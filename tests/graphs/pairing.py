"""What operators mean that bring tuples of several ports together: join and barrier."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.graphs.expressions import Expression, Row
from tests.graphs.model import Happening, Key, Operator, Output, Schema, hash_of, key_of
from tests.graphs.routing import Named, computed, select_of, types_of
from tests.operators.model import latest

import riprap as rr
from riprap.windows import Window


def labels_of(ports: Sequence[Any], several: Sequence[str]) -> tuple[str, ...]:
    """Return what expressions call the ports."""
    streams = [(port,) if isinstance(port, rr.Stream) else tuple(port) for port in ports]
    return tuple(s[0].label if len(s) == 1 else name for s, name in zip(streams, several, strict=True))


@dataclass
class Member:
    """A tuple in a join's window: when it came (None: long ago), and whether it has matched."""

    row: Row
    time: int | None
    matched: bool = False


@dataclass
class Meeting:
    """What a join holds of one key."""

    now: int | None = None
    held: tuple[deque[Member], deque[Member]] = field(default_factory=lambda: (deque(), deque()))


@dataclass(frozen=True, kw_only=True)
class Join(Operator):
    """Matches each tuple with the other port's window."""

    by: tuple[str, ...]
    windows: tuple[Window, Window]
    where: Expression | None = None
    select: Named
    outer: str = "inner"

    @property
    def clocked(self) -> bool:
        return any(w.time and w.on is None for w in self.windows)

    @property
    def depth(self) -> int:
        return 2 if self.clocked else 1

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [types_of(self.select)]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        labels = labels_of(ports, ("left", "right"))
        return [
            app.join(
                self.name,
                *ports,
                by=self.by,
                windows=self.windows,
                where=self.where.sql(labels) if self.where is not None else None,
                select=select_of(self.select, labels),
                outer=self.outer,
                clock=clock if self.clocked else None,
            )
        ]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        keys: dict[Key, Meeting] = {}
        clock: int | None = None
        for event in events:
            if event.time is not None:
                clock = latest(clock, event.time)
                hashes = {key: hash_of(key, self.by, schemas[0]) for key in keys}
                for key in sorted(keys, key=lambda key: hashes[key]):
                    for pair in self._time_goes_on(keys[key], clock):
                        output.put(event, computed(self.select, *pair), hashes[key])
            elif event.row is not None:
                key = key_of(event.row, self.by)
                if None in key:
                    pairs = self._unmatched(event.port, [Member(event.row, None)])
                else:
                    meeting = keys.setdefault(key, Meeting(clock))
                    on = self.windows[event.port].on if self._times_count else None
                    time = clock if self.clocked else latest(meeting.now, event.row[on] if on else None)
                    pairs = self._comes(meeting, event.port, event.row, time)
                for pair in pairs:
                    output.put(event, computed(self.select, *pair))
        return [output]

    @property
    def _times_count(self) -> bool:
        return any(w.time for w in self.windows)

    def _comes(
        self, meeting: Meeting, port: int, row: Row, time: int | None
    ) -> Iterator[tuple[Row | None, Row | None]]:
        yield from self._time_goes_on(meeting, time)
        me, mine, size = Member(row, time), meeting.held[port], self.windows[port].tuples
        if not self.windows[port].empty:
            mine.append(me)
            if size is not None and len(mine) > size:
                yield from self._unmatched(port, [mine.popleft()])
        for other in meeting.held[1 - port]:
            pair = (row, other.row) if port == 0 else (other.row, row)
            if self.where is None or self.where.of(*pair) is True:
                me.matched = other.matched = True
                yield pair
        if self.windows[port].empty:
            yield from self._unmatched(port, [me])

    def _time_goes_on(self, meeting: Meeting, time: int | None) -> Iterator[tuple[Row | None, Row | None]]:
        meeting.now = time
        if time is None:
            return
        for port, window in enumerate(self.windows):
            held = meeting.held[port]
            while window.time and held and (held[0].time is None or held[0].time <= time - window.time):
                yield from self._unmatched(port, [held.popleft()])

    def _unmatched(self, port: int, leaving: Sequence[Member]) -> Iterator[tuple[Row | None, Row | None]]:
        outer = self.outer == "full" or (self.outer == "left" and port == 0)
        for member in leaving:
            if outer and not member.matched:
                yield (member.row, None) if port == 0 else (None, member.row)


@dataclass(frozen=True, kw_only=True)
class Barrier(Operator):
    """Brings together the first tuples of all ports, then the second ones, and so on."""

    by: tuple[str, ...] = ()
    select: Named

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [types_of(self.select)]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        labels = labels_of(ports, [f"port{n}" for n in range(1, len(ports) + 1)])
        return [app.barrier(self.name, *ports, by=self.by, select=select_of(self.select, labels))]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        waiting: defaultdict[Key, list[deque[Row]]] = defaultdict(lambda: [deque() for _ in self.ports])
        for event in events:
            if event.row is None:
                continue
            queues = waiting[key_of(event.row, self.by)]
            queues[event.port].append(event.row)
            if all(queues):
                output.put(event, computed(self.select, *(queue.popleft() for queue in queues)))
        return [output]
