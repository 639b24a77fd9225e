"""The compiler's passes: what each settles, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riprap as rr
from riprap.compiler import Plan, compile_graph, explain
from riprap.compiler.passes import (
    check_ordering,
    choose_path,
    find_key,
    prune_columns,
    refuse_policies,
    trace_columns,
)
from riprap.graph.connectors import FromSpark, Memory, Rows
from riprap.graph.operators import Sink, Source
from riprap.operators.arrival import Entry

ONE = rr.sliding(tuples=1)
FEED = "k string, j string, v int, at bigint"


class Sketch:
    """An application in the making, with its streams at hand."""

    def __init__(self) -> None:
        self.app = rr.Application("sketch")

    def source(self, name: str = "feed", schema: str = FEED, **options: Any) -> rr.Stream:
        return self.app.source(name, rr.rows([], schema), **options)

    def count(self, name: str, stream: rr.Stream, by: Any = "k") -> rr.Stream:
        return self.app.aggregate(name, stream, by=by, window=rr.sliding(tuples=3), select="count(*) as n")

    def join(
        self, name: str, left: rr.Stream, right: rr.Stream, by: Any = "k", select: str | None = None
    ) -> rr.Stream:
        key = by if isinstance(by, str) else by[0]
        return self.app.join(name, left, right, by=by, windows=(ONE, ONE), select=select or key)

    def done(self, *streams: rr.Stream) -> rr.Graph:
        for number, stream in enumerate(streams):
            self.app.sink(f"out{number}", stream, rr.memory())
        return self.app.graph()


def test_a_key_is_followed_through_renames_to_the_source() -> None:
    s = Sketch()
    renamed = s.app.functor("renamed", s.source(), select="k as x, v")
    again = s.app.functor("again", renamed, where="v > 0", select="v, x as y")
    graph = s.done(s.count("counts", again, by="y"))

    assert find_key(graph) == (Entry(name="feed", key=("k",)),)


def test_a_key_of_several_columns_keeps_its_order() -> None:
    s = Sketch()
    swapped = s.app.functor("swapped", s.source(), select="j as k, k as j, v")
    graph = s.done(s.count("counts", swapped, by=("k", "j")))

    assert find_key(graph) == (Entry(name="feed", key=("j", "k")),)


def test_a_key_goes_on_behind_aggregates_and_joins() -> None:
    s = Sketch()
    left, right = s.source("a"), s.source("b", "id string, k string, v int")
    counts = s.count("counts", left)
    joined = s.join("joined", counts, s.app.functor("r", right, select="id as k, v"), select="k as key, n")
    graph = s.done(s.count("more", joined, by="key"))

    assert find_key(graph) == (Entry(name="a", key=("k",)), Entry(name="b", key=("id",)))
    assert trace_columns(graph)["joined"] == {"key": {"a": "k", "b": "id"}, "n": {}}


def test_without_state_there_is_no_key() -> None:
    s = Sketch()

    plan = compile_graph(s.done(s.app.functor("f", s.source(), where="v > 0")), buckets=8, tasks=2)

    assert plan.entries == (Entry(name="feed", key=()),)
    assert (plan.keyed, plan.tasks) == (False, 2)


def test_a_window_without_a_key_is_one_bucket() -> None:
    s = Sketch()

    plan = compile_graph(s.done(s.count("all", s.source(), by=())), buckets=8, tasks=4)

    assert (plan.keyed, plan.buckets, plan.tasks, plan.span(0)) == (True, 1, 1, (0, 1))


def test_there_are_never_more_tasks_than_buckets() -> None:
    s = Sketch()

    plan = compile_graph(s.done(s.count("counts", s.source())), buckets=2, tasks=5)

    assert (plan.buckets, plan.tasks) == (2, 2)


@given(tasks=st.integers(1, 64), more=st.integers(0, 200))
def test_spans_cover_every_bucket_once(tasks: int, more: int) -> None:
    s = Sketch()
    whole = compile_graph(s.done(s.source()), buckets=1, tasks=1)
    plan = Plan(
        name="p", graph=whole.graph, entries=whole.entries, needed=whole.needed, path="direct",
        buckets=tasks + more, tasks=tasks,
    )  # fmt: skip

    spans = [plan.span(task) for task in range(tasks)]

    assert [bucket for span in spans for bucket in range(*span)] == list(range(tasks + more))
    assert all(first < end for first, end in spans)


def refused(graph: rr.Graph, kind: type[Exception] = rr.NotYetError) -> str:
    with pytest.raises(kind) as caught:
        compile_graph(graph, buckets=4, tasks=2)
    return str(caught.value)


def test_policies_are_refused_and_never_dropped() -> None:
    s = Sketch()
    counts = s.app.aggregate(
        "counts", s.source(), by="k", window=ONE, select="count(*) as n", protect=rr.checkpoint(every="2s")
    )
    graph = s.done(counts)

    assert refused(graph) == (
        f"operator 'counts' ({graph['counts'].location}): protect=Checkpoint(every=2.0, keep=3) is not carried out by "
        "this version. Remove it to run unprotected"
    )
    with pytest.raises(rr.NotYetError):
        refuse_policies(graph)


def test_two_keys_are_refused_and_both_are_named() -> None:
    s = Sketch()
    source = s.source()
    graph = s.done(s.count("by_k", source), s.count("by_j", source, by="j"))

    assert refused(graph) == (
        f"operator 'by_j' ({graph['by_j'].location}) has key ('j',) of source 'feed', and operator 'by_k' "
        f"({graph['by_k'].location}) has ('k',). One application has one key in this version: split it in two, "
        "joined by files"
    )


def test_a_key_and_no_key_are_two_keys() -> None:
    s = Sketch()
    source = s.source()

    assert "operator 'all' " in refused(s.done(s.count("by_k", source), s.count("all", source, by=())))


@pytest.mark.parametrize("select", ["upper(k) as k", "concat(k, j) as k", "'a' as k"])
def test_a_computed_key_is_refused(select: str) -> None:
    s = Sketch()
    graph = s.done(s.count("counts", s.app.functor("f", s.source(), select=select)))

    assert refused(graph) == (
        f"operator 'counts' ({graph['counts'].location}): its key 'k' is computed, not a source column. In this "
        "version a key must come unchanged (or renamed) from the source: compute it there"
    )


def test_a_key_that_an_aggregate_computed_is_refused() -> None:
    s = Sketch()
    last = s.app.aggregate("last", s.source(), by="k", window=ONE, select="last(j) as j")

    assert "its key 'j' is computed" in refused(s.done(s.count("counts", last, by="j")))


def test_two_columns_of_one_source_joined_with_each_other_are_refused() -> None:
    s = Sketch()
    source = s.source()
    other = s.app.functor("other", source, select="j as k")
    graph = s.done(s.join("joined", s.app.functor("same", source, select="k"), other))

    assert refused(graph) == (
        f"operator 'joined' ({graph['joined'].location}): its key is ('k',) and ('j',) of source 'feed'. "
        "In this version both ports must have the same source columns as key"
    )


def test_a_source_outside_the_keyed_part_is_refused() -> None:
    s = Sketch()
    graph = s.done(s.count("counts", s.source()), s.source("aside", "a int"))

    assert refused(graph).startswith(
        f"operator 'aside' ({graph['aside'].location}): none of its columns is the key of a stateful operator"
    )


def test_keys_of_different_types_or_lengths_are_refused() -> None:
    s = Sketch()
    types = s.done(s.count("a", s.source("one")), s.count("b", s.source("two", "k int")))
    s = Sketch()
    lengths = s.done(s.count("a", s.source("one")), s.count("b", s.source("two"), by=("k", "j")))

    assert "its key has types" in refused(types, rr.GraphError)
    assert "keys of different lengths" in refused(lengths)


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
        "out0": {"total"},
    }


def test_a_join_needs_what_it_selects_and_tests() -> None:
    s = Sketch()
    left, right = s.source("a"), s.source("b")
    joined = s.app.join(
        "joined", left, right, by="k", windows=(ONE, ONE), where="a.at < b.at", select="a.v as av, b.j as bj"
    )
    graph = s.done(joined)

    assert prune_columns(graph)["a"] == {"at", "v"}
    assert prune_columns(graph)["b"] == {"at", "j"}
    # The key is read from the sources all the same.
    assert compile_graph(graph, buckets=1, tasks=1).needed["a"] == {"at", "v", "k"}


def test_sources_always_read_key_position_and_ordering() -> None:
    s = Sketch()
    graph = s.done(s.count("counts", s.source(position="v", ordering="at")))

    assert compile_graph(graph, buckets=1, tasks=1).needed["feed"] == {"k", "v", "at"}


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


def test_a_spark_source_needs_the_exchange() -> None:
    s = Sketch()
    graph = s.done(s.source(), s.app.source("spark", rr.from_spark(lambda spark: spark, schema="a int")))

    assert choose_path(graph) == "exchange"
    assert compile_graph(graph, buckets=1, tasks=1).path == "exchange"
    with pytest.raises(
        rr.NotYetError, match="'sketch' reads a Spark DataFrame, which cannot be fed directly"
    ):
        compile_graph(graph, buckets=1, tasks=1, path="direct")


def test_recorded_sources_are_fed_directly_unless_told_otherwise() -> None:
    assert compile_graph(_plain(), buckets=1, tasks=1).path == "direct"
    assert compile_graph(_plain(), buckets=1, tasks=1, path="exchange").path == "exchange"


def test_a_plan_leaves_behind_what_only_the_driver_uses() -> None:
    app = rr.Application("heavy")
    cannot_travel = open(__file__)  # noqa: SIM115
    source = app.source("rows", rr.rows([{"a": n} for n in range(10_000)], "a int"))
    spark = app.source("spark", rr.from_spark(lambda spark: cannot_travel, schema="a int"))
    app.sink("one", source, rr.callback(lambda batch, table: cannot_travel.close()))
    app.sink("two", spark, rr.memory())

    plan = compile_graph(app.graph(), buckets=1, tasks=1)
    cannot_travel.close()

    assert len(pickle.dumps(plan)) < 10_000
    connectors = {o.name: o.connector for o in plan.graph if isinstance(o, Source | Sink)}
    assert isinstance(connectors["one"], Memory)
    assert isinstance(connectors["spark"], FromSpark)
    assert isinstance(connectors["rows"], Rows)
    assert connectors["rows"].schema == app.graph()["rows"].schema


def test_explain_says_what_every_pass_decided() -> None:
    s = Sketch()
    wide = s.app.functor("wide", s.source(), select="k, v, j")
    graph = s.done(s.app.aggregate("sums", wide, by="k", window=ONE, select="sum(v) as total"))

    told = list(explain(graph, compile_graph(graph, buckets=8, tasks=2)))

    assert told == [
        ("fuse", "one processing element 'sketch' of 4 operators"),
        ("key", "feed(k); 8 buckets in 2 tasks"),
        ("prune", "feed: k, v; leaves out j, at"),
        ("prune", "wide: k, v; leaves out j"),
        ("prune", "sums: k, total"),
        ("feed", "direct: the task that reads a bucket computes it; one Spark stage, no shuffle"),
    ]


def test_explain_speaks_of_graphs_without_keys_too() -> None:
    s = Sketch()
    everything = s.done(s.count("all", s.source(), by=()))

    def key(graph: rr.Graph, **options: Any) -> str:
        return dict(explain(graph, compile_graph(graph, buckets=8, tasks=2, **options)))["key"]

    assert key(everything) == "none: one bucket; 1 buckets in 1 tasks"
    assert key(_plain()) == "no operator keeps state; 2 tasks take rows as they come"
    exchanged = dict(explain(_plain(), compile_graph(_plain(), buckets=8, tasks=2, path="exchange")))
    assert (
        exchanged["feed"] == "exchange: rows are packed, shuffled by bucket, then computed; two Spark stages"
    )
