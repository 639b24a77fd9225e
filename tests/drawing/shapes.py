"""Graphs of many shapes to draw."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import pytest
from hypothesis import strategies as st

from riprap.application import Application
from riprap.graph import Graph, Stream
from riprap.graph.checks import Streams
from riprap.graph.connectors import memory, rows
from riprap.windows import sliding, tumbling


class Shape:
    """An application of operators that pass on one column, where only the shape matters."""

    def __init__(self) -> None:
        self.app = Application("shape")

    def source(self, name: str) -> Stream:
        return self.app.source(name, rows([], "k bigint"))

    def functor(self, name: str, stream: Streams) -> Stream:
        return self.app.functor(name, stream, select="k")

    def aggregate(self, name: str, stream: Stream) -> Stream:
        counted = sliding(tuples=5)
        return self.app.aggregate(name, stream, by="k", window=counted, select=f"count(*) as n_{name}")

    def join(self, name: str, left: Stream, right: Stream) -> Stream:
        windows = (sliding(tuples=1), sliding(tuples=0))
        return self.app.join(name, left, right, by="k", windows=windows, select="k")

    def sink(self, name: str, stream: Stream) -> None:
        self.app.sink(name, stream, memory())


def bargain() -> Graph:
    app = Application("bargain")
    feed = app.source("Source", rows([], "ticker string, kind string, price double, volume bigint"))
    both = app.functor("TradeQuote", feed, where="kind in ('trade', 'quote')")
    trades = app.functor(
        "TradeFilter", both, where="kind = 'trade'", select="ticker, price * volume as paid, volume"
    )
    window = sliding(tuples=5)
    sums = app.aggregate(
        "Aggregator", trades, by="ticker", window=window, select="sum(paid) as paid, sum(volume) as volume"
    )
    average = app.functor("VWAP", sums, select="ticker, paid / volume as vwap")
    quotes = app.functor("QuoteFilter", both, where="kind = 'quote'", select="ticker, price as ask")
    index = app.join(
        "BargainIndex",
        average,
        quotes,
        by="ticker",
        windows=(sliding(tuples=1), sliding(tuples=0)),
        where="vwap > ask",
        select="ticker, vwap, ask",
    )
    app.sink("Sink", index, memory())
    return app.graph()


def chain(length: int) -> Graph:
    shape = Shape()
    stream = shape.source("op_0")
    if length == 1:
        return Graph("chain", tuple(shape.app._operators.values()))  # a chain of one has no sink to check
    for place in range(1, length - 1):
        stream = (
            shape.aggregate(f"op_{place}", stream) if place % 3 == 2 else shape.functor(f"op_{place}", stream)
        )
    shape.sink(f"op_{length - 1}", stream)
    return shape.app.graph()


def fan() -> Graph:
    shape = Shape()
    feed = shape.source("feed")
    for place in range(6):
        shape.sink(f"out_{place}", shape.functor(f"reader_{place}", feed))
    return shape.app.graph()


def diamonds() -> Graph:
    """Two diamonds in a row, a source read late, a stream read in several layers, three sinks."""
    shape = Shape()
    feed, reference = shape.source("feed"), shape.source("reference")
    joined = shape.join("joined", shape.functor("a", feed), shape.functor("b", feed))
    again = shape.join("again", shape.functor("c", joined), shape.functor("d", joined))
    looked_up = shape.join("looked_up", again, reference)
    for name, stream in {"out": looked_up, "half": joined, "raw": feed}.items():
        shape.sink(name, stream)
    return shape.app.graph()


def tangle() -> Graph:
    """Every pair of four sources joined: no drawing of it is without crossings."""
    shape = Shape()
    sources = [shape.source(f"s{place}") for place in range(4)]
    for left, right in combinations(sources, 2):
        name = f"{left.name}_{right.name}"
        shape.sink(f"out_{name}", shape.join(name, left, right))
    return shape.app.graph()


def ways_in() -> Graph:
    """A port of several streams, an operator with several outputs, a clock, a composite, and a loop."""
    app = Application("ways_in")
    one, two = (app.source(name, rows([], "k bigint, at bigint"), ordering="at") for name in ("one", "two"))
    clock = app.clock("clock", rows([], "t timestamp, at bigint"), time="t", ordering="at")
    parity = app.split("parity", [one, two], outputs={"even": "k % 2 = 0", "odd": "k % 2 <> 0"})
    even, odd = parity["even"], parity["odd"]
    counts = app.composite(
        "inner",
        lambda inner: inner.aggregate(
            "counts", even, window=tumbling(time="1s"), clock=clock, select="count(*) as k, max(at) as at"
        ),
    )
    app.sink("out", [counts, odd, even], memory())
    operators = [
        dataclasses.replace(o, control=(odd.name,)) if o.name == "parity" else o for o in app.graph()
    ]
    return Graph.of("ways_in", operators)


GRAPHS = {
    "ways in": ways_in(),
    "bargain": bargain(),
    "fan": fan(),
    "diamonds": diamonds(),
    "tangle": tangle(),
    **{f"chain of {length}": chain(length) for length in (1, 2, 3, 7, 15)},
}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    shape = Shape()
    streams: list[Stream] = []
    read: set[str] = set()
    for place, kind in enumerate(
        ["source", *draw(st.lists(st.sampled_from(["source", "functor", "join"]), max_size=9))]
    ):
        if kind == "source" or (kind == "join" and len(streams) < 2):
            streams.append(shape.source(f"op_{place}"))
            continue
        least, most = (2, 2) if kind == "join" else (1, 3)
        inputs = draw(
            st.lists(st.sampled_from(streams), min_size=least, max_size=most, unique_by=lambda s: s.name)
        )
        read |= {stream.name for stream in inputs}
        name = f"op_{place}"
        streams.append(shape.join(name, *inputs) if kind == "join" else shape.functor(name, inputs))
    for stream in streams:
        if stream.name not in read:
            shape.sink(stream.name.replace("op", "to"), stream)
    return shape.app.graph()


def edges_of(graph: Graph) -> list[tuple[str, str]]:
    """Return who feeds whom, each pair once; a control port is no way in."""
    return sorted(
        {(graph.producer(stream).name, operator.name) for operator in graph for stream in operator.inputs}
    )
