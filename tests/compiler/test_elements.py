"""Which operators share a processing element, by which key, and what is refused."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from tests.compiler.sketch import FEED, ONE, Sketch

import riprap as rr
from riprap.compiler.elements import Draft, fuse

Keys = dict[str, tuple[str, ...]]


def elements(graph: rr.Graph) -> dict[str, Draft]:
    return {e.name: e for e in fuse(graph)}


def shared(graph: rr.Graph) -> dict[str, list[str]]:
    """Return the operators of each element, sinks left out."""
    return {
        name: [o.name for o in e.operators if not o.name.startswith("out")]
        for name, e in elements(graph).items()
    }


def keys(graph: rr.Graph) -> dict[str, Keys | None]:
    return {name: None if e.key is None else dict(e.key) for name, e in elements(graph).items()}


def refused(graph: rr.Graph) -> str:
    with pytest.raises(rr.GraphError) as caught:
        fuse(graph)
    return str(caught.value)


def test_a_key_is_followed_through_renames_to_the_source() -> None:
    s = Sketch()
    renamed = s.app.functor("renamed", s.source(), select="k as x, v")
    again = s.app.functor("again", renamed, where="v > 0", select="v, x as y")
    graph = s.done(s.count("counts", again, by="y"))

    assert shared(graph) == {"sketch": ["feed", "renamed", "again", "counts"]}
    assert keys(graph) == {"sketch": {"feed": ("k",)}}


def test_a_key_of_several_columns_keeps_its_order() -> None:
    s = Sketch()
    swapped = s.app.functor("swapped", s.source(), select="j as k, k as j, v")
    graph = s.done(s.count("counts", swapped, by=("k", "j")))

    assert keys(graph) == {"sketch": {"feed": ("j", "k")}}


def test_a_key_in_another_order_is_another_key() -> None:
    s = Sketch()
    feed = s.source()
    graph = s.done(s.count("one", feed, by=("k", "j")), s.count("two", feed, by=("j", "k")))

    assert keys(graph) == {"sketch": {"feed": ("k", "j")}, "two": {"feed": ("j", "k")}}


def test_a_key_goes_on_behind_aggregates_and_joins() -> None:
    s = Sketch()
    left, right = s.source("a"), s.source("b", "id string, k string, v int")
    counts = s.count("counts", left)
    joined = s.join("joined", counts, s.app.functor("r", right, select="id as k, v"), select="k as key, n")
    graph = s.done(s.count("more", joined, by="key"))

    assert shared(graph) == {"sketch": ["a", "b", "counts", "r", "joined", "more"]}
    assert keys(graph) == {"sketch": {"a": ("k",), "b": ("id",)}}


def test_without_state_there_is_no_key() -> None:
    s = Sketch()
    graph = s.done(s.app.functor("f", s.source(), where="v > 0"))

    assert keys(graph) == {"sketch": None}


def test_another_key_is_another_element() -> None:
    s = Sketch()
    feed = s.source()
    graph = s.done(s.count("by_k", feed), s.count("by_j", feed, by="j"), s.count("again", feed, by="j"))

    assert shared(graph) == {"sketch": ["feed", "by_k"], "by_j": ["by_j", "again"]}
    assert keys(graph) == {"sketch": {"feed": ("k",)}, "by_j": {"feed": ("j",)}}


def test_a_key_and_no_key_are_two_keys_in_either_order() -> None:
    for first, second in (("k", ()), ((), "k")):
        s = Sketch()
        feed = s.source()
        graph = s.done(s.count("one", feed, by=first), s.count("two", feed, by=second))

        assert shared(graph) == {"sketch": ["feed", "one"], "two": ["two"]}


@pytest.mark.parametrize("select", ["upper(k) as k", "concat(k, j) as k", "'a' as k"])
def test_a_computed_key_is_another_element(select: str) -> None:
    s = Sketch()
    graph = s.done(s.count("counts", s.app.functor("f", s.source(), select=select)))

    assert shared(graph) == {"sketch": ["feed", "f"], "counts": ["counts"]}
    assert keys(graph) == {"sketch": None, "counts": {"f": ("k",)}}


def test_a_key_that_an_aggregate_computed_is_another_element() -> None:
    s = Sketch()
    lasts = s.app.aggregate("lasts", s.source(), by="k", window=ONE, select="last(j) as j")
    graph = s.done(s.app.functor("after", s.count("counts", lasts, by="j"), select="n"))

    assert shared(graph) == {"sketch": ["feed", "lasts"], "counts": ["counts", "after"]}


def test_two_columns_of_one_source_are_joined_elsewhere() -> None:
    s = Sketch()
    feed = s.source()
    other = s.app.functor("other", feed, select="j as k")
    graph = s.done(s.join("joined", s.app.functor("same", feed, select="k"), other))

    assert shared(graph) == {"sketch": ["feed", "other", "same"], "joined": ["joined"]}
    assert keys(graph)["joined"] == {"same": ("k",), "other": ("k",)}


def test_streams_of_one_port_must_have_the_key_from_the_same_column() -> None:
    def counted(*selects: str) -> rr.Graph:
        s = Sketch()
        feed = s.source()
        parts = [s.app.functor(f"f{n}", feed, select=select) for n, select in enumerate(selects)]
        together = s.app.functor("together", parts, select="x")
        return s.done(s.count("counts", together, by="x"))

    # The tuples of one source would be of two keys at once.
    assert shared(counted("k as x", "j as x"))["counts"] == ["counts"]
    assert shared(counted("j as x", "k as x"))["counts"] == ["counts"]
    assert shared(counted("k as x", "upper(k) as x"))["counts"] == ["counts"]
    assert keys(counted("k as x", "k as x")) == {"sketch": {"feed": ("k",)}}


def test_streams_of_several_sources_have_the_key_each_from_its_own_column() -> None:
    s = Sketch()
    one, two = s.source("one", "k string, v int"), s.source("two", "id string, v int")
    graph = s.done(s.count("counts", [one, s.app.functor("renamed", two, select="id as k, v")]))

    assert keys(graph) == {"sketch": {"one": ("k",), "two": ("id",)}}


def test_a_join_keeps_only_the_key_that_both_sides_have() -> None:
    s = Sketch()
    a, b = s.source("a"), s.source("b")
    joined = s.app.join("joined", a, b, by="k", windows=(ONE, ONE), select="a.k as k, a.j as j")
    graph = s.done(s.count("same", joined, by="k"), s.count("other", joined, by="j"))

    assert shared(graph) == {"sketch": ["a", "b", "joined", "same"], "other": ["other"]}


def test_a_source_outside_the_keyed_part_keeps_its_tuples_together() -> None:
    s = Sketch()
    graph = s.done(s.count("counts", s.source()), s.app.functor("f", s.source("aside", "a int"), select="a"))

    assert shared(graph) == {"sketch": ["feed", "counts", "aside", "f"]}
    assert keys(graph) == {"sketch": {"feed": ("k",)}}


def test_keys_of_different_types_or_lengths_are_different_keys() -> None:
    s = Sketch()
    types = s.done(s.count("a", s.source("one")), s.count("b", s.source("two", "k int")))
    s = Sketch()
    lengths = s.done(s.count("a", s.source("one")), s.count("b", s.source("two"), by=("k", "j")))

    assert shared(types) == shared(lengths) == {"sketch": ["one", "a", "two"], "b": ["b"]}


def test_placed_operators_have_an_element_of_their_own() -> None:
    s = Sketch()
    feed = s.source()
    counts, more = s.count("counts", feed), s.count("more", feed)
    s.app.place("apart", counts)
    graph = s.done(s.app.functor("after", counts, select="n"), s.count("behind", counts), more)

    # What only looks at its tuples stays with it; what keeps state by itself goes elsewhere.
    assert shared(graph) == {"sketch": ["feed", "more"], "apart": ["counts", "after"], "behind": ["behind"]}


def test_operators_placed_together_are_together() -> None:
    s = Sketch()
    feed = s.source()
    one, two = s.count("one", feed), s.count("two", s.app.functor("f", feed, select="k"))
    s.app.place("both", one, two)
    graph = s.done(one, two)

    assert shared(graph) == {"sketch": ["feed", "f"], "both": ["one", "two"]}
    assert keys(graph) == {"sketch": None, "both": {"feed": ("k",), "f": ("k",)}}


def test_sources_may_be_placed() -> None:
    s = Sketch()
    one, two = s.source("one"), s.source("two")
    s.app.place("first", one)
    graph = s.done(s.count("a", one), s.count("b", two), s.app.functor("f", one, select="k"))

    assert shared(graph) == {"first": ["one", "f"], "b": ["two", "b"], "a": ["a"]}


def test_names_of_elements_are_their_own() -> None:
    s = Sketch()
    feed = s.source()
    counts = s.count("counts", feed)
    s.app.place("by_j", counts)
    inner = s.app.composite("inner", lambda app: s.count("sums", counts, app=app))
    graph = s.done(s.count("by_k", feed), s.count("by_j", feed, by="j"), inner)

    assert list(shared(graph)) == ["sketch", "by_j", "by_j_2", "inner.sums"]


def test_an_element_has_one_key() -> None:
    s = Sketch()
    feed = s.source()
    one, two = s.count("one", feed), s.count("two", feed, by="j")
    s.app.place("both", one, two)
    graph = s.done(one, two)

    assert refused(graph) == (
        f"operator 'two' ({graph['two'].location}) is placed in 'both', and its key (j) is not that of one. "
        "One processing element has one key: place it elsewhere"
    )


def test_an_element_that_reads_sources_reads_nothing_else() -> None:
    s = Sketch()
    one, two = s.source("one"), s.source("two")
    f = s.app.functor("f", [one, two], select="k")
    s.app.place("first", one, f)
    late = s.done(f)
    s = Sketch()
    one = s.source("one")
    f = s.app.functor("f", one, select="k")
    two = s.source("two")
    s.app.place("second", f, two)
    early = s.done(f, two)

    assert refused(late) == (
        f"operator 'f' ({late['f'].location}) is placed in 'first', which reads sources, and so cannot read 'two' from "
        "elsewhere. Place it apart from the sources"
    )
    assert refused(early) == (
        f"operator 'two' ({early['two'].location}) is placed in 'second', which reads 'one' from elsewhere, and so "
        "cannot read sources. Place it apart"
    )


def test_elements_that_feed_each_other_are_refused() -> None:
    s = Sketch()
    one = s.app.functor("one", s.source(), select="k, v")
    last = s.app.functor("last", s.count("between", one), select="n")
    s.app.place("ends", one, last)

    assert refused(s.done(last)) == (
        "processing elements feed each other in a circle: what lies between the operators placed in ends must be "
        "placed with them"
    )


def steered(graph: rr.Graph, operator: str, stream: str) -> rr.Graph:
    """Put a stream on an operator's control port."""
    operators = [dataclasses.replace(o, control=(stream,)) if o.name == operator else o for o in graph]
    return rr.Graph.of(graph.name, operators, graph.places)


