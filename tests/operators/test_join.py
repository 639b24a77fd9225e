"""Joins against a plain reference: enter your own window, meet the other's, and say so if you leave unmatched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import join_oracle
from tests.stages import Stage, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.operators import join as kernel
from riprap.state.keys import encode_keys

# A row goes to the ports that ``port`` has the bits of: two streams on the left port, then two on the right.
SCHEMA = parse_schema("o bigint, k string, j int, port int, v int, s string, t timestamp")
TICKS = parse_schema("o bigint, t timestamp")
START = datetime(2024, 1, 1, tzinfo=UTC)
SELECT = (
    "k, left.j as j, left.v as lv, right.v as rv, left.s as ls, right.s as rs, right.j as rj, right.k as rk, "
    "left.v is null as no_v, concat(left.s, right.s) as both"
)
WHERE = {None: None, "<=": "left.v <= right.v", "=": "left.v = right.v"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A join to try: the windows as the reference takes them (in seconds), and the rest of its description."""

    windows: tuple[tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...]]
    where: str | None = None
    outer: Any = "inner"
    by: tuple[str, ...] = ("k",)
    apart: bool = False

    @property
    def clocked(self) -> bool:
        return any(w.get("time") and "on" not in w for w in map(dict, self.windows))


@lru_cache
def application(case: Case) -> rr.Application:
    app = rr.Application("joined")
    source = app.source("source", rr.rows(SCHEMA.empty_table()), ordering="o")
    ticks = app.clock("ticks", rr.rows(TICKS.empty_table()), time="t", ordering="o") if case.clocked else None
    streams = [
        app.functor(f"s{bit}", source, where=f"port div {1 << bit} % 2 = 1", select="k, j, v, s, t")
        for bit in range(4)
    ]
    windows = tuple(rr.sliding(**dict(w)) for w in case.windows)
    joined = app.join(
        "both", streams[:2], streams[2:], by=case.by, windows=windows, where=WHERE[case.where],
        select=SELECT, outer=case.outer, clock=ticks,
    )  # fmt: skip
    if case.apart:
        app.place("second", joined)
    app.sink("out", joined, rr.memory())
    return app


def expected(case: Case, rows: list[Row], ticks: list[Row]) -> list[Row]:
    events = sorted([*((r["o"], 0, r) for r in rows), *((t["o"], 1, t) for t in ticks)], key=lambda e: e[:2])
    played = [
        each
        for _, source, it in events
        for each in ([(None, it["t"])] if source else [(b // 2, it) for b in range(4) if it["port"] >> b & 1])
    ]
    compare = {
        None: lambda a, b: True,
        "<=": lambda a, b: None not in (a, b) and a <= b,
        "=": lambda a, b: None not in (a, b) and a == b,
    }[case.where]

    def select(left: Row | None, right: Row | None) -> Row:
        there, (a, b) = left or right or {}, (side or {} for side in (left, right))
        strings = [a.get("s"), b.get("s")]
        return {
            # A key column of both sides is never null for want of a left tuple; any other one may be.
            "k": there["k"],
            "j": there["j"] if "j" in case.by else a.get("j"),
            "lv": a.get("v"), "rv": b.get("v"), "ls": a.get("s"), "rs": b.get("s"), "rj": b.get("j"), "rk": b.get("k"),
            "no_v": a.get("v") is None,
            "both": None if None in strings else "".join(strings),
        }  # fmt: skip

    return join_oracle(
        played,
        by=case.by,
        windows=tuple(
            {name: timedelta(seconds=size) if name == "time" and size else size for name, size in w}
            for w in case.windows
        ),
        where=lambda left, right: compare(left["v"], right["v"]),
        select=select,
        outer=case.outer,
        clocked=case.clocked,
        key_order=lambda key: hash_of(key, case.by),
    )


@lru_cache
def hash_of(key: tuple[Any, ...], by: tuple[str, ...]) -> int:
    table, _ = encode_keys([pa.array([v], SCHEMA.field(c).type) for c, v in zip(by, key, strict=True)], 1)
    return int(table.hashes[0])


def batches_of(rows: list[Row], ticks: list[Row], ends: list[int]) -> list[dict[str, pa.Table]]:
    """Cut both sources at the same numbers of their ordering column."""
    return [
        {
            name: pa.Table.from_pylist([r for r in it if low <= r["o"] < high], schema)
            for name, it, schema in (("source", rows, SCHEMA), ("ticks", ticks, TICKS))
        }
        for low, high in zip([0, *ends], [*ends, 10**9], strict=True)
    ]


def check(case: Case, data: st.DataObject, rows: list[Row], ticks: list[Row]) -> list[Row]:
    """Run a join over batches cut anywhere, in any number of tasks, and compare."""
    last = max((r["o"] for r in [*rows, *ticks]), default=0)
    anywhere = st.lists(st.integers(0, last + 1), max_size=5).map(sorted)
    often = st.integers(1, 5).map(lambda step: list(range(step, last + 1, step)))
    batches = batches_of(rows, ticks, data.draw(anywhere | often, label="ends"))
    buckets = data.draw(st.integers(1, 5), label="buckets")
    tasks = data.draw(
        st.lists(st.integers(1, buckets), min_size=len(batches), max_size=len(batches)), label="tasks"
    )

    got = run_batches(application(case), batches, buckets=buckets, tasks=tasks)

    assert got == expected(case, rows, ticks)
    return got


def stamp(seconds: int | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


TIMES = st.none() | st.integers(0, 12).map(stamp)
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "a", "b", "c", None]),
        "j": st.sampled_from([1, 1, 2, None]),
        "port": st.sampled_from([1, 1, 4, 4, 2, 8, 5, 3, 12, 15]),
        "v": st.none() | st.integers(0, 5),
        "s": st.none() | st.sampled_from(["x", "y"]),
        "t": TIMES,
    }
)


