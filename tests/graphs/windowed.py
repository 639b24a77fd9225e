"""What operators over windows mean: aggregate, sort, top. The windows themselves are the model's of aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.graphs.expressions import Column, Row, rank
from tests.graphs.model import Happening, Key, Operator, Output, Schema, hash_of, key_of
from tests.operators.model import KeyWindow, latest, needs_clock
from tests.oracle import fold

import riprap as rr
from riprap.windows import Emit, OnClose, Window

# (output, function, column): the column is None for count(*).
Calls = tuple[tuple[str, str, Column | None], ...]


@dataclass(frozen=True, kw_only=True)
class Windowed(Operator):
    """An operator that does something with each window that is due."""

    by: tuple[str, ...] = ()
    window: Window

    @property
    def rule(self) -> Emit:
        return OnClose()

    @property
    def clocked(self) -> bool:
        return needs_clock(self.window, self.rule)

    def due(
        self, events: Sequence[Happening], schema: Schema
    ) -> Iterator[tuple[Happening, Key | None, int, list[Row]]]:
        """Yield the windows that are due, each with what made it so, its key, and that one's number where it counts.

        After those of a punctuation comes one without a key.
        """
        keys: dict[Key, KeyWindow] = {}
        now: int | None = None
        for event in events:
            if event.row is not None:
                key = key_of(event.row, self.by)
                window = keys.setdefault(
                    key, KeyWindow(self.window, self.rule, now if self.clocked else None)
                )
                made = window.tuple_comes(self._measured(event.row))
                yield from ((event, key, 0, [each["row"] for each in contents]) for contents in made)
                continue
            if event.time is not None:
                now = latest(now, event.time)
            hashes = {key: hash_of(key, self.by, schema) for key in keys}
            for key in sorted(keys, key=lambda key: hashes[key]):
                made = keys[key].punctuation_comes() if event.time is None else keys[key].time_comes(now)
                yield from (
                    (event, key, hashes[key], [each["row"] for each in contents]) for contents in made
                )
            if event.time is None:
                yield event, None, 0, []

    def _measured(self, row: Row) -> Row:
        """Return a tuple with what its window looks at: NaN, like null, tells of no change."""
        told = row[self.window.on] if self.window.on is not None else None
        return {self.window.on or "": None if told != told else told, "row": row}


@dataclass(frozen=True, kw_only=True)
class Aggregate(Windowed):
    """Computes over windows."""

    emit: Emit | None = None
    calls: Calls

    @property
    def rule(self) -> Emit:
        default = rr.every(tuples=1) if self.window.shape == "sliding" else rr.on_close()
        return self.emit if self.emit is not None else default

    @property
    def depth(self) -> int:
        if self.clocked or self.window.punctuation:
            return 2
        by_time = getattr(self.rule, "time", None) is not None
        return 1 if by_time or (self.window.shape == "tumbling" and self.window.time is not None) else 0

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        kinds = {"count": "bigint", "avg": "double"}
        made = {
            name: kinds.get(function, column.type if column else "") for name, function, column in self.calls
        }
        return [{**{k: ports[0][k] for k in self.by}, **made}]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        select = ", ".join(
            f"{function}({c.name if c else '*'}) as {name}" for name, function, c in self.calls
        )
        heard = clock if self.clocked else None
        return [
            app.aggregate(
                self.name,
                ports[0],
                by=self.by,
                window=self.window,
                emit=self.emit,
                clock=heard,
                select=select,
            )
        ]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        for event, key, hash_part, window in self.due(events, schemas[0]):
            if key is None:
                output.pass_on(event)
                continue
            values = {
                name: fold(function, [row[column.name] if column else 1 for row in window])
                for name, function, column in self.calls
            }
            output.put(event, {**{k: window[0][k] for k in self.by}, **values}, hash_part)
        return [output]


@dataclass(frozen=True, kw_only=True)
class Sort(Windowed):
    """Puts the tuples of windows in order, or the first ``n`` of them; ``order`` is (column, falls, nulls first)."""

    order: tuple[tuple[str, bool, bool | None], ...]
    n: int | None = None

    @property
    def depth(self) -> int:
        return 2 if self.clocked or self.window.punctuation else 1

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        places = {None: "", True: " nulls first", False: " nulls last"}
        order = ", ".join(f"{c}{' desc' if falls else ''}{places[nulls]}" for c, falls, nulls in self.order)
        heard = clock if self.clocked else None
        if self.n is None:
            return [app.sort(self.name, ports[0], order=order, window=self.window, by=self.by, clock=heard)]
        return [
            app.top(self.name, ports[0], n=self.n, order=order, window=self.window, by=self.by, clock=heard)
        ]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        for event, key, hash_part, window in self.due(events, schemas[0]):
            if key is None:
                continue
            for row in self._sorted(window)[: self.n]:
                output.put(event, row, hash_part)
            output.put(event, None, hash_part)
        return [output]

    def _sorted(self, window: list[Row]) -> list[Row]:
        # Python's sort keeps equal tuples as they are, in reverse too: the last column first.
        for column, falls, nulls_first in reversed(self.order):
            there = [row for row in window if row[column] is not None]
            null = [row for row in window if row[column] is None]
            there.sort(key=lambda row: rank(row[column]), reverse=falls)
            first = nulls_first if nulls_first is not None else not falls
            window = null + there if first else there + null
        return window
