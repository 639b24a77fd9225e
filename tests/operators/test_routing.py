"""Split, union and punctor against plain references."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import punctor_oracle, split_oracle
from tests.stages import Stage, Tables, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.kernels.chunk import EVERY, Chunk, Marks, merge_streams
from riprap.kernels.given import Given
from riprap.operators.punctor import Punctor
from riprap.state.keys import encode_keys

SCHEMA = parse_schema("k string, v int")
ROW = st.fixed_dictionaries({"k": st.sampled_from(["a", "b", "c", None]), "v": st.none() | st.integers(0, 5)})
ROWS = st.lists(ROW, max_size=40)


def table_of(rows: Sequence[dict[str, Any]], encoded: bool = False) -> pa.Table:
    table = pa.Table.from_pylist(rows, SCHEMA)
    return table.set_column(0, "k", table.column("k").dictionary_encode()) if encoded else table


def run_all(
    app: rr.Application,
    batches: Sequence[Tables],
    *,
    buckets: int = 1,
    tasks: Sequence[int] = (),
) -> dict[str, list[dict[str, Any]]]:
    """Run batches and return what reached each sink."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets)
        found: dict[str, list[dict[str, Any]]] = {}
        for tables, dealt in zip(batches, [*tasks, *[1] * len(batches)], strict=False):
            for sink, rows in stage.feed(tables, tasks=dealt).items():
                found.setdefault(sink, []).extend(rows)
        return found


def to_sinks(app: rr.Application, streams: dict[str, rr.Stream]) -> rr.Application:
    for name, stream in streams.items():
        app.sink(f"to_{name}", stream, rr.memory())
    return app


@lru_cache
def by_conditions(first: bool) -> rr.Application:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    outputs = {"low": "v < 3", "known": "k is not null", "a": "k = 'a' or v > 4"}
    return to_sinks(app, app.split("split", source, outputs=outputs, first=first))


def unknown(*values: Any) -> bool:
    return any(value is None for value in values)


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "low": lambda row: None if row["v"] is None else row["v"] < 3,
    "known": lambda row: row["k"] is not None,
    "a": lambda row: row["k"] == "a" or (row["v"] is not None and row["v"] > 4),
}


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS, first=st.booleans(), encoded=st.booleans())
def test_a_split_by_conditions(
    data: st.DataObject, rows: list[dict[str, Any]], first: bool, encoded: bool
) -> None:
    batches = cut(table_of(rows, encoded), data.draw(cuts(len(rows))))

    got = run_all(by_conditions(first), batches)

    wanted = split_oracle(rows, outputs=CONDITIONS, first=first)
    assert got == {f"to_{name}": found for name, found in wanted.items()}


OUTPUTS = ("x", "y", "z")
TABLES = st.dictionaries(
    st.sampled_from(["a", "b", "d", "", None]), st.sampled_from(["x", "y", ("x", "z"), ()]), max_size=4
)


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    rows=ROWS,
    routes=TABLES,
    default=st.sampled_from([None, "y", "z"]),
    encoded=st.booleans(),
)
def test_a_split_by_a_table(
    data: st.DataObject,
    rows: list[dict[str, Any]],
    routes: dict[str, Any],
    default: str | None,
    encoded: bool,
) -> None:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    to_sinks(app, app.split("split", source, on="k", table=routes, outputs=OUTPUTS, default=default))

    got = run_all(app, cut(table_of(rows, encoded), data.draw(cuts(len(rows)))))

    def goes_to(name: str) -> Callable[[dict[str, Any]], bool]:
        def condition(row: dict[str, Any]) -> bool:
            if row["k"] not in routes:
                return name == default
            chosen = routes[row["k"]]
            return name in ((chosen,) if isinstance(chosen, str) else chosen)

        return condition

    wanted = split_oracle(rows, outputs={name: goes_to(name) for name in OUTPUTS})
    assert got == {f"to_{name}": found for name, found in wanted.items()}