@st.composite
def ordered(draw: st.DrawFn, values: st.SearchStrategy[Row], size: int) -> list[Row]:
    """Draw rows with an ordering column that never falls."""
    rows, number = [], 0
    least = draw(st.integers(0, size))
    for row in draw(st.lists(values, min_size=least, max_size=least)):
        number += draw(st.sampled_from([0, 1, 1, 2]))
        rows.append({"o": number, **row})
    return rows


@st.composite
def rising(draw: st.DrawFn, values: st.SearchStrategy[Row], size: int) -> list[Row]:
    """Draw rows whose times mostly rise, some missing and some late, as a feed's do."""
    rows = draw(ordered(values, size))
    now = 0
    for row in rows:
        now += draw(st.integers(0, 2))
        row["t"] = draw(st.sampled_from([stamp(now), stamp(now), stamp(max(0, now - 3)), None]))
    return rows


COUNTS = st.integers(0, 6).map(lambda n: (("tuples", n),))
SPANS = st.sampled_from([1, 2, 3, 5, 9]).map(lambda n: (("time", n), ("on", "t")))
NO_SPAN = st.sampled_from([(("time", 0), ("on", "t")), (("time", 0),)])
TICKING = st.sampled_from([1, 2, 3, 5, 9]).map(lambda n: (("time", n),))
WHERES = st.sampled_from([None, "<=", "="])
OUTERS = st.sampled_from(["inner", "left", "full"])
KEYS = st.sampled_from([("k",), ("k", "j")])


