"""Aggregates over windows, one behind the other: as applications that are run, and as the model has them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.operators.model import Event, Punctuation, Row, Tick, aggregate, needs_clock
from tests.stages import Stage

import riprap as rr
from riprap.expressions import parse_schema
from riprap.faults.replay import StreamPiece
from riprap.windows import Emit, Window

FEED = parse_schema("at bigint, pos bigint, k string, j string, id bigint, t timestamp, x double, i bigint")
CLOCK = parse_schema("at bigint, pos bigint, t timestamp")


@dataclass(frozen=True)
class Rule:
    """An aggregate: its key, window and output rule."""

    by: tuple[str, ...]
    window: Window
    emit: Emit

    @property
    def clocked(self) -> bool:
        return needs_clock(self.window, self.emit)

    @property
    def lasts(self) -> list[str]:
        return [c for c in ("id", "x", "i", "k", "j") if c not in self.by]

    def select(self) -> str:
        """Tell all ids of a window, and what another aggregate needs."""
        return ", ".join(
            ["collect_list(id) as ids", "max(t) as t", *(f"last({c}) as {c}" for c in self.lasts)]
        )

    def result(self, window: list[Row]) -> Row:
        """Say the same in plain Python."""
        times = [row["t"] for row in window if row["t"] is not None]
        last = {c: window[-1][c] for c in self.lasts}
        return {"ids": [row["id"] for row in window], "t": max(times, default=None), **last}


@lru_cache(maxsize=500)
def application(rules: tuple[Rule, ...], apart: bool) -> rr.Application:
    """Put aggregates one behind the other; ``apart`` from the sources, which other elements can punctuate."""
    app = rr.Application("windowed")
    stream = app.source("feed", rr.rows(FEED.empty_table()), position="pos", ordering="at")
    clock = None
    if any(rule.clocked for rule in rules):
        clock = app.clock("clock", rr.rows(CLOCK.empty_table()), time="t", position="pos", ordering="at")
    if apart:
        app.place("sources", stream, *([clock] if clock else []))
    for number, rule in enumerate(rules):
        heard = clock if rule.clocked else None
        stream = app.aggregate(
            f"a{number}",
            stream,
            by=rule.by,
            window=rule.window,
            emit=rule.emit,
            clock=heard,
            select=rule.select(),
        )
    app.sink("out", stream, rr.memory())
    return app


@dataclass(frozen=True)
class Happening:
    """An event and where it stands: ordering number and position."""

    at: int
    pos: int
    event: Event


def run(
    rules: tuple[Rule, ...],
    happenings: Sequence[Happening],
    ends: Sequence[int],
    *,
    apart: bool,
    buckets: int = 1,
    tasks: Sequence[int] = (),
    held_back: Sequence[set[str]] = (),
) -> list[Row]:
    """Run aggregates over batches that end before the ordering numbers ``ends``; return what reaches the sink."""
    app = application(rules, apart)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets)
        clocked = any(rule.clocked for rule in rules)
        lasts = [*ends, 10**9]
        for batch, (low, high) in enumerate(zip([-1, *ends], lasts, strict=True)):
            part = [h for h in happenings if low <= h.at < high]
            if apart:
                # Punctuations come by the channel from the sources, as if made there.
                first = [h.at if clocked else batch for h in part if isinstance(h.event, Punctuation)]
                position = [h.pos for h in part if isinstance(h.event, Punctuation)]
                marks = tuple(np.array(numbers) for numbers in (first, [0] * len(first), position))
                for element in stage.elements.values():
                    if first and "feed" in element.waiting:
                        none = element.plan.graph["feed"].schema.empty_table()
                        columns = {name: none.column(name).combine_chunks() for name in none.column_names}
                        nothing = np.empty(0, np.int64)
                        element.waiting["feed"].append(
                            StreamPiece(columns, (nothing,) * 3, np.empty(0, np.uint64), marks)
                        )
            tables = {"feed": feed_of(part), **({"clock": clock_of(part)} if clocked else {})}
            back = behind(stage, held_back[batch]) if batch < min(len(held_back), len(ends)) else set()
            dealt = tasks[batch] if batch < len(tasks) else 1
            found += stage.feed(tables, tasks=dealt, held_back=back)["out"]
    return found


def behind(stage: Stage, slow: set[str]) -> set[str]:
    """Return the elements that take in nothing while some do not: those and all that read from them."""
    found = set(slow)
    for name, element in stage.elements.items():
        if any(channel.writer in found for channel in element.plan.inlets.values()):
            found.add(name)
    return found


def feed_of(part: Sequence[Happening]) -> pa.Table:
    rows = [{**h.event, "at": h.at, "pos": h.pos} for h in part if isinstance(h.event, dict)]
    return pa.Table.from_pylist([{**r, "t": stamp(r["t"])} for r in rows], FEED)


def clock_of(part: Sequence[Happening]) -> pa.Table:
    ticks = [h for h in part if isinstance(h.event, Tick)]
    return pa.Table.from_pylist([{"at": h.at, "pos": h.pos, "t": stamp(h.event.time)} for h in ticks], CLOCK)


def stamp(time: int | None) -> datetime | None:
    return None if time is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)


def expected(rules: Sequence[Rule], happenings: Sequence[Happening]) -> list[Row]:
    """Take the events in order (a tick after the tuples of its ordering number) through the model."""
    ordered = sorted(happenings, key=lambda h: (h.at, isinstance(h.event, Tick), h.pos))
    events = [h.event for h in ordered]
    for rule in rules:
        events = aggregate(events, by=rule.by, window=rule.window, emit=rule.emit, result=rule.result)
    return [{**row, "t": stamp(row["t"])} for row in events if isinstance(row, dict)]