def test_a_loop_stays_inside_an_element() -> None:
    s = Sketch()
    f = s.app.functor("f", s.source(), where="v > 0")
    graph = s.done(s.count("same", f), s.count("other", f, by="j"))

    assert shared(steered(graph, "f", "same")) == shared(graph)
    assert refused(steered(graph, "f", "other")) == (
        f"operator 'f' ({graph['f'].location}): its control port reads 'other' of another processing element (with "
        "another key, or placed apart). A loop must stay inside one: give its operators the same key, or none"
    )


def test_a_clock_is_heard_wherever_it_is_needed() -> None:
    s = Sketch()
    feed = s.source(ordering="at")
    clock = s.app.clock("clock", rr.rows([], "at bigint, t timestamp"), time="t", ordering="at")
    timed: dict[str, Any] = {"window": rr.tumbling(time="1s"), "clock": clock, "select": "count(*) as n"}
    graph = s.done(
        s.app.aggregate("by_k", feed, by="k", **timed), s.app.aggregate("by_j", feed, by="j", **timed)
    )

    assert shared(graph) == {"sketch": ["feed", "clock", "by_k"], "by_j": ["by_j"]}
    assert [list(e.entries) for e in fuse(graph)] == [["feed", "clock"], ["feed", "clock"]]
    # Ticks have no key of their own.
    assert keys(graph) == {"sketch": {"feed": ("k",)}, "by_j": {"feed": ("j",)}}