def some(windows: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw the windows of a join: they are not both empty."""
    return windows.filter(lambda ws: any(size for w in ws for name, size in w if name != "on"))


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    case=st.builds(Case, windows=some(st.tuples(COUNTS, COUNTS)), where=WHERES, outer=OUTERS, by=KEYS),
    rows=ordered(ROWS, 40),
)
def test_windows_by_count(data: st.DataObject, case: Case, rows: list[Row]) -> None:
    check(case, data, rows, [])


BY_COLUMN = some(st.tuples(SPANS | COUNTS | NO_SPAN, SPANS) | st.tuples(SPANS, SPANS | COUNTS | NO_SPAN))


@settings(max_examples=110, deadline=None)
@given(
    data=st.data(),
    case=st.builds(Case, windows=BY_COLUMN, where=WHERES, outer=OUTERS, by=KEYS),
    rows=rising(ROWS, 40) | ordered(ROWS, 40),
)
def test_windows_by_the_time_of_a_column(data: st.DataObject, case: Case, rows: list[Row]) -> None:
    check(case, data, rows, [])


BY_CLOCK = some(
    st.tuples(TICKING | COUNTS | NO_SPAN, TICKING) | st.tuples(TICKING, TICKING | COUNTS | NO_SPAN)
)


@st.composite
def steady(draw: st.DrawFn) -> list[Row]:
    """Draw ticks that tell a time that goes on, and now and then back or nothing."""
    rows, now = draw(ordered(st.builds(dict), 12)), 0
    for row in rows:
        now += draw(st.integers(0, 4))
        row["t"] = stamp(draw(st.sampled_from([now, now, now, max(0, now - 3), None])))
    return rows


@settings(max_examples=110, deadline=None)
@given(
    data=st.data(),
    case=st.builds(Case, windows=BY_CLOCK, where=WHERES, outer=OUTERS, by=KEYS),
    rows=ordered(ROWS, 40),
    ticks=steady(),
)
def test_windows_by_the_time_of_a_clock(
    data: st.DataObject, case: Case, rows: list[Row], ticks: list[Row]
) -> None:
    check(case, data, rows, ticks)


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    case=st.builds(
        Case, windows=BY_CLOCK | BY_COLUMN, where=WHERES, outer=OUTERS, by=KEYS, apart=st.just(True)
    ),
    rows=ordered(ROWS, 30),
    ticks=steady(),
)
def test_a_join_in_a_processing_element_of_its_own(
    data: st.DataObject, case: Case, rows: list[Row], ticks: list[Row]
) -> None:
    check(case, data, rows, ticks if case.clocked else [])


COUNTED = (("tuples", 2),), (("tuples", 3),)


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
@pytest.mark.parametrize("outer", ["inner", "full"])
def test_pairs_made_some_at_a_time_are_the_same_pairs(
    monkeypatch: pytest.MonkeyPatch, at_once: int, outer: str
) -> None:
    rows = [{"o": n, "k": "ab"[n % 2], "port": [1, 4, 5][n % 3], "v": n * 7 % 6, "s": "x"} for n in range(60)]
    case = Case(COUNTED, "<=", outer)
    batches = batches_of(rows, [], [20])

    monkeypatch.setattr(kernel, "_PAIRS_AT_ONCE", at_once)
    got = run_batches(application(case), batches)

    assert got == expected(case, [{**row, "j": None} for row in rows], [])
    assert len(got) > 50


def two_sources(windows: tuple[Any, Any], kind: str = "int", **more: Any) -> rr.Application:
    app = rr.Application("joined")
    schema = parse_schema(f"k {kind}, v int")
    left, right = (app.source(name, rr.rows(schema.empty_table())) for name in ("left", "right"))
    select = "k, left.v as lv, right.v as rv, right.k as rk"
    app.sink(
        "out", app.join("both", left, right, by="k", windows=windows, select=select, **more), rr.memory()
    )
    return app


def table(kind: str, *rows: tuple[Any, int]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], parse_schema(f"k {kind}, v int"))


ONE, NONE = rr.sliding(tuples=1), rr.sliding(tuples=0)


def test_without_ordering_a_batch_takes_one_source_after_the_other() -> None:
    app = two_sources((ONE, ONE))

    got = run_batches(
        app,
        [
            {"left": table("int", (1, 1), (1, 2)), "right": table("int", (1, 3), (1, 4))},
            {"left": table("int", (1, 5)), "right": table("int")},
        ],
    )

    assert [(r["lv"], r["rv"]) for r in got] == [(2, 3), (2, 4), (5, 4)]


def test_floating_keys_match_as_in_sql_and_show_what_each_tuple_had() -> None:
    app = two_sources((rr.sliding(tuples=9), rr.sliding(tuples=9)), "double")
    left = table("double", (0.0, 1), (math.nan, 2), (None, 3), (1.5, 4))
    right = table("double", (-0.0, 5), (-math.nan, 6), (None, 7), (2.5, 8))

    got = run_batches(app, [{"left": left, "right": right}])

    assert [(r["lv"], r["rv"], repr(r["k"]), repr(r["rk"])) for r in got] == [
        (1, 5, "0.0", "-0.0"),
        (2, 6, "nan", "nan"),
    ]


def test_a_bare_key_shows_the_key_of_the_side_there_is() -> None:
    app = two_sources((NONE, ONE), "double", outer="full")
    batches = [
        {"left": table("double", (1.5, 1)), "right": table("double", (2.5, 2), (-0.0, 3), (None, 4))},
        {"left": table("double", (0.0, 5)), "right": table("double", (2.5, 6), (0.0, 7), (0.0, 8))},
    ]

    got = run_batches(app, batches)

    # A right tuple leaves when the next one of its key pushes it out: only those that met nothing are put out.
    assert [(r["k"], r["lv"], r["rv"], r["rk"]) for r in got] == [
        (1.5, 1, None, None),
        (None, None, 4, None),
        (0.0, 5, 3, 0.0),
        (2.5, None, 2, 2.5),
        (0.0, None, 7, 0.0),
    ]


@pytest.mark.parametrize("outer", ["inner", "full"])
def test_columns_that_are_dictionary_encoded_join(outer: str) -> None:
    rows = [
        {"o": n, "k": "a", "j": 1, "port": port, "v": 1, "s": s}
        for n, (port, s) in enumerate([(1, "x"), (4, "y"), (1, "z")] * 3)
    ]
    plain = pa.Table.from_pylist(rows, SCHEMA)
    encoded = plain
    for name in ("k", "s"):
        at = plain.column_names.index(name)
        encoded = encoded.set_column(at, name, plain.column(name).dictionary_encode())
    case = Case(((("tuples", 1),), (("tuples", 0),)), None, outer)
    batches = [encoded.slice(0, 3), plain.slice(3, 3), encoded.slice(6)]

    got = run_batches(application(case), [{"source": batch} for batch in batches])

    assert got == expected(case, rows, [])


def written(stage: Stage, slot: str) -> list[tuple[int, list[Any]]]:
    """Return what the newest page of a slot says: how many tuples each key holds, and the tuples written."""
    (manifest,) = stage.record.manifests
    page = stage.pages.read(manifest.pages[slot][0])
    return list(zip(page.column("held").to_pylist(), page.column("window").to_pylist(), strict=True))


def test_an_inner_join_writes_what_came_in_and_an_outer_one_whose_match_is_news(tmp_path: Path) -> None:
    many = rr.sliding(tuples=100)
    # The first batch is large, so that the second one's page is not merged with it.
    first = {"left": table("int", *((1, v) for v in range(50))), "right": table("int")}
    second = {"left": table("int", (1, 50)), "right": table("int", (1, 51))}

    found = {}
    for outer in ("inner", "full"):
        stage = Stage(two_sources((many, many), outer=outer), tmp_path / outer)
        stage.feed(first)
        assert len(stage.feed(second)["out"]) == 51
        ((held, window),) = written(stage, "both/0")
        found[outer] = (held, len(window))

    assert found == {"inner": (51, 1), "full": (51, 51)}


def test_an_outer_join_writes_only_what_came_in_where_no_old_tuple_matched(tmp_path: Path) -> None:
    stage = Stage(two_sources((rr.sliding(tuples=100), NONE), outer="left"), tmp_path)
    stage.feed({"left": table("int", *((1, v) for v in range(50))), "right": table("int")})
    stage.feed({"left": table("int", (1, 50)), "right": table("int")})

    assert [(held, len(window)) for held, window in written(stage, "both/0")] == [(51, 1)]


def test_ticks_empty_the_windows_of_keys_that_nothing_comes_for(tmp_path: Path) -> None:
    case = Case(((("time", 5),), (("time", 9),)))
    stage = Stage(application(case), tmp_path)
    rows = [
        {"o": n, "k": k, "port": port} for n, (k, port) in enumerate([("a", 1), ("b", 1), ("b", 4), ("c", 4)])
    ]
    told = [{"o": 0, "t": stamp(0)}, {"o": 9, "t": stamp(6)}, {"o": 10, "t": stamp(20)}]
    held = []

    for batch in batches_of([{**r, "o": r["o"] + 1} for r in rows], told, [9, 10]):
        stage.feed(batch)
        (manifest,) = stage.record.manifests
        pages = [[stage.pages.read(p) for p in manifest.pages[f"both/{slot}"]] for slot in "01"]
        held.append([sum(len(w) for p in found for w in p.column("window").to_pylist()) for found in pages])

    assert held == [[2, 2], [0, 2], [0, 0]]


def test_the_time_of_a_key_outlives_its_tuples() -> None:
    case = Case(((("time", 2), ("on", "t")), (("time", 0), ("on", "t"))))
    rows = [
        {"o": n, "k": "a", "port": port, "v": v, "t": stamp(t)}
        for n, (port, v, t) in enumerate([(4, 0, 9), (1, 1, 1), (4, 2, 3), (4, 3, 11), (4, 4, 5)])
    ]

    got = run_batches(application(case), batches_of(rows, [], [1, 2, 3, 4]))

    # The tuple of second 1 came at second 9, and so it stays until second 11.
    assert [(r["lv"], r["rv"]) for r in got] == [(1, 2)]


def test_at_a_tick_keys_come_in_order_of_hash_whenever_they_come_up_again() -> None:
    case = Case(((("time", 5),), (("time", 5),)), None, "full")
    keys = sorted("abcdef", key=lambda key: hash_of((key,), ("k",)))
    rows = [{"o": 1, "k": k, "j": None, "port": 1, "v": n, "s": None} for n, k in enumerate(keys[::-1])]
    # After the tick, the last key comes up before the batch is over.
    rows.append({"o": 3, "k": keys[-1], "j": None, "port": 4, "v": 9, "s": None})
    ticks = [{"o": 0, "t": stamp(0)}, {"o": 2, "t": stamp(6)}]

    got = run_batches(application(case), batches_of(rows, ticks, []))

    assert [r["k"] for r in got] == keys
    assert got == expected(case, rows, ticks)


@pytest.mark.parametrize(
    ("outer", "copied"),
    [
        ("inner", {"k": {0, 1}, "lv": {0}, "rv": {1}, "rk": {0, 1}}),
        ("left", {"k": {0, 1}, "lv": {0}}),
        ("full", {"k": {0, 1}}),
    ],
)
def test_what_may_be_null_for_want_of_a_tuple_is_no_copy(outer: Any, copied: dict[str, set[int]]) -> None:
    operator = two_sources((ONE, ONE), outer=outer).graph()["both"]

    assert {name: {port for port, _ in found} for name, found in operator.copies().items()} == copied


def test_a_key_of_a_side_that_may_be_missing_is_a_key_of_its_own() -> None:
    app = rr.Application("joined")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    left = app.functor("left", source, where="port = 1", select="k")
    right = app.functor("right", source, where="port = 4", select="k")
    both = app.join("both", left, right, by="k", windows=(NONE, ONE), outer="left", select="k, right.k as rk")
    counts = app.aggregate("counts", both, by="rk", window=rr.sliding(tuples=9), select="count(*) as n")
    app.sink("out", counts, rr.memory())
    rows = [{"k": k, "port": port} for k, port in [("a", 1), ("b", 1), ("c", 4), ("c", 1), ("d", 1)]]

    got = run_batches(app, [{"source": pa.Table.from_pylist(rows, SCHEMA)}], buckets=3, tasks=[3])

    assert [(r["rk"], r["n"]) for r in got] == [(None, 1), (None, 2), ("c", 1), (None, 3)]


def layout(case: Case) -> str:
    return application(case).graph()["both"].layout({})


def test_the_layout_says_all_that_is_kept() -> None:
    counts, times, ticking = (("tuples", 2),), (("time", 5), ("on", "t")), (("time", 5),)

    assert layout(Case((counts, times))) == (
        "inner by k: sliding(2 tuples) of j int32, s string, v int32; "
        "sliding(5s of t) of j int32, s string, v int32, time"
    )
    assert layout(Case((ticking, counts), outer="left", by=("k", "j"))) == (
        "left by k, j by a clock: sliding(5s) of s string, v int32, time, matched; "
        "sliding(2 tuples) of s string, v int32"
    )


def test_a_floating_key_is_kept_as_it_came() -> None:
    operator = two_sources((ONE, ONE), "double").graph()["both"]

    assert (
        operator.layout({})
        == "inner by k: sliding(1 tuples) of k double, v int32; sliding(1 tuples) of k double, v int32"
    )


def test_windows_of_one_join_are_measured_alike() -> None:
    app = rr.Application("joined")
    schema = parse_schema("k int, t timestamp")
    left, right = (app.source(name, rr.rows(schema.empty_table())) for name in ("left", "right"))
    clock = app.clock("clock", rr.rows(TICKS.empty_table()), time="t")

    def join(*windows: Any, **more: Any) -> None:
        app.join("both", left, right, by="k", windows=windows, select="k", **more)

    by_column, by_clock = rr.sliding(time=5, on="t"), rr.sliding(time=5)
    with pytest.raises(rr.GraphError, match="one window is by a clock's time and one by a column's"):
        join(by_column, by_clock, clock=clock)
    with pytest.raises(rr.GraphError, match="its window is by a clock's time"):
        join(by_clock, ONE)
    with pytest.raises(rr.GraphError, match="it has a clock=, and nothing in it is by a clock's time"):
        join(by_column, ONE, clock=clock)
    with pytest.raises(rr.GraphError, match="both windows are of size 0"):
        join(rr.sliding(time=0), NONE)
    with pytest.raises(rr.GraphError, match="outer= is 'right'"):
        join(ONE, ONE, outer="right")


def test_what_two_tuples_of_one_origin_make_stays_in_order_when_tasks_are_merged() -> None:
    case = Case(((("tuples", 3),), (("tuples", 3),)))
    # Every row goes to both ports, and so makes outputs as a left tuple and then as a right one.
    rows = [{"o": n, "k": "abcdefgh"[n % 8], "j": 1, "port": 5, "v": n, "s": "x"} for n in range(32)]

    got = run_batches(application(case), batches_of(rows, [], []), buckets=4, tasks=[4])

    assert got == expected(case, rows, [])
