"""The rules of placement, on the paper's application and on small ones."""

from __future__ import annotations

import pytest

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.market_schema import FEED_SCHEMA
from riprap.errors import GraphError
from riprap.faults import Corruption, Crash, find_targets


def test_bargain_discovery_has_the_five_targets_of_the_paper() -> None:
    graph = bargain(rr.rows(FEED_SCHEMA.empty_table()), rr.memory()).graph()

    targets = {target.name: (target.stands_for, target.why) for target in find_targets(graph, "Sink")}

    assert {name: stands_for for name, (stands_for, _) in targets.items()} == {
        "Source": ("TradeQuote",),
        "TradeFilter": ("Aggregator",),
        "QuoteFilter": (),
        "VWAP": (),
        "BargainIndex": ("Sink",),
    }
    assert targets["Source"][1] == "a source"
    assert "TradeQuote" in targets["TradeFilter"][1]
    assert targets["VWAP"][1] == "'Aggregator' before it keeps state"
    assert targets["BargainIndex"][1] == "several streams come in"


def test_crashes_are_also_injected_where_state_is() -> None:
    graph = bargain(rr.rows(FEED_SCHEMA.empty_table()), rr.memory()).graph()

    names = [target.name for target in find_targets(graph, "Sink", Crash())]

    assert names == ["Source", "TradeFilter", "QuoteFilter", "Aggregator", "VWAP", "BargainIndex"]


def test_crashes_are_injected_on_both_sides_of_a_replica_group() -> None:
    app = rr.Application("grouped")
    rows = app.source("Rows", rr.rows([], "n bigint"))
    one = app.functor("One", rows, select="n + 1 as n")
    two = app.functor("Two", one, select="n + 1 as n")
    three = app.functor("Three", two, select="n + 1 as n")
    app.sink("Out", app.functor("Four", three, select="n"), rr.memory())
    app.replicate("hot", two, three)
    graph = app.graph()

    found = {t.name: (t.stands_for, t.why) for t in find_targets(graph, "Out", Crash())}

    assert found == {
        "Rows": (("One",), "a source"),
        "Two": (("Three",), "it is in replica group 'hot', and 'One' before it is not"),
        "Four": (("Out",), "'Three' before it is in replica group 'hot'"),
    }
    # What is lost on its way in is the same in all replicas, and no group counts where a campaign names a policy.
    for model in (None, Crash(protection=None)):
        assert [t.name for t in find_targets(graph, "Out", model)] == ["Rows"]


def test_what_does_not_lead_to_the_sink_does_not_count() -> None:
    app = rr.Application("two")
    rows = app.source("Rows", rr.rows([], "n bigint"))
    one = app.functor("One", rows, select="n")
    two = app.functor("Two", rows, select="n + 1 as n")
    app.sink("A", one, rr.memory())
    app.sink("B", two, rr.memory())
    graph = app.graph()

    # One is the only reader that counts, so a fault there is one of the source's.
    assert [(t.name, t.stands_for) for t in find_targets(graph, "A")] == [("Rows", ("One", "A"))]
    assert [(t.name, t.stands_for) for t in find_targets(graph, "B")] == [("Rows", ("Two", "B"))]


def test_a_sink_that_is_not_there_is_said() -> None:
    app = rr.Application("one")
    app.sink("A", app.source("Rows", rr.rows([], "n bigint")), rr.memory())

    with pytest.raises(GraphError, match="no sink 'B'; there are: A"):
        find_targets(app.graph(), "B")


def test_what_is_corrupted_is_so_in_front_of_whoever_has_it() -> None:
    graph = bargain(rr.rows(FEED_SCHEMA.empty_table()), rr.memory()).graph()

    found = [target.name for target in find_targets(graph, "Sink", Corruption(columns=("volume", "seq")))]

    assert found == ["Source", "TradeQuote", "TradeFilter", "QuoteFilter", "VWAP", "BargainIndex"]


def test_a_clock_is_no_target() -> None:
    app = rr.Application("clocked")
    clock = app.clock("Clock", rr.ticks(every="1s"), time="time")
    rows = app.source("Rows", rr.rows([], "n bigint"))
    app.sink("Out", app.delay("Later", rows, time="2s", clock=clock), rr.memory())

    assert [t.name for t in find_targets(app.graph(), "Out")] == ["Rows"]
