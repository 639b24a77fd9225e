"""What the compiler makes of replica groups: copies, the processes they run in, and who writes and reads a channel."""

from __future__ import annotations

import pytest
from tests.compiler.sketch import ONE, Sketch

import riprap as rr
from riprap.compiler import compile_graph, explain
from riprap.graph.replicas import describe_groups
from riprap.operators.channel import Inlet, Outlet
from riprap.stage.plan import ChannelPlan, Layout, Plan


def compiled(graph: rr.Graph) -> Layout:
    return compile_graph(graph, buckets=4, tasks=2)


def operators(plan: Plan) -> list[str]:
    return [o.name for o in plan.graph if not isinstance(o, Inlet | Outlet)]


def shared(layout: Layout) -> dict[str, list[str]]:
    return {plan.name: operators(plan) for plan in layout.plans}


def channel(layout: Layout, stream: str) -> ChannelPlan:
    (found,) = [c for c in layout.channels if c.stream == stream]
    return found


def hot(s: Sketch, **options: object) -> rr.Stream:
    """Add a feed, two operators with keys of their own in a group, and one behind them."""
    sums = s.count("sums", s.source())
    more = s.app.aggregate("more", sums, by="n", window=ONE, select="count(*) as m")
    s.app.replicate("hot", sums, more, **options)  # type: ignore[arg-type]
    return s.app.functor("after", more, where="m > 0")


def test_of_each_element_of_a_group_there_is_a_copy_a_replica() -> None:
    s = Sketch()
    layout = compiled(s.done(hot(s, replicas=3)))

    assert shared(layout) == {
        "sketch": ["feed"],
        **{f"sums~{letter}": ["sums"] for letter in "abc"},
        **{f"more~{letter}": ["more"] for letter in "abc"},
        "after": ["after", "out0"],
    }
    assert {plan.name: (plan.group, plan.replica, plan.process) for plan in layout.plans} == {
        "sketch": (None, None, "main"),
        "after": (None, None, "main"),
        **{
            f"{name}~{letter}": ("hot", letter, f"hot~{letter}")
            for name in ("sums", "more")
            for letter in "abc"
        },
    }


def test_copies_differ_in_nothing_else() -> None:
    s = Sketch()
    a, b = (p for p in compiled(s.done(hot(s))).plans if operators(p) == ["sums"])

    for what in ("graph", "entries", "needed", "buckets", "tasks", "inlets", "outlets", "root", "restart"):
        assert getattr(a, what) == getattr(b, what)


def test_who_writes_and_who_reads_a_channel() -> None:
    s = Sketch()
    layout = compiled(s.done(hot(s)))
    into, inside, out = (channel(layout, name) for name in ("feed", "sums", "more"))
    copies = {f"sums~{x}": ("hot", x) for x in "ab"}

    assert (into.writer, into.readers, into.group, into.failover) == (
        "sketch",
        ("sums~a", "sums~b"),
        None,
        None,
    )
    assert into.copies == copies
    assert (inside.readers, inside.group, inside.failover) == (("more~a", "more~b"), "hot", "exact")
    assert inside.copies == {f"more~{x}": ("hot", x) for x in "ab"}
    assert (out.writer, out.readers, out.group, out.failover) == ("more", ("after",), "hot", "exact")
    assert out.copies == {}
    plans = {plan.name: plan for plan in layout.plans}
    assert plans["sums~a"].inlets["feed"] == plans["sums~b"].inlets["feed"] == into
    assert plans["after"].inlets["more"] == out
    assert plans["sketch"].outlets["feed"] == (into,)


@pytest.mark.parametrize("failover", ["exact", "plain", "ahead"])
def test_a_channel_says_how_its_readers_fail_over(failover: str) -> None:
    s = Sketch()
    layout = compiled(s.done(hot(s, failover=failover)))

    assert [channel(layout, name).failover for name in ("feed", "sums", "more")] == [None, failover, failover]


def test_a_reader_beside_the_group_reads_as_it_is() -> None:
    s = Sketch()
    feed = s.source()
    sums = s.count("sums", feed)
    s.app.replicate("hot", sums)
    other = s.app.functor("other", feed, where="v > 0")
    s.app.place("aside", other)
    layout = compiled(s.done(sums, other))

    assert {c.readers for c in layout.channels if c.stream == "feed"} == {("sums~a", "sums~b"), ("aside",)}


def test_groups_that_feed_each_other() -> None:
    s = Sketch()
    one = s.count("one", s.source())
    two = s.count("two", one)
    s.app.replicate("first", one, failover="plain")
    s.app.replicate("second", two, replicas=3)
    layout = compiled(s.done(two))
    between = channel(layout, "one")

    assert (between.writer, between.group, between.failover) == ("one", "first", "plain")
    assert between.copies == {f"two~{x}": ("second", x) for x in "abc"}
    assert between.readers == ("two~a", "two~b", "two~c")


def test_borders_of_groups_are_borders_of_elements() -> None:
    s = Sketch()
    before = s.app.functor("before", s.source(), where="v > 0")
    inside = s.count("inside", before)
    s.app.replicate("hot", inside)
    graph = s.done(s.app.functor("behind", inside, where="n > 1"))

    assert shared(compiled(graph)) == {
        "sketch": ["feed", "before"],
        "inside~a": ["inside"],
        "inside~b": ["inside"],
        "behind": ["behind", "out0"],
    }
    assert shared(compiled(graph.without_replicas)) == {
        "sketch": ["feed", "before", "inside", "behind", "out0"]
    }


