"""Aggregates over every kind of window and output rule, against the plain model: what comes, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.model import Punctuation, Tick
from tests.operators.windowed import FEED, Happening, Rule, expected, feed_of, run
from tests.stages import cut, cuts, dealings, run_batches

import riprap as rr
from riprap.windows import Emit, Window

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
    drawn = draw(
        st.lists(st.tuples(st.sampled_from([0, 1, 1]), st.one_of(kinds)), min_size=size, max_size=size)
    )
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
    """By one key they are in one processing element, by two in two; neither that nor who falls behind must show."""
    chain = data.draw(chains())
    around = data.draw(surroundings())
    events = data.draw(happenings(ticks=any(r.clocked for r in chain), punctuations=around["apart"]))
    batches = len(around["ends"])
    slow = data.draw(
        st.lists(st.sets(st.sampled_from(["a0", "a1", "a2"])), min_size=batches, max_size=batches)
    )

    assert run(chain, events, **around, held_back=slow) == expected(chain, events)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_punctuations_of_the_applications_own(data: st.DataObject) -> None:
    app = rr.Application("punctuated")
    feed = app.source("source", rr.rows(FEED.empty_table()))
    marked = app.punctor("marked", feed, where="i > 3")
    closing = Rule(data.draw(KEYS), rr.tumbling(punctuation=True), rr.on_close())
    options: dict[str, Any] = {"window": closing.window, "emit": closing.emit}
    app.sink(
        "out", app.aggregate("a", marked, by=closing.by, select=closing.select(), **options), rr.memory()
    )
    events = data.draw(happenings(ticks=False, punctuations=False))
    batches = cut(feed_of(events), data.draw(cuts(len(events))))

    got = run_batches(app, batches, buckets=5, tasks=data.draw(dealings(batches, 5)))

    punctuated = []
    for h in events:
        punctuated.append(h)
        if (h.event["i"] or 0) > 3:
            punctuated.append(Happening(h.at, h.pos, Punctuation()))
    assert got == expected([closing], punctuated)
