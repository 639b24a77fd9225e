"""Applications of several processing elements: their plans, and the channels between them."""

from __future__ import annotations

import pytest
from tests.compiler.sketch import ONE, Sketch

import riprap as rr
from riprap.compiler import compile_graph, explain


def two_keys() -> rr.Graph:
    """Counts by one key, their sums by another, and the feed itself joined with those."""
    s = Sketch()
    feed = s.source()
    lasts = s.app.aggregate(
        "lasts", feed, by="k", window=ONE, select="last(j) as j, last(v) as v, max(at) as at"
    )
    sums = s.app.aggregate("sums", lasts, by="j", window=ONE, select="sum(v) as total")
    return s.done(s.join("joined", feed, sums, by="j", select="k, total"))


def test_streams_between_elements_go_by_channels() -> None:
    layout = compile_graph(two_keys(), buckets=4, tasks=2)
    first, second = layout.plans
    lasts, feed = layout.channels

    assert (first.name, second.name) == ("sketch", "sums")
    assert [(c.name, c.key, c.buckets, c.readers) for c in layout.channels] == [
        ("lasts@j", ("j",), 4, ("sums",)),
        ("feed@j", ("j",), 4, ("sums",)),
    ]
    # A channel carries the columns that anyone reads, and the key.
    assert (lasts.schema.names, feed.schema.names) == (["j", "v"], ["k", "j", "v", "at"])
    assert {s: [c.name for c in cs] for s, cs in first.outlets.items()} == {
        "feed": ["feed@j"],
        "lasts": ["lasts@j"],
    }
    assert second.inlets == {"lasts": lasts, "feed": feed}
    assert (second.root, second.roots, feed.root) == ("sketch", ("sketch",), "sketch")
    assert [o.name for o in second.graph] == ["lasts", "feed", "sums", "joined", "out0"]
    assert [o.name for o in first.graph] == ["feed", "lasts", "to:lasts", "to:feed"]
    assert first.needed["feed"] == {"k", "j", "v", "at"}
    assert [(e.name, e.key, e.number, e.root) for e in second.entries] == [
        ("lasts", ("j",), None, None),
        ("feed", ("j",), None, None),
    ]


def test_explain_speaks_of_elements_and_channels() -> None:
    told = list(explain(compile_graph(two_keys(), buckets=4, tasks=2)))

    assert told[:6] == [
        ("fuse", "processing element 'sketch' of 2 operators: feed, lasts"),
        ("fuse", "processing element 'sums' of 3 operators: sums, joined, out0"),
        ("channel", "lasts: sketch -> sums, by j"),
        ("channel", "feed: sketch -> sums, by j"),
        ("key", "sketch: feed(k); 4 buckets in 2 tasks"),
        ("key", "sums: lasts(j), feed(j); 4 buckets in 2 tasks"),
    ]
    assert ("prune", "lasts: j, v; leaves out k, at") in told
    assert told[-1] == ("run", "sums: a Spark job whose 2 tasks stay")


def test_what_comes_from_several_places_is_put_in_order_anew() -> None:
    s = Sketch()
    one, two = s.source("one"), s.source("two")
    s.app.place("first", one)
    s.app.place("second", two)
    graph = s.done(s.app.functor("both", [one, two], select="k, v"))

    layout = compile_graph(graph, buckets=2, tasks=1)
    last = layout.plans[-1]

    assert [p.name for p in layout.plans] == ["first", "second", "both"]
    assert (last.root, last.roots) == ("both", ("first", "second"))
    assert [(e.name, e.root) for e in last.entries] == [("one", 0), ("two", 1)]
    assert [(c.name, c.key, c.buckets, c.tags) for c in layout.channels] == [
        ("one@", None, 1, 3),
        ("two@", None, 1, 3),
    ]


def test_a_clock_goes_whole_to_every_element_that_hears_it() -> None:
    s = Sketch()
    feed = s.source(ordering="at")
    clock = s.app.clock("clock", rr.rows([], "at bigint, t timestamp"), time="t", ordering="at")
    window = rr.tumbling(time="1s")
    lasts = s.app.aggregate("lasts", feed, by="k", window=window, clock=clock, select="last(j) as j")
    graph = s.done(s.app.aggregate("more", lasts, by="j", window=window, clock=clock, select="count(*) as n"))

    layout = compile_graph(graph, buckets=4, tasks=2)
    first, second = layout.plans

    assert [(c.name, c.key, c.schema.names) for c in layout.channels] == [
        ("lasts@j", ("j",), ["j"]),
        ("clock@", None, ["t"]),
    ]
    assert [(e.name, e.tick) for e in second.entries] == [("lasts", None), ("clock", "t")]
    assert [(e.name, e.tick, e.number) for e in first.entries] == [("feed", None, 0), ("clock", "t", 1)]
    # What a tick makes is told apart by key and number: two numbers more.
    assert layout.channels[0].tags == 5


def test_ordered_sources_that_are_read_apart_are_refused() -> None:
    s = Sketch()
    first, second = s.source("first", ordering="at"), s.source("second", ordering="at")
    s.app.place("apart", second)
    graph = s.done(s.join("met", first, second))

    with pytest.raises(rr.GraphError, match=r"placed in 'sketch' and 'apart'\. Place them together"):
        compile_graph(graph, buckets=1, tasks=1)