def test_a_clock_placed_apart_takes_its_hearers_along() -> None:
    s = Sketch()
    feed = s.source(ordering="at")
    clock = s.app.clock("clock", rr.rows([], "at bigint, t timestamp"), time="t", ordering="at")
    s.app.place("time", clock)
    window = rr.tumbling(time="1s")
    counts = s.app.aggregate("counts", feed, by="k", window=window, clock=clock, select="count(*) as n")

    assert shared(s.done(counts)) == {"sketch": ["feed"], "time": ["clock"], "counts": ["counts"]}


def punctuated(by: Any) -> rr.Graph:
    s = Sketch()
    marked = s.app.punctor("marked", s.source(), where="v = 0")
    passed = s.app.functor("passed", marked, select="k, j, v")
    window = rr.tumbling(punctuation=True)
    closing = s.app.aggregate("closing", passed, by=by, window=window, select="last(j) as j, count(*) as n")
    return s.done(closing, s.count("counts", passed, by=by))


def test_what_heeds_punctuations_of_every_key_is_behind_a_channel() -> None:
    # A punctuation that a tuple of one key makes closes the windows of all, and other tasks have those.
    assert shared(punctuated("k")) == {
        "sketch": ["feed", "marked", "passed", "counts"],
        "closing": ["closing"],
    }
    assert shared(punctuated(())) == {"sketch": ["feed", "marked", "passed", "closing", "counts"]}


