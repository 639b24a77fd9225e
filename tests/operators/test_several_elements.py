"""Applications cut into processing elements, by key or by hand: however far one falls behind, it does not show."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windowed import behind
from tests.oracle import Row, join_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.compiler.elements import fuse
from riprap.expressions import parse_schema

FEED = parse_schema("k string, j string, v int, id bigint")
TUPLE = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c", None]),
        "j": st.sampled_from(["u", "v", None]),
        "v": st.none() | st.integers(-2, 5),
    }
)
ROWS = (
    st.sampled_from([0, 6, 20, 30])
    .flatmap(lambda n: st.lists(TUPLE, min_size=n, max_size=n))
    .map(lambda drawn: [{**row, "id": n} for n, row in enumerate(drawn)])
)
# Every operator of `tangled`, each of which may be placed apart.
OPERATORS = ["source", "positive", "lasts", "firsts", "one", "two", "both", "all", "joined"]


def tangled(apart: Sequence[str] = ()) -> rr.Application:
    """Two aggregates by two keys, brought together, joined by one of the keys and counted by none."""
    app = rr.Application("tangled")
    source = app.source("source", rr.rows(FEED.empty_table()))
    positive = app.functor("positive", source, where="v > 0")
    lasts = app.aggregate(
        "lasts",
        source,
        by="k",
        window=rr.sliding(tuples=2),
        select="last(j) as j, sum(v) as v, last(id) as id",
    )
    firsts = app.aggregate(
        "firsts",
        positive,
        by="j",
        window=rr.tumbling(tuples=2),
        select="first(k) as k, sum(v) as v, last(id) as id",
    )
    one = app.functor("one", lasts, select="'lasts' as kind, k, v, id")
    two = app.functor("two", firsts, select="'firsts' as kind, k, v, id")
    both = app.functor("both", [one, two], select="kind, k, v, id")
    ids = "collect_list(concat(kind, ' ', cast(id as string))) as last_ones"
    counts = app.aggregate("all", both, window=rr.sliding(tuples=3), select=ids)
    windows = (rr.sliding(tuples=2), rr.sliding(tuples=2))
    joined = app.join(
        "joined",
        positive,
        lasts,
        by="j",
        windows=windows,
        select="positive.id as a, lasts.id as b, lasts.v as v",
    )
    for name, stream in (("union", both), ("counts", counts), ("pairs", joined)):
        app.sink(name, stream, rr.memory())
    for name in apart:
        app.place(f"own_{name}", name)
    return app


def tangled_oracle(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Take each tuple all the way, one after the other."""
    recent: defaultdict[Any, list[Row]] = defaultdict(list)
    gathered: defaultdict[Any, list[Row]] = defaultdict(list)
    union: list[Row] = []
    counts: list[Row] = []
    meeting: list[tuple[int, Row]] = []
    for row in rows:
        made: list[Row] = []
        window = recent[row["k"]] = [*recent[row["k"]], row][-2:]
        lasts = {"k": row["k"], "j": row["j"], "v": total(window), "id": row["id"]}
        made.append({"kind": "lasts", "k": lasts["k"], "v": lasts["v"], "id": lasts["id"]})
        if (row["v"] or 0) > 0:
            meeting.append((0, row))
            waiting = gathered[row["j"]]
            waiting.append(row)
            if len(waiting) == 2:
                made.append({"kind": "firsts", "k": waiting[0]["k"], "v": total(waiting), "id": row["id"]})
                waiting.clear()
        meeting.append((1, lasts))
        for each in made:
            union.append(each)
            counts.append({"last_ones": [f"{u['kind']} {u['id']}" for u in union[-3:]]})
    pairs = join_oracle(
        meeting,
        by=("j",),
        windows=({"tuples": 2}, {"tuples": 2}),
        where=lambda left, right: True,
        select=lambda left, right: {"a": left["id"], "b": right["id"], "v": right["v"]},
    )
    return {"union": union, "counts": counts, "pairs": pairs}