def test_a_table_in_a_file_maps_numbers_too(tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("value,output\n1,one\n2,two\n1,all\n2,all\n")
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    streams = app.split("split", source, on="v", table=tmp_path / "map.csv", outputs=("one", "two", "all"))
    one, two, both = streams.values()
    to_sinks(app, {"one": one, "two": two, "all": both})

    got = run_all(app, [{"source": table_of([{"k": None, "v": v} for v in (1, 2, 3, None, 2)])}])

    values = {sink: [row["v"] for row in rows] for sink, rows in got.items()}
    assert values == {"to_one": [1], "to_two": [2, 2], "to_all": [1, 2, 2]}


def test_outputs_have_names_of_their_own_in_a_composite() -> None:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))

    def build(inner: rr.Application) -> dict[str, rr.Stream]:
        return inner.split("split", source, outputs={"low": "v < 3", "high": "v >= 3"})

    streams = app.composite("part", build)

    assert {name: stream.name for name, stream in streams.items()} == {"low": "part.low", "high": "part.high"}
    assert app.taken("part.low") is app.taken("part.split")


@lru_cache
def keyed_after_split(by: str) -> rr.Application:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    streams = app.split("split", source, outputs={"low": "v < 3", "high": "v >= 3"})
    both = app.union("both", streams["low"], streams["high"])
    counts = app.aggregate("counts", both, by=by, window=rr.sliding(tuples=100), select="count(*) as n")
    app.sink("out", counts, rr.memory())
    app.sink("lows", app.functor("only", streams["low"], select="v"), rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_what_was_split_and_brought_together_is_still_keyed(
    data: st.DataObject, rows: list[dict[str, Any]]
) -> None:
    batches = cut(table_of(rows), data.draw(cuts(len(rows))))
    tasks = data.draw(dealings(batches, 4))

    got = run_all(keyed_after_split("k"), batches, buckets=4, tasks=tasks)

    seen: dict[Any, int] = {}
    wanted = []
    for row in rows:
        if row["v"] is not None:
            seen[row["k"]] = seen.get(row["k"], 0) + 1
            wanted.append({"k": row["k"], "n": seen[row["k"]]})
    assert got["out"] == wanted
    assert [row["v"] for row in got["lows"]] == [r["v"] for r in rows if r["v"] is not None and r["v"] < 3]


@lru_cache
def three_together() -> rr.Application:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    second = app.functor("second", source, where="v > 1")
    first = app.functor("first", source, where="k is not null", select="k, v + 10 as v")
    third = app.functor("third", source, where="v = 3", select="k, v + 20 as v")
    app.sink("out", app.union("all", first, second, third), rr.memory())
    app.sink("keys", app.functor("key", second, select="k"), rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_a_union_keeps_the_order_and_takes_the_earlier_stream_first(
    data: st.DataObject, rows: list[dict[str, Any]]
) -> None:
    batches = cut(table_of(rows), data.draw(cuts(len(rows))))

    got = run_batches(three_together(), batches)

    wanted = []
    for row in rows:
        v = row["v"]
        if row["k"] is not None:
            wanted.append({"k": row["k"], "v": None if v is None else v + 10})
        if v is not None and v > 1:
            wanted.append(row)
        if v == 3:
            wanted.append({"k": row["k"], "v": 23})
    assert got == wanted


PLACES = st.sampled_from(["before", "after"])


@lru_cache
def punctuated(inner: str, outer: str) -> rr.Application:
    """Count the tuples between punctuations, which two punctors put in."""
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    once = app.punctor("once", source, where="v = 2", place=inner)
    twice = app.punctor("twice", once, where="k = 'a'", place=outer)
    window = rr.tumbling(punctuation=True)
    app.sink(
        "out", app.aggregate("counts", twice, window=window, select="count(*) as n, min(v) as v"), rr.memory()
    )
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS, inner=PLACES, outer=PLACES)
def test_punctuations_stand_where_they_were_put(
    data: st.DataObject, rows: list[dict[str, Any]], inner: str, outer: str
) -> None:
    batches = cut(table_of(rows), data.draw(cuts(len(rows))))

    got = run_batches(punctuated(inner, outer), batches)

    once = punctor_oracle(rows, where=lambda row: row["v"] == 2, place=inner)
    wanted: list[dict[str, Any]] = []
    window: list[dict[str, Any]] = []
    for element in punctor_oracle(once, where=lambda row: row["k"] == "a", place=outer):
        if element is not None:
            window.append(element)
            continue
        if window:
            known = [row["v"] for row in window if row["v"] is not None]
            wanted.append({"n": len(window), "v": min(known, default=None)})
        window = []
    assert [row for row in got if row["n"]] == wanted


def punctor(place: str) -> Punctor:
    app = rr.Application("routing")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    app.punctor("it", source, where="v > 2", place=place)
    operator = app.taken("it")
    assert isinstance(operator, Punctor)
    return operator


@st.composite
def chunks(draw: st.DrawFn, depth: int) -> Chunk:
    """Draw tuples and punctuations in order; some have the same rank and path."""
    steps = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 5)), max_size=12))
    order, elements = [0] * (depth + 1), []
    for is_mark, step, value in steps:
        at = draw(st.integers(0, depth))
        order = [*order[:at], order[at] + step, *([0] * (depth - at) if step else order[at + 1 :])]
        elements.append((None if is_mark else value, tuple(order)))
    tuples = [e for e in elements if e[0] is not None]
    marks = [e for e in elements if e[0] is None]
    at = [sum(v is not None for v, _ in elements[:i]) for i, (v, _) in enumerate(elements) if v is None]

    def numbers(of: list[tuple[Any, tuple[int, ...]]], place: int) -> np.ndarray:
        return np.array([o[place] for _, o in of], np.int64)

    def path(of: list[tuple[Any, tuple[int, ...]]]) -> tuple[np.ndarray, ...]:
        return tuple(numbers(of, place) for place in range(1, depth + 1))

    return Chunk(
        {"k": pa.array(["k"] * len(tuples), pa.string()), "v": pa.array([v for v, _ in tuples], pa.int32())},
        numbers(tuples, 0),
        np.zeros(len(tuples), np.int32),
        path(tuples),
        Marks(np.array(at, np.int64), numbers(marks, 0), np.full(len(marks), EVERY, np.int32), path(marks)),
    )


