"""At the end of finite input what windows and queues still hold is put out: once, and however batches were cut."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import Stage, cut, cuts, dealings

import riprap as rr

Row = dict[str, Any]
Model = Callable[[Sequence[Row]], list[Row]]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = "k string, x bigint, t timestamp"


def rows(numbers: Sequence[tuple[str, int, int]]) -> list[Row]:
    """Make rows whose time goes on by some seconds from one to the next."""
    seconds, made = 0, []
    for key, x, step in numbers:
        seconds += step
        made.append({"k": key, "x": x, "t": BEGIN + timedelta(seconds=seconds)})
    return made


def windows(table: Sequence[Row], closes: Callable[[list[Row], Row], bool]) -> Iterator[list[Row]]:
    """Collect tumbling windows tuple by tuple; those that are open at the end come last, whatever the order of keys."""
    held: dict[str, list[Row]] = {}
    for row in table:
        window = held.setdefault(row["k"], [])
        if window and closes(window, row):
            yield window
            window = held[row["k"]] = []
        window.append(row)
    yield from (window for window in held.values() if window)


def full(size: int) -> Callable[[list[Row], Row], bool]:
    return lambda window, row: len(window) == size


def sums(window: Sequence[Row]) -> Row:
    return {"k": window[0]["k"], "total": sum(row["x"] for row in window), "n": len(window)}


def by_time(window: list[Row], row: Row) -> bool:
    ages = [(each["t"] - BEGIN).total_seconds() // 10 for each in (window[-1], row)]
    return ages[0] != ages[1]


def by_delta(window: list[Row], row: Row) -> bool:
    return abs(row["x"] - window[0]["x"]) > 3


def sliding(table: Sequence[Row]) -> list[Row]:
    """Put out, key by key, at every multiple of 5 s, what came in the 10 s before it; and so once more at the end."""
    made = []
    for key in {row["k"]: None for row in table}:
        mine = [((row["t"] - BEGIN).total_seconds(), row) for row in table if row["k"] == key]
        moments = range(5, int(mine[-1][0] // 5 + 1) * 5 + 5, 5)
        for moment in moments:
            held = [row for time, row in mine if moment - 10 <= time < moment]
            made += [sums(held)] if held else []
    return made


def two_elements(app: rr.Application, stream: rr.Stream) -> rr.Stream:
    parts = app.aggregate("op", stream, window=rr.tumbling(tuples=3), emit=rr.on_close(), **AGGREGATE)
    whole = app.aggregate(
        "all",
        parts,
        window=rr.tumbling(tuples=1000),
        emit=rr.on_close(),
        select="sum(total) as t, sum(n) as m",
    )
    return app.functor("named", whole, select="'all' as k, t as total, m as n")


AGGREGATE: dict[str, Any] = {"by": "k", "select": "sum(x) as total, count(*) as n"}
CASES: dict[str, tuple[Callable[[rr.Application, rr.Stream], rr.Stream], Model]] = {
    "count": (
        lambda app, s: app.aggregate("op", s, window=rr.tumbling(tuples=3), emit=rr.on_close(), **AGGREGATE),
        lambda table: [sums(w) for w in windows(table, full(3))],
    ),
    "time": (
        lambda app, s: app.aggregate(
            "op", s, window=rr.tumbling(time="10s", on="t"), emit=rr.on_close(), **AGGREGATE
        ),
        lambda table: [sums(w) for w in windows(table, by_time)],
    ),
    "delta": (
        lambda app, s: app.aggregate(
            "op", s, window=rr.tumbling(delta=3, on="x"), emit=rr.on_close(), **AGGREGATE
        ),
        lambda table: [sums(w) for w in windows(table, by_delta)],
    ),
    "punctuation": (
        lambda app, s: app.aggregate(
            "op", s, window=rr.tumbling(punctuation=True), emit=rr.on_close(), **AGGREGATE
        ),
        lambda table: [sums(w) for w in windows(table, lambda window, row: False)],
    ),
    "sliding": (
        lambda app, s: app.aggregate(
            "op", s, window=rr.sliding(time="10s", on="t"), emit=rr.every(time="5s"), **AGGREGATE
        ),
        sliding,
    ),
    "sort": (
        lambda app, s: app.sort("op", s, by="k", order="x", window=rr.tumbling(tuples=4)),
        lambda table: [r for w in windows(table, full(4)) for r in sorted(w, key=lambda row: row["x"])],
    ),
    "top": (
        lambda app, s: app.top("op", s, n=2, by="k", order="x desc", window=rr.tumbling(tuples=4)),
        lambda table: [r for w in windows(table, full(4)) for r in sorted(w, key=lambda row: -row["x"])[:2]],
    ),
    "delay": (lambda app, s: app.delay("op", s, time="7s", on="t", by="k"), list),
    "throttle": (lambda app, s: app.throttle("op", s, rate=0.25, on="t", by="k"), list),
    "two elements": (two_elements, lambda table: [{**sums(table), "k": "all"}]),
}


def per_key(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Forget how the outputs of several keys lie among one another."""
    return {key: [row for row in found if row["k"] == key] for key in sorted({row["k"] for row in found})}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_the_end_puts_out_what_is_held(case: str, data: st.DataObject) -> None:
    build, model = CASES[case]
    drawn = st.tuples(st.sampled_from("abc"), st.integers(-5, 9), st.integers(0, 6))
    table = rows(data.draw(st.lists(drawn, min_size=1, max_size=25)))
    app = rr.Application("flush")
    app.sink("out", build(app, app.source("source", rr.rows([], schema=SCHEMA))), rr.memory())
    whole = pa.Table.from_pylist(table, app.graph()["source"].schema)
    answers = []
    for _ in range(2):
        batches = cut(whole, data.draw(cuts(len(table))))
        dealt = data.draw(dealings(batches, 3))
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(app, Path(folder), buckets=3)
            found = [
                row for b, n in zip(batches, dealt, strict=True) for row in stage.feed(b, tasks=n)["out"]
            ]
            answers.append([*found, *stage.flush(tasks=dealt[-1])["out"]])
            assert not stage.flush()["out"] or case == "sliding"
    assert per_key(answers[0]) == per_key(model(table))
    assert answers[0] == answers[1]