def total(window: Sequence[Row]) -> int | None:
    values = [row["v"] for row in window if row["v"] is not None]
    return sum(values) if values else None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_wherever_an_application_is_cut_it_answers_the_same(data: st.DataObject, rows: list[Row]) -> None:
    app = tangled(sorted(data.draw(st.sets(st.sampled_from(OPERATORS)))))
    batches = cut(pa.Table.from_pylist(rows, FEED), data.draw(cuts(len(rows))))
    buckets = data.draw(st.sampled_from([1, 5]))
    dealt = data.draw(dealings(batches, buckets))
    found: dict[str, list[Row]] = {"union": [], "counts": [], "pairs": []}

    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets)
        names = st.sets(st.sampled_from(list(stage.elements)), max_size=2)
        for number, (tables, tasks) in enumerate(zip(batches, dealt, strict=True)):
            slow = behind(stage, data.draw(names)) if number < len(batches) - 1 else set()
            for sink, more in stage.feed(tables, tasks=tasks, held_back=slow).items():
                found[sink] += more

    assert found == tangled_oracle(rows)


def test_left_alone_it_is_cut_by_key() -> None:
    elements = {e.name: [o.name for o in e.operators if o.name in OPERATORS] for e in fuse(tangled().graph())}

    assert elements == {
        "tangled": ["source", "positive", "lasts", "one"],
        "firsts": ["firsts", "two", "both", "joined"],
        "all": ["all"],
    }


def test_streams_of_one_port_that_others_read_more_of() -> None:
    app = rr.Application("wider")
    source = app.source("source", rr.rows(FEED.empty_table()))
    wide, narrow = app.functor("wide", source, where="v > 1"), app.functor("narrow", source, where="v < 3")
    app.sink("out", app.functor("ids", [wide, narrow], select="id"), rr.memory())
    app.sink("all", wide, rr.memory())
    table = pa.Table.from_pylist([{"v": v, "id": n} for n, v in enumerate([1, 2, 3])], FEED)

    assert [r["id"] for r in run_batches(app, [{"source": table}])] == [0, 1, 1, 2]


def test_one_column_under_two_names_is_two_keys() -> None:
    app = rr.Application("renamed")
    source = app.source("source", rr.rows(FEED.empty_table()))
    sides = [app.functor(f"of_{c}", source, select=f"{c} as x, id") for c in ("k", "j")]
    counts = app.aggregate(
        "counts", sides, by="x", window=rr.sliding(tuples=9), select="collect_list(id) as ids"
    )
    app.sink("out", counts, rr.memory())
    rows = [{"k": "a", "j": "b", "id": 0}, {"k": "b", "j": "a", "id": 1}, {"k": "a", "j": "a", "id": 2}]
    batches = cut(pa.Table.from_pylist(rows, FEED), [2, 3])

    got = run_batches(app, batches, buckets=4, tasks=[4, 3])

    assert [(r["x"], r["ids"]) for r in got] == [
        ("a", [0]), ("b", [0]), ("b", [0, 1]), ("a", [0, 1]), ("a", [0, 1, 2]), ("a", [0, 1, 2, 2]),
    ]  # fmt: skip


def test_a_failure_in_a_later_element_is_laid_to_the_sources_tuple() -> None:
    app = rr.Application("failing")
    source = app.source("source", rr.rows(FEED.empty_table()))
    lasts = app.aggregate(
        "lasts", source, by="k", window=rr.sliding(tuples=1), select="last(j) as j, last(v) as v"
    )
    sums = app.aggregate(
        "sums", lasts, by="j", window=rr.sliding(tuples=1), select="sum(9223372036854775807L * v) as total"
    )
    app.sink("out", sums, rr.memory())
    rows = [{"k": "a", "j": "u", "v": v, "id": n} for n, v in enumerate([1, 0, 1, 2, 1])]

    with pytest.raises(
        rr.OperatorError, match=r"Aggregate 'sums' .* failed at position 3 of source 'source'"
    ):
        run_batches(app, cut(pa.Table.from_pylist(rows, FEED), [1, 5]))


def test_sources_of_two_elements_without_an_order_come_batch_by_batch() -> None:
    app = rr.Application("roots")
    streams = [app.source(name, rr.rows([], "v int")) for name in ("one", "two")]
    for stream in streams:
        app.place(f"own_{stream.name}", stream)
    app.sink("out", app.functor("both", streams, select="v"), rr.memory())
    schema = parse_schema("v int")

    def tables(one: list[int], two: list[int]) -> dict[str, pa.Table]:
        return {
            n: pa.Table.from_pylist([{"v": v} for v in vs], schema) for n, vs in (("one", one), ("two", two))
        }

    got = run_batches(app, [tables([1, 2], [10]), tables([], [11, 12]), tables([3], [13])])

    assert [r["v"] for r in got] == [1, 2, 10, 11, 12, 3, 13]