def test_punctuations_from_a_channel_are_for_every_key() -> None:
    s = Sketch()
    marked = s.app.punctor("marked", s.source(), where="v = 0")
    window = rr.tumbling(punctuation=True)
    first = s.app.aggregate("first", marked, by="k", window=window, select="count(*) as n")
    second = s.app.aggregate("second", first, by="k", window=window, select="sum(n) as n")

    assert shared(s.done(second)) == {"sketch": ["feed", "marked"], "first": ["first", "second"]}


def test_many_ways_to_one_operator_are_looked_at_once() -> None:
    s = Sketch()
    stream = s.source(schema=FEED)
    for n in range(40):
        sides = [s.app.functor(f"{side}{n}", stream, select="k, v") for side in ("left", "right")]
        stream = s.app.functor(f"both{n}", sides, select="k, v")
    graph = s.done(s.count("counts", stream))
    began = time.perf_counter()

    assert keys(graph) == {"sketch": {"feed": ("k",)}}
    assert time.perf_counter() - began < 20


def test_two_elements_of_one_level_do_not_read_each_other() -> None:
    s = Sketch()
    first = s.app.aggregate("first", s.source(), by="k", window=ONE, select="last(j) as j, count(*) as n")
    one = s.app.aggregate("one", first, by="j", window=ONE, select="last(n) as n")
    other = s.app.aggregate("other", first, by="n", window=ONE, select="last(j) as j")
    turned = s.app.functor("turned", other, select="j, n")

    homes = shared(s.done(s.app.union("there", one, turned), s.app.union("back", turned, one)))

    assert homes["one"] == ["one"]
    assert homes["other"] == ["other", "turned"]
    assert homes["there"] == ["there", "back"]


class Draws(rr.CustomOperator):
    """Says so."""

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None: ...

    def checkpoint(self) -> None: ...

    def reset(self, saved: Any) -> None: ...


def drawn(s: Sketch, protect: rr.Policy | None = None) -> rr.Stream:
    feed = s.source(protect=protect)
    return s.app.custom("drawn", Draws, feed, schema=FEED, deterministic=False)


def test_what_may_come_out_otherwise_is_an_element_of_its_own_in_a_region_alone() -> None:
    alone, among = Sketch(), Sketch()
    among.done(among.app.functor("f", drawn(among), where="v > 0"))
    alone.done(alone.app.functor("f", drawn(alone, rr.consistent(period="1s")), where="v > 0"))

    assert shared(among.app.graph()) == {"sketch": ["feed", "drawn", "f"]}
    found = elements(alone.app.graph())
    assert [[o.name for o in e.operators] for e in found.values()] == [["feed"], ["drawn"], ["f", "out0"]]
    assert [e.holds for e in found.values()] == [False, True, False]


def test_what_may_come_out_otherwise_is_placed_with_nothing() -> None:
    s = Sketch()
    rolls = drawn(s, rr.consistent(period="1s"))
    after = s.app.functor("after", rolls, where="v > 0")
    s.app.place("together", rolls, after)

    said = refused(s.done(after))
    assert "is placed in 'together', and 'drawn' there" in said
    assert (
        "it says deterministic=False. It is a processing element of its own: place it elsewhere, or nowhere"
        in said
    )


def test_a_loop_does_not_go_through_what_may_come_out_otherwise() -> None:
    s = Sketch()
    told = s.app.loop("told", "v int")
    feed = s.source(protect=rr.consistent(period="1s"))
    rolls = s.app.custom("drawn", Draws, feed, schema=FEED, control=told, deterministic=False)
    s.app.close(told, s.app.functor("back", rolls, select="v"))

    said = refused(s.done(rolls))
    assert (
        "its control port reads 'back', and 'drawn', of a consistent region, may put out something else"
        in said
    )
    assert "a loop must stay inside one" in said
