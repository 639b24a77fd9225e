"""What windows mean, a tuple at a time, in plain Python: events go in, results and other events come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from riprap.state.hashing import hash_arrays
from riprap.windows import Emit, Every, OnClose, Window

Row = dict[str, Any]


@dataclass(frozen=True)
class Tick:
    """A clock's tick; its time is in microseconds."""

    time: int


@dataclass(frozen=True)
class Punctuation:
    """A punctuation."""


Event = Row | Tick | Punctuation
Result = Callable[[list[Row]], Row]


def aggregate(
    events: Iterable[Event], *, by: Sequence[str], window: Window, emit: Emit, result: Result
) -> list[Event]:
    """Put in the place of each tuple the results it makes due; those that a tick or punctuation makes go before it."""
    by_clock = needs_clock(window, emit)
    keys: dict[tuple[Any, ...], KeyWindow] = {}
    time: int | None = None
    found: list[Event] = []
    for event in events:
        due: list[tuple[tuple[Any, ...], list[Row]]] = []
        if isinstance(event, dict):
            key = tuple(event[k] for k in by)
            mine = keys.setdefault(key, KeyWindow(window, emit, time if by_clock else None))
            due = [(key, contents) for contents in mine.tuple_comes(event)]
        else:
            if isinstance(event, Tick):
                time = latest(time, event.time)
            for key in sorted(keys, key=hash_of):
                if isinstance(event, Punctuation):
                    made = keys[key].punctuation_comes()
                else:
                    made = keys[key].time_comes(time) if by_clock else []
                due += [(key, contents) for contents in made]
        found += [{**dict(zip(by, key, strict=True)), **result(contents)} for key, contents in due]
        if not isinstance(event, dict):
            found.append(event)
    return found


def needs_clock(window: Window, emit: Emit) -> bool:
    """Say whether a clock tells the time of a window or of its output: one that has a time column goes by that."""
    by_time = window.time is not None or (isinstance(emit, Every) and emit.time is not None)
    return by_time and not (window.time is not None and window.on is not None)


@dataclass
class KeyWindow:
    """The window of one key. Times are numbers, None is long ago; each tuple in it has the number it counts with."""

    window: Window
    emit: Emit
    now: int | None = None
    held: list[tuple[Any, Row]] = field(default_factory=list)
    seen: int = 0
    value: float = 0

    def tuple_comes(self, row: Row) -> list[list[Row]]:
        window, due = self.window, []
        if window.time is not None and window.on is not None:
            due += self.time_comes(latest(self.now, row[window.on]))
        if window.delta is not None:
            if row[window.on] is not None:
                self.value = row[window.on]
            if window.shape == "tumbling" and self.held and abs(self.value - self.held[0][0]) > window.delta:
                due += self.close()
        self.held.append((self.value if window.delta is not None else self.now, row))
        self.seen += 1
        self.leave()
        every = self.emit.tuples if isinstance(self.emit, Every) else None
        if every and (self.seen if window.shape == "sliding" else len(self.held)) % every == 0:
            due.append(self.contents)
        if window.shape == "tumbling" and window.tuples == len(self.held):
            due += self.close()
        return due

    def time_comes(self, after: int | None) -> list[list[Row]]:
        window, before, due = self.window, self.now, list[list[Row]]()
        self.now = after
        if after is None or after == before:
            return due
        sliding_time = window.shape == "sliding" and window.time is not None
        if sliding_time and before is None:
            self.held = []
        if window.shape == "tumbling" and window.time is not None and passes(before, after, window.time):
            due += self.close()
        period = self.emit.time if isinstance(self.emit, Every) else None
        if period is not None and sliding_time:
            moments = (
                range(before // period * period + period, after + 1, period) if before is not None else ()
            )
            for moment in moments:
                self.held = [(at, row) for at, row in self.held if at >= moment - window.time]
                due += [self.contents] if self.held else []
        elif period is not None and passes(before, after, period):
            due += [self.contents] if self.held else []
        self.leave()
        return due

    def punctuation_comes(self) -> list[list[Row]]:
        return self.close() if self.window.punctuation else []

    def close(self) -> list[list[Row]]:
        contents, self.held = self.contents, []
        return [contents] if contents and isinstance(self.emit, OnClose) else []

    def leave(self) -> None:
        """Let go of tuples that are too old for a sliding window."""
        window = self.window
        if window.shape == "tumbling":
            return
        if window.tuples is not None:
            self.held = self.held[-window.tuples :]
        elif window.delta is not None:
            while self.held and abs(self.held[0][0] - self.value) > window.delta:
                del self.held[0]
        elif self.now is not None:
            while self.held and self.held[0][0] is not None and self.held[0][0] <= self.now - window.time:
                del self.held[0]

    @property
    def contents(self) -> list[Row]:
        return [row for _, row in self.held]


def passes(before: int | None, after: int, period: int) -> bool:
    """Say whether a multiple of the period lies after one time, and not after the other."""
    return before is None or after // period > before // period


def latest(now: int | None, time: int | None) -> int | None:
    """Return the later of two times, where None is long ago."""
    return max((t for t in (now, time) if t is not None), default=None)


def hash_of(key: tuple[Any, ...]) -> int:
    """Return the hash of a key of text columns."""
    return int(hash_arrays([pa.array([value], pa.string()) for value in key])[0]) if key else 0
