"""Functors, one tuple at a time; and which tuple is blamed when an operator's own code fails."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import cut, cuts, run_batches

import riprap as rr
from riprap.expressions import Scope, parse_condition, parse_schema
from riprap.kernels.evaluation import evaluate_condition

SCHEMA = parse_schema("seq bigint, k string, a int, b int")
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "seq": st.just(0),
            "k": st.sampled_from(["x", "y", None]),
            "a": st.none() | st.integers(-9, 9),
            "b": st.none() | st.integers(-9, 9),
        }
    ),
    max_size=40,
).map(lambda rows: [{**row, "seq": 10 + 3 * n} for n, row in enumerate(rows)])


def source(app: rr.Application) -> rr.Stream:
    return app.source("source", rr.rows(SCHEMA.empty_table()), position="seq")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_functor_filters_and_computes_tuple_by_tuple(data: st.DataObject, rows: list[dict[str, Any]]) -> None:
    app = rr.Application("plain")
    app.sink(
        "out", app.functor("f", source(app), where="a > b or k = 'x'", select="k, a + b as c, a"), rr.memory()
    )
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    got = run_batches(app, batches)

    def passes(row: dict[str, Any]) -> bool:
        return row["k"] == "x" or (None not in (row["a"], row["b"]) and row["a"] > row["b"])

    def total(row: dict[str, Any]) -> int | None:
        return None if None in (row["a"], row["b"]) else row["a"] + row["b"]

    assert got == [{"k": r["k"], "c": total(r), "a": r["a"]} for r in rows if passes(r)]


def refuse_seven(values: pa.Array) -> pa.Array:
    if 7 in values.to_pylist():
        raise RuntimeError("seven is unlucky")
    return values


def functor_where(app: rr.Application) -> rr.Stream:
    return app.functor("culprit", source(app), where="unlucky(a) > 0")


def functor_select(app: rr.Application) -> rr.Stream:
    return app.functor("culprit", source(app), select="unlucky(a) as a")


def aggregate_argument(app: rr.Application) -> rr.Stream:
    return app.aggregate(
        "culprit", source(app), by="k", window=rr.sliding(tuples=3), select="sum(unlucky(a)) as a"
    )


def aggregate_output(app: rr.Application) -> rr.Stream:
    return app.aggregate(
        "culprit", source(app), by="k", window=rr.sliding(tuples=3), select="unlucky(max(a)) as a"
    )


def join_where(app: rr.Application) -> rr.Stream:
    feed = source(app)
    left = app.functor("left", feed, where="b = 0")
    right = app.functor("right", feed, where="b <> 0")
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=0))
    return app.join(
        "culprit", left, right, by="k", windows=windows, where="unlucky(right.a) > left.a", select="right.a"
    )


def join_select(app: rr.Application) -> rr.Stream:
    feed = source(app)
    left = app.functor("left", feed, where="b = 0")
    right = app.functor("right", feed, where="b <> 0")
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=1))
    return app.join("culprit", left, right, by="k", windows=windows, select="unlucky(right.a) as a")


def expression(app: rr.Application) -> rr.Stream:
    return app.functor("culprit", source(app), select="1 / (a - 7) as a")


CULPRITS = [
    functor_where, functor_select, aggregate_argument, aggregate_output, join_where, join_select, expression,
]  # fmt: skip


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("build", CULPRITS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("bad", [1, 4_999, 9_999])
def test_the_tuple_that_fails_is_named_among_ten_thousand(build: Any, bad: int, tasks: int) -> None:
    app = rr.Application("blamed")
    app.function("unlucky", refuse_seven, returns="int")
    app.sink("out", build(app), rr.memory())
    rows = [{"seq": 5 * n, "k": "xyz"[n // 2 % 3], "a": n % 7, "b": n % 2} for n in range(10_000)]
    # From the bad tuple on, more are bad: the first one is to blame.
    for row in rows[bad::100]:
        row["a"] = 7
    # The join's culprit comes in at the right port, after a left tuple of its key.
    rows[0] = {**rows[0], "b": 0}

    with pytest.raises(rr.OperatorError) as caught:
        run_batches(app, [{"source": pa.Table.from_pylist(rows, SCHEMA)}], buckets=3, tasks=[tasks])

    operator = app.graph()["culprit"]
    pattern = r"(\w+ 'culprit' \(.*:\d+\)) failed at position (\d+) of source 'source': EvaluationError: (.*)"
    named = re.match(pattern, str(caught.value))
    assert named is not None, caught.value
    assert named[1] == f"{operator.kind} 'culprit' ({operator.location})"
    assert __file__ in named[1]
    assert int(named[2]) == 5 * bad
    assert "division by zero" in named[3] if build is expression else "seven is unlucky" in named[3]


def test_a_failure_that_only_the_whole_batch_shows_is_still_the_operators() -> None:
    calls = []

    def fails_once(values: pa.Array) -> pa.Array:
        calls.append(len(values))
        if len(calls) == 1:
            raise RuntimeError("only once")
        return values

    app = rr.Application("blamed")
    app.function("moody", fails_once, returns="int")
    app.sink("out", app.functor("culprit", source(app), select="moody(a) as a"), rr.memory())
    table = pa.Table.from_pylist([{"seq": n, "k": "x", "a": n, "b": 0} for n in range(4)], SCHEMA)

    with pytest.raises(
        rr.OperatorError, match=r"'culprit' .* at a tuple that could not be found again: .*only once"
    ):
        run_batches(app, [{"source": table}])


def test_errors_of_an_output_that_nobody_reads_do_not_stop_a_run() -> None:
    app = rr.Application("lazy")
    ratios = app.functor("ratios", source(app), select="a, 1 / b as ratio")
    app.sink("out", app.functor("only", ratios, select="a"), rr.memory())
    table = pa.Table.from_pylist([{"seq": 0, "k": "x", "a": 1, "b": 0}], SCHEMA)

    assert run_batches(app, [{"source": table}]) == [{"a": 1}]


CONDITIONS = ["s = 'a'", "s is null", "s <> 'a' or s is null", "length(s) > 1", "coalesce(s, 'a') = 'a'"]


@pytest.mark.parametrize("text", CONDITIONS)
@given(data=st.lists(st.sampled_from(["a", "bb", "", None]), max_size=20))
def test_a_condition_over_a_dictionary_means_the_same(text: str, data: list[str | None]) -> None:
    plain = pa.array(data, pa.string())
    condition = parse_condition(text, Scope.of(pa.schema({"s": pa.string()})))

    encoded = evaluate_condition(condition, {"s": plain.dictionary_encode()}, len(data))

    answers = condition.evaluate({"s": plain}, len(data)).to_pylist()
    assert encoded.tolist() == [answer is True for answer in answers]
