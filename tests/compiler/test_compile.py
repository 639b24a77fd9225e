"""The compiler's passes: what each settles, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.sketch import ONE, Sketch

import riprap as rr
from riprap.compiler import Layout, Plan, compile_graph, describe_state, explain
from riprap.compiler.passes import (
    check_ordering,
    is_aligned,
    prune_columns,
    refuse_policies,
    source_tags,
)
from riprap.graph.connectors import FromSpark, Memory, Rows
from riprap.operators.channel import Inlet, Outlet
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.stage.arrival import Intake


def only(layout: Layout) -> Plan:
    """Return the plan of an application of one processing element."""
    (plan,) = layout.plans
    assert layout.channels == ()
    return plan


def test_without_state_there_is_no_key() -> None:
    s = Sketch()

    plan = only(compile_graph(s.done(s.app.functor("f", s.source(), where="v > 0")), buckets=8, tasks=2))

    assert plan.entries == (Intake(name="feed", key=None, number=0),)
    assert (plan.keyed, plan.tasks) == (False, 2)


def test_a_window_without_a_key_is_one_bucket() -> None:
    s = Sketch()

    plan = only(compile_graph(s.done(s.count("all", s.source(), by=())), buckets=8, tasks=4))

    assert (plan.keyed, plan.buckets, plan.tasks, plan.span(0)) == (True, 1, 1, (0, 1))


def test_there_are_never_more_tasks_than_buckets() -> None:
    s = Sketch()

    plan = only(compile_graph(s.done(s.count("counts", s.source())), buckets=2, tasks=5))

    assert (plan.buckets, plan.tasks) == (2, 2)


@settings(deadline=None)
@given(tasks=st.integers(1, 64), more=st.integers(0, 200))
def test_spans_cover_every_bucket_once(tasks: int, more: int) -> None:
    s = Sketch()
    whole = only(compile_graph(s.done(s.source()), buckets=1, tasks=1))
    plan = Plan(
        name="p", graph=whole.graph, entries=whole.entries, needed=whole.needed,
        buckets=tasks + more, tasks=tasks,
    )  # fmt: skip

    spans = [plan.span(task) for task in range(tasks)]

    assert [bucket for span in spans for bucket in range(*span)] == list(range(tasks + more))
    assert all(first < end for first, end in spans)


def refused(graph: rr.Graph, kind: type[Exception] = rr.NotYetError) -> str:
    with pytest.raises(kind) as caught:
        compile_graph(graph, buckets=4, tasks=2)
    return str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Someday(rr.Policy):
    """A policy that this version knows, and does not carry out."""

    CARRIED_OUT: ClassVar[bool] = False


def test_policies_are_refused_and_never_dropped() -> None:
    s = Sketch()
    counts = s.app.aggregate(
        "counts", s.source(), by="k", window=ONE, select="count(*) as n", protect=Someday()
    )
    graph = s.done(counts)

    assert refused(graph) == (
        f"operator 'counts' ({graph['counts'].location}): protect=Someday() is not carried out by "
        "this version. Remove it to run unprotected"
    )
    with pytest.raises(rr.NotYetError):
        refuse_policies(graph)


@pytest.mark.parametrize("option", ["buckets", "tasks"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_buckets_and_tasks_are_whole_numbers(option: str, value: Any) -> None:
    with pytest.raises(rr.GraphError) as caught:
        compile_graph(_plain(), **{"buckets": 1, "tasks": 1, option: value})

    assert str(caught.value) == f"{option}= takes a whole number of at least 1, got {value!r}"


def _plain() -> rr.Graph:
    s = Sketch()
    return s.done(s.source())


def test_only_columns_that_someone_reads_are_needed() -> None:
    s = Sketch()
    source = s.source(position="at")
    wide = s.app.functor("wide", source, where="j = 'x'", select="k, v, v + 1 as w, at")
    sums = s.app.aggregate("sums", wide, by="k", window=ONE, select="sum(v) as total, max(at) as latest")
    graph = s.done(s.app.functor("last", sums, select="total"))

    needed = prune_columns(graph)

    assert needed == {
        "feed": {"k", "j", "v", "at"},
        "wide": {"k", "v", "at"},
        "sums": {"total"},
        "last": {"total"},
    }


def test_a_join_needs_what_it_selects_and_tests() -> None:
    s = Sketch()
    left, right = s.source("a"), s.source("b")
    joined = s.app.join(
        "joined", left, right, by="k", windows=(ONE, ONE), where="a.at < b.at", select="a.v as av, b.j as bj"
    )
    graph = s.done(joined)

    assert prune_columns(graph)["a"] == {"k", "at", "v"}
    assert prune_columns(graph)["b"] == {"k", "at", "j"}


def test_sources_always_read_key_position_and_ordering() -> None:
    s = Sketch()
    counts = s.count("counts", s.source("one", position="v", ordering="at"))
    alone = s.done(counts)
    s = Sketch()
    counts = s.count("counts", s.source("one", position="v", ordering="at"))
    both = s.done(
        counts, s.count("others", s.source("two", ordering="v_at", schema="k string, v_at bigint, w int"))
    )

    # One source alone is in order as it is.
    assert only(compile_graph(alone, buckets=1, tasks=1)).needed["one"] == {"k", "v"}
    needed = only(compile_graph(both, buckets=1, tasks=1)).needed
    assert (needed["one"], needed["two"]) == ({"k", "v", "at"}, {"k", "v_at"})


def test_either_all_sources_have_an_ordering_or_none() -> None:
    s = Sketch()
    some = s.done(s.source("a", ordering="at"), s.source("b"))
    s = Sketch()
    mixed = s.done(s.source("a", ordering="at"), s.source("b", ordering="v"))
    s = Sketch()
    alike = s.done(s.source("a", ordering="at"), s.source("b", ordering="at"))

    assert refused(some, rr.GraphError) == (
        f"operator 'b' ({some['b'].location}): has no ordering=, though operator 'a' ({some['a'].location}) has. "
        "Name one for every source, or for none"
    )
    assert refused(mixed, rr.GraphError) == (
        f"operator 'a' ({mixed['a'].location}): the ordering columns have different types ['int32', 'int64']: cast one"
    )
    check_ordering(alike)


def test_a_source_that_spark_reads_is_an_element_of_its_own() -> None:
    s = Sketch()
    spark = s.app.source("spark", rr.from_spark(lambda spark: spark, schema="a int"))
    graph = s.done(s.source(), s.app.functor("more", spark, select="a + 1 as b"))

    layout = compile_graph(graph, buckets=4, tasks=2)

    parts = {p.name: [o.name for o in p.graph if not isinstance(o, Inlet | Outlet)] for p in layout.plans}
    assert parts["spark"] == ["spark"]
    assert {p.name for p in layout.plans if p.ingests} == {"spark"}
    assert [(c.stream, c.writer) for c in layout.channels] == [("spark", "spark")]
    assert dict(explain(layout))["run"].endswith("a Spark job whose 2 tasks stay")
    assert ("run", "spark: a streaming query of Spark") in list(explain(layout))


def test_a_plan_leaves_behind_what_only_the_driver_uses() -> None:
    app = rr.Application("heavy")
    cannot_travel = open(__file__)  # noqa: SIM115
    source = app.source("rows", rr.rows([{"a": n} for n in range(10_000)], "a int"))
    spark = app.source("spark", rr.from_spark(lambda spark: cannot_travel, schema="a int"))
    app.sink("one", source, rr.callback(lambda batch, table: cannot_travel.close()))
    app.sink("two", spark, rr.memory())

    plans = compile_graph(app.graph(), buckets=1, tasks=1).plans
    cannot_travel.close()

    assert len(pickle.dumps(plans)) < 15_000
    connectors = {o.name: o.connector for p in plans for o in p.graph if isinstance(o, Source | Sink)}
    assert isinstance(connectors["one"], Memory)
    assert isinstance(connectors["spark"], FromSpark)
    assert isinstance(connectors["rows"], Rows)
    assert connectors["rows"].schema == app.graph()["rows"].schema


def test_explain_says_what_every_pass_decided() -> None:
    s = Sketch()
    wide = s.app.functor("wide", s.source(), select="k, v, j")
    graph = s.done(s.app.aggregate("sums", wide, by="k", window=ONE, select="sum(v) as total"))

    told = list(explain(compile_graph(graph, buckets=8, tasks=2)))

    assert told == [
        ("fuse", "one processing element 'sketch' of 4 operators"),
        ("key", "feed(k); 8 buckets in 2 tasks"),
        ("prune", "feed: k, v; leaves out j, at"),
        ("prune", "wide: k, v; leaves out j"),
        ("prune", "sums: k, total"),
        (
            "holds",
            "out0: after the loss of a process: exactly once; after the loss of a host's memory or the power: "
            "approximately (results that are not published yet are lost; the state of 'sums' starts afresh)",
        ),
        ("run", "a Spark job whose 2 tasks stay"),
    ]


def test_explain_speaks_of_graphs_without_keys_too() -> None:
    s = Sketch()
    everything = s.done(s.count("all", s.source(), by=()))

    def key(graph: rr.Graph, **options: Any) -> str:
        return dict(explain(compile_graph(graph, buckets=8, tasks=2, **options)))["key"]

    assert key(everything) == "none: one bucket; 1 buckets in 1 tasks"
    assert key(_plain()) == "no operator keeps state; 2 tasks take rows as they come"


def two_sources(**orderings: str | None) -> rr.Graph:
    s = Sketch()
    return s.done(*(s.source(name, ordering=ordering) for name, ordering in orderings.items()))


def test_tags_begin_with_the_ordering_where_batches_keep_to_it() -> None:
    ordered, unordered = two_sources(a="at", b="at"), two_sources(a=None, b=None)
    one = two_sources(a="at")
    s = Sketch()
    spark = s.app.source("spark", rr.from_spark(lambda spark: spark, schema="at bigint"), ordering="at")
    mixed = s.done(spark, s.source(ordering="at"))

    assert [is_aligned(g) for g in (ordered, unordered, one, mixed)] == [True, False, False, False]
    # Ordering, source, position; batch, source, position; and all four where batches are cut anywhere.
    assert [source_tags(g) for g in (ordered, unordered, one, mixed)] == [3, 3, 3, 4]
    reading = [p for p in compile_graph(mixed, buckets=1, tasks=1).plans if not p.inlets]
    assert [(p.origin, p.aligned) for p in reading] == [(2, False)] * 2
    assert sorted((e.number, e.ordering) for p in reading for e in p.entries) == [(0, "at"), (1, "at")]


def test_state_is_described_by_all_that_it_depends_on() -> None:
    def described(window: Any, select: str = "sum(v) as n", by: Any = "k", emit: Any = None) -> str:
        s = Sketch()
        counts = s.app.aggregate("agg", s.source(), by=by, window=window, emit=emit, select=select)
        return describe_state(s.done(counts))["agg"]

    described_ = [
        described(rr.sliding(tuples=3)),
        described(rr.sliding(tuples=4)),
        described(rr.tumbling(tuples=3)),
        described(rr.sliding(delta=3, on="v")),
        described(rr.sliding(delta=3, on="at")),
        described(rr.sliding(tuples=3), "sum(at) as n"),
        described(rr.sliding(tuples=3), by="j"),
        described(rr.sliding(tuples=3), emit=rr.every(tuples=2)),
    ]

    assert described_[0] == "sliding(3 tuples) by k, every 1 tuples: v int32"
    assert len(set(described_)) == len(described_)
    # What is made of the state is none of its business.
    assert described(rr.sliding(tuples=3), "avg(v) as mean") == described_[0]
