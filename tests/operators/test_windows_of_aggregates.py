"""Aggregates over every kind of window and output rule, against the plain model: what is put out, and in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.model import Event, Punctuation, Row, Tick, aggregate, needs_clock
from tests.stages import Stage

import riprap as rr
from riprap.expressions import parse_schema
from riprap.graph.windows import Emit, OnClose, Window

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
        return ", ".join(["collect_list(id) as ids", "max(t) as t", *(f"last({c}) as {c}" for c in self.lasts)])

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
            f"a{number}", stream, by=rule.by, window=rule.window, emit=rule.emit, clock=heard, select=rule.select()
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
    path: str | None = None,
) -> list[Row]:
    """Run aggregates over batches that end before the ordering numbers ``ends``; return what reaches the sink."""
    app = application(rules, apart)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets, path=path)
        clocked = any(rule.clocked for rule in rules)
        lasts = [*ends, 10**9]
        for batch, (low, high) in enumerate(zip([-1, *ends], lasts, strict=True)):
            part = [h for h in happenings if low <= h.at < high]
            if apart:
                # Punctuations come by the channel from the sources, as if made there.
                first = [h.at if clocked else batch for h in part if isinstance(h.event, Punctuation)]
                position = [h.pos for h in part if isinstance(h.event, Punctuation)]
                marks = pa.table({"$0": first, "$1": [0] * len(first), "$2": position})
                for element in stage.elements.values():
                    if first and "feed" in element.waiting:
                        element.waiting["feed"].append((pa.table({}), marks))
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


MILLI = 1000
TIMES = st.integers(-4, 30).map(lambda n: n * MILLI) | st.integers(-3 * MILLI, 20 * MILLI)
TUPLES = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "b", "c", None]),
        "j": st.sampled_from(["u", "v", None]),
        "id": st.just(0),
        "t": TIMES | st.none(),
        "x": st.sampled_from([None, 0.0, 1.5, -2.0, 4.0, 7.25]),
        "i": st.none() | st.integers(-4, 6),
    }
)
SPANS = st.integers(1, 9).map(lambda n: f"{n}ms")


@st.composite
def happenings(draw: st.DrawFn, *, ticks: bool, punctuations: bool) -> list[Happening]:
    """Draw tuples and what else comes among them; time mostly goes on, now and then it falls back or jumps."""
    size = draw(st.sampled_from([0, 5, 12, 24, 24]))
    kinds = [TUPLES, TUPLES, TUPLES]
    if ticks:
        kinds.append(TIMES.map(Tick))
    if punctuations:
        kinds.append(st.just(Punctuation()))
    drawn = draw(st.lists(st.tuples(st.sampled_from([0, 1, 1]), st.one_of(kinds)), min_size=size, max_size=size))
    at, found = 0, []
    rising = draw(st.booleans())
    for pos, (step, event) in enumerate(drawn):
        at += step
        if isinstance(event, dict):
            time = event["t"] if not rising or event["t"] is None else event["t"] // 4 + pos * MILLI
            event = {**event, "id": pos, "t": time}
        elif isinstance(event, Tick) and rising:
            event = Tick(event.time // 4 + pos * MILLI)
        found.append(Happening(at, pos, event))
    return found


@st.composite
def windows(draw: st.DrawFn, kinds: Sequence[str] = ()) -> Window:
    kind = draw(st.sampled_from(kinds or list(WINDOWS)))
    return draw(WINDOWS[kind])


WINDOWS: dict[str, st.SearchStrategy[Window]] = {
    "sliding tuples": st.integers(1, 5).map(lambda n: rr.sliding(tuples=n)),
    "sliding time": SPANS.map(lambda s: rr.sliding(time=s, on="t")),
    "sliding clock": SPANS.map(lambda s: rr.sliding(time=s)),
    "sliding delta": st.sampled_from([0, 1, 2.5, 6]).map(lambda d: rr.sliding(delta=d, on="x")),
    "sliding whole delta": st.sampled_from([0, 1, 2.5, 6]).map(lambda d: rr.sliding(delta=d, on="i")),
    "tumbling tuples": st.integers(1, 5).map(lambda n: rr.tumbling(tuples=n)),
    "tumbling time": SPANS.map(lambda s: rr.tumbling(time=s, on="t")),
    "tumbling clock": SPANS.map(lambda s: rr.tumbling(time=s)),
    "tumbling delta": st.sampled_from([0, 1, 2.5, 6]).map(lambda d: rr.tumbling(delta=d, on="x")),
    "tumbling whole delta": st.sampled_from([0, 1, 2.5, 6]).map(lambda d: rr.tumbling(delta=d, on="i")),
    "punctuation": st.just(rr.tumbling(punctuation=True)),
}
KEYS = st.sampled_from([("k",), ("k",), ("j",), ("k", "j"), ()])


@st.composite
def emits(draw: st.DrawFn, window: Window, rule: str | None = None) -> Emit:
    rules = ["tuples"]
    if not (window.shape == "tumbling" and window.time is not None):
        rules.append("time")
    if window.shape == "tumbling":
        rules.append("close")
    chosen = rule or draw(st.sampled_from(rules))
    if chosen == "tuples":
        return rr.every(tuples=draw(st.integers(1, 4)))
    return rr.every(time=draw(SPANS)) if chosen == "time" else rr.on_close()


COMBINATIONS = [
    (window, rule)
    for window in WINDOWS
    for rule in ("tuples", "time", "close")
    if not (rule == "close" and window.startswith("sliding"))
    and not (rule == "time" and window in ("tumbling time", "tumbling clock"))
]


@st.composite
def surroundings(draw: st.DrawFn, apart: bool | None = None) -> dict[str, Any]:
    """Draw how a run is cut up, which must not show."""
    many = draw(st.integers(0, 4))
    ends = sorted(draw(st.lists(st.integers(0, 20), min_size=many, max_size=many)))
    buckets = draw(st.sampled_from([1, 4, 7]))
    separate = draw(st.booleans()) if apart is None else apart
    return {
        "ends": ends,
        "buckets": buckets,
        "tasks": draw(st.lists(st.integers(1, buckets), min_size=len(ends) + 1, max_size=len(ends) + 1)),
        "apart": separate,
        "path": None if separate else draw(st.sampled_from(["direct", "exchange"])),
    }


@pytest.mark.parametrize(("kind", "rule"), COMBINATIONS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_windows_put_out_what_they_mean(data: st.DataObject, kind: str, rule: str) -> None:
    window = data.draw(WINDOWS[kind])
    chosen = Rule(data.draw(KEYS), window, data.draw(emits(window, rule)))
    around = data.draw(surroundings(apart=True if window.punctuation else None))
    events = data.draw(happenings(ticks=chosen.clocked, punctuations=around["apart"]))

    assert run((chosen,), events, **around) == expected([chosen], events)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Rule, ...]:
    """Draw two or three aggregates, one behind the other, that do not thin out the stream too much."""
    found = []
    for by in draw(st.lists(KEYS, min_size=2, max_size=3)):
        window = draw(st.one_of(list(WINDOWS.values())))
        emit = rr.every(tuples=1) if draw(st.booleans()) else draw(emits(window))
        found.append(Rule(by, window, emit))
    return tuple(found)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_windows_of_windows(data: st.DataObject) -> None:
    """By one key they are in one processing element, by two keys in two: it must not show, nor where one falls behind."""
    chain = data.draw(chains())
    around = data.draw(surroundings())
    events = data.draw(happenings(ticks=any(r.clocked for r in chain), punctuations=around["apart"]))
    batches = len(around["ends"])
    slow = data.draw(st.lists(st.sets(st.sampled_from(["a0", "a1", "a2"])), min_size=batches, max_size=batches))

    assert run(chain, events, **around, held_back=slow) == expected(chain, events)