def elements_of(chunk: Chunk) -> list[tuple[int | None, tuple[int, ...]]]:
    """List tuples (by value) and punctuations (None) with their order."""
    found: list[tuple[int | None, tuple[int, ...]]] = []
    marks = chunk.marks
    values = chunk.columns["v"].to_pylist()
    for row in range(chunk.rows + 1):
        for m in np.flatnonzero(marks.at == row):
            found.append((None, (int(marks.rank[m]), *(int(p[m]) for p in marks.path))))
        if row < chunk.rows:
            found.append((values[row], (int(chunk.rank[row]), *(int(p[row]) for p in chunk.path))))
    return found


@settings(max_examples=100, deadline=None)
@given(data=st.data(), depth=st.integers(0, 2), place=PLACES)
def test_a_punctor_keeps_everything_in_order(data: st.DataObject, depth: int, place: str) -> None:
    chunk = data.draw(chunks(depth))
    keys, _ = encode_keys([], 0)

    result = punctor(place).run(Given(inputs=(chunk,), keys=keys, needed={"it": frozenset({"v"})}))

    (out,) = result.outputs
    before = [None if v is None else {"v": v} for v, _ in elements_of(chunk)]
    wanted = punctor_oracle(before, where=lambda row: row["v"] > 2, place=place)
    found = elements_of(out)
    assert [v for v, _ in found] == [None if e is None else e["v"] for e in wanted]
    assert [order for _, order in found] == sorted(order for _, order in found)
    assert len(out.path) == depth + 1
    # Whatever is merged with it later finds the same order again: nothing has the order of anything else.
    assert len({order for _, order in found}) == len(found)
    again = merge_streams(
        [out, dataclasses.replace(out, columns={"v": out.columns["v"]}).slice(0, 0).without_marks()]
    )
    assert elements_of(again) == found