def test_without_groups_nothing_changes() -> None:
    def made(groups: bool) -> Layout:
        s = Sketch()
        two = s.count("two", s.app.functor("one", s.count("counts", s.source()), select="n as m"), by="m")
        if groups:
            s.app.replicate("hot", two)
        graph = s.done(two)
        return compiled(graph.without_replicas if groups else graph)

    alone, without = made(False), made(True)
    assert shared(alone) == shared(without)
    assert alone.channels == without.channels
    assert all((p.group, p.replica, p.process) == (None, None, "main") for p in alone.plans)
    assert all((c.group, c.failover, dict(c.copies)) == (None, None, {}) for c in alone.channels)


def test_a_group_inside_a_region_is_of_the_region() -> None:
    s = Sketch()
    feed = s.source(protect=rr.consistent(period="2s"))
    sums = s.count("sums", feed)
    s.app.replicate("hot", sums)
    layout = compiled(s.done(s.app.functor("after", sums, where="n > 0")))

    assert {p.name: (p.region, p.group, p.kept) for p in layout.plans} == {
        "sketch": ("feed", None, True),
        "sums~a": ("feed", "hot", True),
        "sums~b": ("feed", "hot", True),
        "after": ("feed", None, True),
    }
    assert [region.operators for region in layout.regions] == [("feed", "sums", "after", "out0")]


def test_a_group_and_a_region_may_overlap() -> None:
    s = Sketch()
    feed = s.source()
    one = s.app.functor("one", feed, where="v > 0")
    two = s.app.functor("two", one, where="v > 1", protect=rr.consistent(period="2s"))
    s.app.replicate("hot", one, two)
    layout = compiled(s.done(two))

    assert {p.name: (p.region, p.group) for p in layout.plans} == {
        "sketch": (None, None),
        "one~a": (None, "hot"),
        "one~b": (None, "hot"),
        "two~a": ("two", "hot"),
        "two~b": ("two", "hot"),
        "out0": ("two", None),
    }


def test_operators_placed_in_an_element_are_all_of_one_group() -> None:
    s = Sketch()
    sums = s.count("sums", s.source())
    more = s.count("more", sums)
    s.app.place("own", sums, more)
    s.app.replicate("hot", sums)
    graph = s.done(more)

    with pytest.raises(
        rr.GraphError,
        match=r"'more' .* is placed in 'own', whose operators are in the replica group 'hot', and it is autonomous\. A "
        "processing element is in one region, or in none, and all of it in one replica group: place it elsewhere",
    ):
        compiled(graph)


def test_a_placed_element_has_copies_of_its_name() -> None:
    s = Sketch()
    sums = s.count("sums", s.source())
    s.app.place("own", sums)
    s.app.replicate("hot", sums)

    assert [p.name for p in compiled(s.done(sums)).plans] == ["sketch", "own~a", "own~b", "out0"]


def test_replicas_that_would_have_an_order_of_their_own_are_refused() -> None:
    s = Sketch()
    one, two = s.source("one"), s.source("two")
    s.app.place("first", one)
    s.app.place("second", two)
    both = s.join("both", one, two)
    s.app.replicate("hot", both)
    graph = s.done(both)

    with pytest.raises(rr.GraphError) as caught:
        compiled(graph)
    where = graph.groups[0].location
    assert str(caught.value) == (
        f"replica group 'hot' ({where}): {graph['both']} and those with it read 'one' and 'two', which come from "
        "sources that are read apart: the order they meet in is that of its own batches, and each replica's would be "
        "another. Place the sources together with app.place(...), give them ordering=, or leave what brings their "
        "streams together out of the group"
    )


def test_with_one_order_of_sources_replicas_agree() -> None:
    s = Sketch()
    one, two = (s.source(name, ordering="at") for name in ("one", "two"))
    both = s.join("both", one, two)
    s.app.replicate("hot", both)
    layout = compiled(s.done(both))

    assert {p.name: p.root for p in layout.plans} == dict.fromkeys(
        ["sketch", "both~a", "both~b", "out0"], "ordering"
    )


def test_all_operators_have_copies() -> None:
    s = Sketch()
    after = s.app.functor("after", s.count("sums", s.source()), where="n > 0")
    s.app.replicate_all()
    layout = compiled(s.done(after))

    assert shared(layout) == {
        "sketch": ["feed"], "sums~a": ["sums", "after"], "sums~b": ["sums", "after"], "out0": ["out0"]
    }  # fmt: skip
    assert [(c.stream, c.failover) for c in layout.channels] == [("feed", None), ("after", "ahead")]


def test_explained_is_what_runs_once_and_where_copies_run() -> None:
    s = Sketch()
    more = hot(s, hosts=("spark://one:7077", "spark://two:7077"))
    graph = s.done(more)
    told = list(explain(compiled(graph)))
    without = list(explain(compiled(graph.without_replicas)))

    assert [text for name, text in told if name == "fuse"] == [
        "processing element 'sketch' of 1 operators: feed",
        "processing element 'sums' of 1 operators: sums",
        "processing element 'more' of 1 operators: more",
        "processing element 'after' of 2 operators: after, out0",
    ]
    assert [text for name, text in told if name == "channel"] == [
        "feed: sketch -> sums, by k",
        "sums: sums -> more, by n, a log for each replica of 'hot'",
        "more: more -> after, all of it, a log for each replica of 'hot'",
    ]
    assert [text for name, text in told if name == "replicas"] == list(describe_groups(graph))
    assert [text for name, text in told if name == "process"] == [
        "main: sketch, after",
        "hot~a: sums~a, more~a, on spark://one:7077",
        "hot~b: sums~b, more~b, on spark://two:7077",
    ]
    assert {name for name, _ in without}.isdisjoint({"replicas", "process"})
    for name in ("key", "run"):
        assert not [text for each, text in told if each == name and "~" in text]
