"""Dropping duplicates against a plain reference, which looks back over all that was put out."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators import clocked
from tests.operators.clocked import ENDS, cut_at, events, numbers
from tests.oracle import Row, deduplicate_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema


@lru_cache
def within(**what: Any) -> rr.Application:
    app = rr.Application("once")
    source, clock = clocked.add_sources(app, clock="time" in what and "on" not in what)
    once = app.deduplicate("once", source, by="k", clock=clock, **what)
    app.sink("out", app.functor("chosen", once, select="seq"), rr.memory())
    return app


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=clocked.tuples(), size=st.sampled_from([1, 2, 3, 7, 100]))
def test_a_tuple_passes_unless_its_key_did_among_the_last(
    data: st.DataObject, rows: list[Row], size: int
) -> None:
    batches = cut(clocked.table(rows), data.draw(cuts(len(rows))))

    got = run_batches(within(tuples=size), batches, buckets=3)

    wanted = deduplicate_oracle(events(rows), by="k", tuples=size)
    assert numbers(got) == numbers(wanted)


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(st.sampled_from("abcdefgh"), min_size=30, max_size=60),
    size=st.integers(1, 4),
    batch=st.integers(1, 3),
)
def test_sweeping_old_numbers_out_changes_nothing(keys: list[str], size: int, batch: int) -> None:
    rows = [{"at": 0, "k": k, "ts": 0, "v": 0, "seq": n} for n, k in enumerate(keys)]

    got = run_batches(
        within(tuples=size), cut(clocked.table(rows), [*range(batch, len(rows), batch), len(rows)])
    )

    assert numbers(got) == numbers(deduplicate_oracle(events(rows), by="k", tuples=size))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=clocked.tuples(), time=st.sampled_from([1, 3, 10]))
def test_a_tuple_passes_unless_its_key_did_a_short_time_before(
    data: st.DataObject, rows: list[Row], time: int
) -> None:
    batches = cut(clocked.table(rows), data.draw(cuts(len(rows))))
    app = within(time=time * 1e-6, on="ts")

    got = run_batches(app, batches, buckets=5, tasks=data.draw(dealings(batches, 5)))

    wanted = deduplicate_oracle(events(rows), by="k", time=time, on="ts")
    assert numbers(got) == numbers(wanted)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=clocked.tuples(), ticks=clocked.tickings(), time=st.sampled_from([1, 3, 10]))
def test_a_clock_can_tell_the_time(data: st.DataObject, rows: list[Row], ticks: list[Row], time: int) -> None:
    tables = {"source": clocked.table(rows), "clock": clocked.table(ticks, clocked.TICKS)}
    batches = cut_at(tables, data.draw(ENDS))
    app = within(time=time * 1e-6)

    got = run_batches(app, batches, buckets=5, tasks=data.draw(dealings(batches, 5)))

    wanted = deduplicate_oracle(events(rows, ticks), by="k", time=time)
    assert numbers(got) == numbers(wanted)


@pytest.mark.parametrize("within", [{"tuples": 4}, {"time": 3e-6, "on": "ts"}])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_key_may_be_of_two_columns_and_null_and_nan_are_values(
    data: st.DataObject, within: dict[str, Any]
) -> None:
    app = rr.Application("pairs")
    schema = parse_schema("x double, y string, ts timestamp, seq int")
    source = app.source("source", rr.rows(schema.empty_table()))
    once = app.deduplicate("once", source, by=("x", "y"), **within)
    app.sink("out", app.functor("chosen", once, select="seq"), rr.memory())
    drawn = st.tuples(
        st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan]),
        st.sampled_from([None, "a"]),
        st.integers(0, 9),
    )
    rows = [{"x": x, "y": y, "ts": t, "seq": n} for n, (x, y, t) in enumerate(data.draw(st.lists(drawn)))]
    batches = cut(clocked.table(rows, schema), data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=2, tasks=data.draw(dealings(batches, 2)))

    # NaN is one key, and so are both zeros.
    paired = [{**r, "key": ("NaN" if r["x"] != r["x"] else r["x"], r["y"])} for r in rows]
    rule = {"tuples": 4} if "tuples" in within else {"time": 3, "on": "ts"}
    assert numbers(got) == numbers(deduplicate_oracle([("tuple", r) for r in paired], by="key", **rule))


def test_punctuations_pass_in_place() -> None:
    app = rr.Application("marked")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))
    punctuated = app.sort("threes", source, order="seq", window=rr.tumbling(tuples=3))
    once = app.deduplicate("once", punctuated, by="k", tuples=2)
    windows = app.aggregate(
        "windows", once, window=rr.tumbling(punctuation=True), select="collect_list(seq) as n"
    )
    app.sink("out", windows, rr.memory())
    rows = [{"at": 0, "k": k, "ts": 0, "v": 0, "seq": n} for n, k in enumerate("aabbacccc")]

    got = run_batches(app, cut(clocked.table(rows), [2, 4, 9]))

    assert [row["n"] for row in got] == [[0, 2], [4, 5], [8]]


@pytest.mark.parametrize("size", [1, 10, 300])
def test_numbers_that_lie_too_far_back_leave_the_state(tmp_path: Path, size: int) -> None:
    stage = Stage(within(tuples=size), tmp_path)
    row = {"at": 0, "ts": 0, "v": 0, "seq": 0}
    passed = 0
    for batch in range(100):
        keys = [f"{batch}/{n}" for n in range(15)] + ["often"]
        passed += len(stage.feed({"source": clocked.table([{**row, "k": k} for k in keys])})["out"])

    (manifest,) = stage.record.manifests
    held = sum(stage.pages.read(p).num_rows for p in manifest.pages["once/0"])
    assert held <= 2 * size
    assert passed == 1500 + (100 if size < 16 else math.ceil(100 / (size // 16 + 1)))


def test_times_that_the_clock_is_past_leave_the_state(tmp_path: Path) -> None:
    stage = Stage(within(time=2e-6), tmp_path, buckets=3)
    for time in range(60):
        rows = [{"at": time, "k": f"{time}/{n}", "ts": 0, "v": 0, "seq": n} for n in range(10)]
        tick = clocked.table([{"at": time, "time": time}], clocked.TICKS)
        stage.feed({"source": clocked.table(rows), "clock": tick})

    (manifest,) = stage.record.manifests
    held = sum(stage.pages.read(p).num_rows for p in manifest.pages["once/0"])
    # Of each of the last two times ten keys count; a merge is due when new rows are half as many as old ones.
    assert held <= 100


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({}, "it takes tuples= or time=, one of them"),
        ({"tuples": 2, "time": "1s"}, "it takes tuples= or time=, one of them"),
        ({"tuples": 0}, "tuples= is 0"),
        ({"tuples": 2, "on": "ts"}, "on= and clock= go with time="),
        ({"time": "1s"}, "its time is by a clock's time"),
        ({"time": "soon", "on": "ts"}, "time= takes a time such as"),
        ({"time": "1s", "on": "v"}, "time is read off a timestamp, 'v' is int"),
        ({"time": "1s", "on": "w"}, "on= names column 'w', which does not exist"),
        ({"tuples": 2, "by": ()}, "it needs a key"),
        ({"tuples": 2, "by": "w"}, "by= names column 'w'"),
    ],
)
def test_one_that_makes_no_sense_is_refused(what: dict[str, Any], problem: str) -> None:
    app = rr.Application("refused")
    source = app.source("source", rr.rows(clocked.SCHEMA.empty_table()))

    with pytest.raises(rr.GraphError, match=rf"Deduplicate 'wrong' \(.*test_deduplicate.py:\d+\): {problem}"):
        app.deduplicate("wrong", source, **{"by": "k", **what})


def test_a_column_or_a_clock_tells_the_time_not_both() -> None:
    app = rr.Application("refused")
    source, clock = clocked.add_sources(app, clock=True)

    with pytest.raises(rr.GraphError, match="it has a clock=, and nothing in it is by a clock's time"):
        app.deduplicate("wrong", source, by="k", time="1s", on="ts", clock=clock)


def test_a_dictionary_encoded_key_is_the_same_key() -> None:
    table = clocked.table(
        [{"at": 0, "k": k, "ts": 0, "v": 0, "seq": n} for n, k in enumerate(["a", None, "a"])]
    )
    encoded = table.set_column(
        1, pa.field("k", pa.dictionary(pa.int32(), pa.string())), table["k"].dictionary_encode()
    )

    got = run_batches(within(tuples=9), [{"source": encoded}, {"source": table}])

    assert numbers(got) == [0, 1]