REFUSALS: dict[str, tuple[Callable[[rr.Application, rr.Stream], object], str]] = {
    "a name that is taken": (
        lambda app, s: app.split("it", s, outputs={"source": "v > 1"}),
        "its output's name 'source' is taken by Source",
    ),
    "its own name": (
        lambda app, s: app.split("it", s, outputs={"it": "v > 1"}),
        "its output's name 'it' is the operator's own",
    ),
    "a name twice": (
        lambda app, s: app.split("it", s, on="k", table={}, outputs=("x", "x")),
        "its output's name 'x' is another output's",
    ),
    "a strange name": (
        lambda app, s: app.split("it", s, outputs={"a b": "v > 1"}),
        "an output's name is 'a b'",
    ),
    "no output": (lambda app, s: app.split("it", s, outputs={}), "it has no outputs"),
    "a wrong condition": (lambda app, s: app.split("it", s, outputs={"x": "w > 1"}), "no column 'w'"),
    "conditions and a table": (
        lambda app, s: app.split("it", s, on="k", table={}, outputs={"x": "v > 1"}),
        "outputs= has conditions, and on=, table= or default= is given too",
    ),
    "neither": (lambda app, s: app.split("it", s, outputs=("x",)), "on= or table= is missing"),
    "first by a table": (
        lambda app, s: app.split("it", s, on="k", table={}, outputs=("x",), first=True),
        "first= is for conditions",
    ),
    "an unknown column": (
        lambda app, s: app.split("it", s, on="w", table={}, outputs=("x",)),
        "on= names column 'w', which does not exist. It has: k, v",
    ),
    "an unknown output": (
        lambda app, s: app.split("it", s, on="k", table={"a": "y"}, outputs=("x",)),
        "its table sends 'a' to 'y'. Its outputs are: x",
    ),
    "an unknown default": (
        lambda app, s: app.split("it", s, on="k", table={}, outputs=("x",), default="y"),
        "default= is 'y'. Its outputs are: x",
    ),
    "a value of another type": (
        lambda app, s: app.split("it", s, on="v", table={"a": "x"}, outputs=("x",)),
        "a value of its table is not int",
    ),
    "a file that is not there": (
        lambda app, s: app.split("it", s, on="k", table="nowhere.csv", outputs=("x",)),
        "its table nowhere.csv cannot be read",
    ),
    "streams that differ": (
        lambda app, s: app.union("it", s, app.functor("f", s, select="k")),
        "its port takes stream 'source' (k string, v int) and stream 'f' (k string), which differ",
    ),
    "no streams": (lambda app, s: app.union("it"), "a port has no stream"),
    "a wrong place": (
        lambda app, s: app.punctor("it", s, where="v > 1", place="between"),
        "place= is 'between'. It is one of before, after",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused(case: str) -> None:
    build, said = REFUSALS[case]
    app = rr.Application("wrong")
    source = app.source("source", rr.rows([], "k string, v int"))

    with pytest.raises(rr.GraphError) as caught:
        build(app, source)

    assert said in str(caught.value)
    assert __file__ in str(caught.value)


def test_the_first_line_of_a_table_says_its_columns(tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("IBM,tech\nGE,industry\n")
    app = rr.Application("wrong")
    source = app.source("source", rr.rows([], "k string, v int"))

    with pytest.raises(
        rr.GraphError, match=r"the first line of its table .* is 'IBM,tech'. It must be 'value,output'"
    ):
        app.split("it", source, on="k", table=tmp_path / "map.csv", outputs=("tech", "industry"))
