"""Windows by example, at the ends of what numbers can be, and what is kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.operators.model import Punctuation, Row, Tick
from tests.operators.windowed import Happening, Rule, application, clock_of, expected, feed_of, run
from tests.stages import Stage

import riprap as rr
from riprap.state.windows import tuples_in
from riprap.windows import Emit, Window

MILLI = 1000


def at(second: float) -> int:
    return round(second * 1000) * MILLI


def happen(*events: Row | Tick | Punctuation) -> list[Happening]:
    """Let things happen one after the other; tuples are numbered by when they come."""
    blank = {"k": "a", "j": None, "t": None, "x": None, "i": None}
    return [
        Happening(n, n, {**blank, "id": n, **event} if isinstance(event, dict) else event)
        for n, event in enumerate(events)
    ]


def times(*seconds: float | None) -> list[Row]:
    return [{"t": None if s is None else at(s)} for s in seconds]


def numbers(*values: float | None) -> list[Row]:
    return [{"x": v} for v in values]


SLIDING, TUMBLING = rr.sliding, rr.tumbling
NAN, INF = float("nan"), float("inf")
# fmt: off
EXAMPLES: dict[str, tuple[Window, Emit, list[Any], list[list[int]]]] = {
    "the last second, after every second tuple": (
        SLIDING(time="1s", on="t"), rr.every(tuples=2), times(0, 0.9, 1, 2.5), [[0, 1], [3]],
    ),
    "the second before each second": (
        SLIDING(time="1s", on="t"), rr.every(time="1s"), times(0.2, 0.9, 1.5, 3.1), [[0, 1], [2]],
    ),
    "overlapping seconds": (
        SLIDING(time="1s", on="t"), rr.every(time="500ms"), times(0.2, 0.6, 1.5), [[0], [0, 1], [1]],
    ),
    "a late tuple counts as just as old as the newest": (
        SLIDING(time="1s", on="t"), rr.every(tuples=1), times(5, 1, 5.9, 6), [[0], [0, 1], [0, 1, 2], [2, 3]],
    ),
    "tuples before time began": (
        SLIDING(time="1s", on="t"), rr.every(tuples=1), times(None, None, 5, None), [[0], [0, 1], [2], [2, 3]],
    ),
    "each second by itself": (
        TUMBLING(time="1s", on="t"), rr.on_close(), times(0.2, 0.9, 1, 1.9, 5, 5.1), [[0, 1], [2, 3]],
    ),
    "seconds before 1970": (
        TUMBLING(time="1s", on="t"), rr.on_close(), times(-1.5, -1.1, -0.9, 0), [[0, 1], [2]],
    ),
    "seconds of a clock": (
        TUMBLING(time="1s"), rr.on_close(),
        [{}, Tick(at(0.5)), {}, {}, Tick(at(0.9)), Tick(at(1)), {}, Tick(at(0)), Tick(at(9))], [[0], [2, 3], [6]],
    ),
    "changes of at most 2": (
        SLIDING(delta=2, on="x"), rr.every(tuples=1), numbers(1, 3, 0, 9, None), [[0], [0, 1], [0, 1, 2], [3], [3, 4]],
    ),
    "until it changes by more than 2": (
        TUMBLING(delta=2, on="x"), rr.on_close(), numbers(1, 3, -1, 4, 6, 7), [[0, 1, 2], [3, 4]],
    ),
    "numbers that are none change nothing": (
        TUMBLING(delta=2, on="x"), rr.on_close(), numbers(NAN, 1, NAN, 9, INF, INF, 0), [[0, 1, 2], [3], [4, 5]],
    ),
    "until a punctuation": (
        TUMBLING(punctuation=True), rr.on_close(), [{}, {}, Punctuation(), Punctuation(), {}, Punctuation(), {}],
        [[0, 1], [4]],
    ),
    "a peek every two, until three": (
        TUMBLING(tuples=3), rr.every(tuples=2), [{}] * 6, [[0, 1], [3, 4]],
    ),
}
# fmt: on


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("cut_up", [False, True])
def test_examples(example: str, cut_up: bool) -> None:
    window, emit, events, ids = EXAMPLES[example]
    rule = Rule(("k",), window, emit)
    happenings_ = happen(*events)

    got = run((rule,), happenings_, range(1, len(events)) if cut_up else (), apart=window.punctuation)

    assert [row["ids"] for row in got] == ids
    plain = [h for h in happenings_ if not isinstance(h.event, dict) or h.event["x"] == h.event["x"]]
    if len(plain) == len(happenings_):
        # The model must say so too.
        assert [row["ids"] for row in expected([rule], happenings_)] == ids


def test_whole_numbers_may_differ_by_more_than_fits() -> None:
    ends = [{"i": -(2**63)}, {"i": 2**63 - 1}, {"i": -(2**63)}, {"i": 0}]

    def ids(window: Window) -> list[list[int]]:
        return [
            row["ids"]
            for row in run((Rule((), window, rr.every(tuples=1)),), happen(*ends), [2], apart=False)
        ]

    assert ids(rr.sliding(delta=1, on="i")) == [[0], [1], [2], [3]]
    # From the least number to 0 it is one more than the largest number.
    assert ids(rr.tumbling(delta=2**63 - 1, on="i")) == [[0], [1], [2], [3]]
    del ends[0], ends[1]
    assert ids(rr.sliding(delta=1e30, on="i")) == [[0], [0, 1]]


def test_windows_that_closed_leave_nothing_behind(tmp_path: Path) -> None:
    rule = Rule(("k",), rr.tumbling(time="1s"), rr.on_close())
    stage = Stage(application((rule,), False), tmp_path, buckets=2)
    for second in range(1, 40):
        tuples = [Happening(second, n, {**happen({})[0].event, "k": f"{second}{n}"}) for n in range(5)]
        tick = Happening(second, second, Tick(at(second)))
        stage.feed({"feed": feed_of(tuples), "clock": clock_of([tick])})

        (manifest,) = stage.record.manifests
        pages = [stage.pages.read(p) for p in manifest.pages["a0/0"]]
        assert sum(map(tuples_in, pages)) <= 10
        assert sum(page.num_rows for page in pages) <= 20
