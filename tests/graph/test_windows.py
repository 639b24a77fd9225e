"""Windows and output rules: what they say of themselves, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import riprap as rr
from riprap.durations import UNITS
from riprap.windows import Every, Window, span

Build = Callable[[rr.Application, rr.Stream, rr.Stream], object]


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (rr.sliding(tuples=0), "sliding(0 tuples)"),
        (rr.sliding(tuples=5), "sliding(5 tuples)"),
        (rr.sliding(time="15s", on="ts"), "sliding(15s of ts)"),
        (rr.sliding(time=0), "sliding(0ms)"),
        (rr.sliding(time=0.5), "sliding(500ms)"),
        (rr.tumbling(time="1.5min"), "tumbling(90s)"),
        (rr.tumbling(delta=2.5, on="x"), "tumbling(2.5 of x)"),
        (rr.tumbling(punctuation=True), "tumbling(punctuation)"),
        (rr.every(tuples=3), "every 3 tuples"),
        (rr.every(time="250ms"), "every 250ms"),
        (rr.on_close(), "on close"),
    ],
)
def test_windows_and_rules_say_what_they_are(window: Any, said: str) -> None:
    assert str(window) == said


def test_two_times_never_read_alike() -> None:
    times = [1, 999, 1000, 1001, 999_999, 1_000_000, 1_000_001, 1_234_567_000_000, 1_234_568_000_000, 2**62]

    assert len({span(time) for time in times}) == len(times)
    assert [span(t) for t in times[:5]] == ["0.001ms", "0.999ms", "1ms", "1.001ms", "999.999ms"]


def test_time_is_in_whole_microseconds() -> None:
    assert rr.sliding(time="2m", on="t") == Window(shape="sliding", time=120_000_000, on="t")
    assert rr.every(time=0.0000015) == Every(time=2)
    assert rr.every(time=1e-9) == Every(time=1)
    assert rr.sliding(time=1e306, on="t").time == 2**62


def test_only_windows_that_never_hold_a_tuple_are_empty() -> None:
    assert rr.sliding(tuples=0).empty
    assert rr.sliding(time=0).empty
    assert not rr.sliding(tuples=1).empty
    assert not rr.sliding(delta=0, on="x").empty
    assert not rr.tumbling(punctuation=True).empty


def test_a_window_by_time_without_a_column_hears_a_clock() -> None:
    assert rr.sliding(time="1s").ticking
    assert not rr.sliding(time="1s", on="t").ticking
    assert not rr.tumbling(tuples=1).ticking


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rr.sliding(), "sliding(...) takes one of tuples=, time= or delta=, got none"),
        (
            lambda: rr.sliding(tuples=1, time="1s"),
            "sliding(...) takes one of tuples=, time= or delta=, got tuples and time",
        ),
        (
            lambda: rr.tumbling(delta=1, punctuation=True),
            "tumbling(...) takes one of tuples=, time= or delta= or punctuation=True, got delta and punctuation",
        ),
        (lambda: rr.tumbling(tuples=0), "tumbling(tuples=...) takes a whole number of at least 1, got 0"),
        (
            lambda: rr.sliding(tuples=1, on="x"),
            "sliding(...): on= goes with time= or delta=, not with tuples=",
        ),
        (lambda: rr.sliding(delta=1), "sliding(...): delta= needs on=, the column whose change it measures"),
        (lambda: rr.sliding(delta=-1, on="x"), "sliding(delta=...) takes a number of at least 0, got -1"),
        (lambda: rr.sliding(delta=True, on="x"), "sliding(delta=...) takes a number of at least 0, got True"),
        (
            lambda: rr.sliding(delta=float("nan"), on="x"),
            "sliding(delta=...) takes a number of at least 0, got nan",
        ),
        (
            lambda: rr.sliding(delta=float("inf"), on="x"),
            "sliding(delta=...) takes a number of at least 0, got inf",
        ),
        (lambda: rr.sliding(time="1s", on=3), "sliding(...): on= names a column, got 3"),  # type: ignore[arg-type]
        (
            lambda: rr.tumbling(time=0),
            f"tumbling(time=...) takes a time such as '10s', '250ms' or '2m', got 0. {UNITS}",
        ),
        (
            lambda: rr.sliding(time=False),
            f"sliding(time=...) takes a time such as '10s', '250ms' or '2m', got False. {UNITS}",
        ),
        (lambda: rr.every(), "every(...) takes tuples= or time=, one of them"),
        (lambda: rr.every(tuples=1, time="1s"), "every(...) takes tuples= or time=, one of them"),
        (
            lambda: rr.every(time="soon"),
            f"every(time=...) takes a time such as '10s', '250ms' or '2m', got 'soon'. {UNITS}",
        ),
    ],
)
def test_a_window_that_is_none_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(rr.GraphError) as caught:
        make()

    assert str(caught.value) == said


def aggregate(app: rr.Application, stream: rr.Stream, window: Any, **options: Any) -> rr.Stream:
    return app.aggregate("agg", stream, by="k", window=window, select="count(*) as n", **options)


OTHER = rr.Application("elsewhere")
FOREIGN = OTHER.clock("foreign", rr.rows([], "t timestamp"), time="t")
# fmt: off
REFUSALS: dict[str, tuple[Build, str]] = {
    "time column that does not exist": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s", on="ts")),
        "on= names column 'ts', which does not exist. It has: k, x, at",
    ),
    "time off a number": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s", on="x")),
        "time is read off a timestamp, 'x' is double. Cast it, or measure a number's change with delta=",
    ),
    "change of text": (
        lambda a, s, c: aggregate(a, s, rr.tumbling(delta=1, on="k")),
        "delta= needs a number, 'k' is string. Cast it",
    ),
    "a sliding window that closes": (
        lambda a, s, c: aggregate(a, s, rr.sliding(tuples=3), emit=rr.on_close()),
        "a sliding window never closes. Write rr.every(...), or make it tumbling",
    ),
    "two periods": (
        lambda a, s, c: aggregate(a, s, rr.tumbling(time="1s"), emit=rr.every(time="2s"), clock=c),
        "a window of tumbling(1s) puts out when it closes, or every so many tuples. Leave out emit=, or make it sliding",  # noqa: E501
    ),
    "a window by no clock": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s")),
        "its window is by a clock's time. Give it clock=, or name a time column with on=",
    ),
    "an output by no clock": (
        lambda a, s, c: aggregate(a, s, rr.sliding(tuples=3), emit=rr.every(time="1s")),
        "its output is by a clock's time. Give it clock=, or name a time column with on=",
    ),
    "a clock for nothing": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s", on="at"), emit=rr.every(time="1s"), clock=c),
        "it has a clock=, and nothing in it is by a clock's time. Leave one out",
    ),
    "a clock that is none": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s"), clock=s),
        "clock= is stream 'feed' (k string, x double, at timestamp). Give it what app.clock(...) returned",
    ),
    "another application's clock": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time="1s"), clock=FOREIGN),
        "clock= is another application's. Make one here with app.clock(...)",
    ),
    "ticks as tuples": (
        lambda a, s, c: aggregate(a, c, rr.sliding(tuples=1)),
        "it reads the clock 'clock'. Ticks go to the clock= of operators that measure time",
    ),
    "a window that never holds a tuple": (
        lambda a, s, c: aggregate(a, s, rr.sliding(time=0, on="at")),
        "its window is sliding(0ms of at), which never holds a tuple. Give it a size",
    ),
}
# fmt: on


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_is_wrong_with_an_aggregates_window_is_said(wrong: str) -> None:
    build, said = REFUSALS[wrong]
    app = rr.Application("wrong")
    stream = app.source("feed", rr.rows([], "k string, x double, at timestamp"))
    clock = app.clock("clock", rr.rows([], "t timestamp"), time="t")

    with pytest.raises(rr.GraphError) as caught:
        build(app, stream, clock)

    assert str(caught.value).partition("): ")[2].startswith(said)


def test_rules_are_chosen_by_the_shape_of_the_window() -> None:
    app = rr.Application("chosen")
    stream = app.source("feed", rr.rows([], "k string"))
    for name, window in (("slides", rr.sliding(tuples=2)), ("tumbles", rr.tumbling(tuples=2))):
        app.sink(
            f"{name}_out", app.aggregate(name, stream, window=window, select="count(*) as n"), rr.memory()
        )
    graph = app.graph()

    assert graph["slides"].summary() == "count(*) as n, sliding(2 tuples), every 1 tuples"
    assert graph["tumbles"].summary() == "count(*) as n, tumbling(2 tuples), on close"


def test_a_clock_tells_the_time_in_a_timestamp() -> None:
    app = rr.Application("clocks")

    with pytest.raises(rr.GraphError, match="time= names column 'when', which does not exist"):
        app.clock("clock", rr.rows([], "t timestamp"), time="when")
    with pytest.raises(rr.GraphError, match="time= must name a timestamp, 't' is bigint"):
        app.clock("clock", rr.rows([], "t bigint"), time="t")


@pytest.mark.parametrize(
    "duration",
    ["90s", "90 seconds", "1.5 min", "1 minute 30 seconds", "1m30s", "90000 ms", 90, timedelta(seconds=90)],
)
def test_durations_are_written_as_people_write_them(duration: str | float | timedelta) -> None:
    assert rr.sliding(time=duration, on="ts").time == rr.every(time=duration).time == 90_000_000
    assert rr.checkpoint(every=duration).every == 90.0


def test_days_and_weeks_are_lengths_of_time() -> None:
    assert rr.sliding(time="1d").time == rr.sliding(time="24 hours").time == 86_400_000_000
    assert rr.tumbling(time="2 Weeks").time == 14 * 86_400_000_000
