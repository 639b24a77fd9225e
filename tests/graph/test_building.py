"""Parts of an application: composites, ports of several streams, placements and loops."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from importlib import metadata
from inspect import signature
from typing import Any

import pytest

import riprap as rr

FEED = "k string, v int"


def said(make: Callable[[], object]) -> str:
    """Return what is refused, without the line that it was written in."""
    with pytest.raises(rr.GraphError) as caught:
        make()
    return str(caught.value).splitlines()[0].replace(__file__, "FILE")


def app_with_feed() -> tuple[rr.Application, rr.Stream]:
    app = rr.Application("built")
    return app, app.source("feed", rr.rows([], FEED))


def smoothed(inner: rr.Application, stream: rr.Stream, size: int) -> rr.Stream:
    positive = inner.functor("positive", stream, where="v > 0")
    return inner.aggregate("means", positive, by="k", window=rr.sliding(tuples=size), select="avg(v) as v")


def test_a_composite_is_used_again_under_another_name() -> None:
    app, feed = app_with_feed()
    short = app.composite("short", smoothed, feed, 2)
    long = app.composite("long", smoothed, feed, size=9)
    app.sink("out", [short, long], rr.memory())

    graph = app.graph()

    assert [o.name for o in graph] == [
        "feed", "short.positive", "short.means", "long.positive", "long.means", "out",
    ]  # fmt: skip
    assert graph["long.means"].inputs == ("long.positive",)
    assert graph["out"].ports == (("short.means", "long.means"),)
    assert graph["short.positive"].location.file == __file__


def test_composites_nest() -> None:
    def outer(within: rr.Application, stream: rr.Stream) -> list[rr.Stream]:
        return [within.composite(name, smoothed, stream, 3) for name in ("one", "two")]

    app, feed = app_with_feed()
    app.sink("out", app.composite("both", outer, feed), rr.memory())

    assert app.graph()["out"].inputs == ("both.one.means", "both.two.means")


def test_expressions_call_a_stream_of_a_composite_by_its_own_name() -> None:
    def paired(inner: rr.Application, stream: rr.Stream) -> rr.Stream:
        left, right = inner.functor("left", stream, select="*"), inner.functor("right", stream, select="*")
        windows = (rr.sliding(tuples=1), rr.sliding(tuples=1))
        return inner.join("both", left, right, by="k", windows=windows, select="k, left.v as a, right.v as b")

    app, feed = app_with_feed()
    pairs = app.composite("pairs", paired, feed)

    assert pairs.schema.names == ["k", "a", "b"]
    assert (pairs.name, pairs.label) == ("pairs.both", "both")


def test_what_is_wrong_inside_a_composite_is_said_there() -> None:
    app, feed = app_with_feed()
    app.composite("short", smoothed, feed, 2)

    assert said(lambda: app.composite("short", smoothed, feed, 2)).startswith("composite 'short' (FILE:")
    assert "there is one of that name already" in said(lambda: app.composite("short", smoothed, feed, 2))
    assert said(lambda: app.composite("none", smoothed, feed, 0)).startswith("Aggregate 'means' (FILE:")
    assert "an application's name is letters" in said(lambda: app.composite("a.b", smoothed, feed, 2))


def test_functions_of_the_application_are_known_in_a_composite() -> None:
    app, feed = app_with_feed()
    app.function("same", lambda column: column, returns="int")

    made = app.composite("inner", lambda inner: inner.functor("f", feed, select="same(v) as w"))

    assert made.schema.names == ["w"]


@pytest.mark.parametrize(
    ("ports", "problem"),
    [
        (lambda a, feed, other: [], "a port has no stream. Give it at least one"),
        (lambda a, feed, other: [feed, feed], "a port has the same stream twice. Name each once"),
        (
            lambda a, feed, other: [feed, other],
            "its port takes stream 'feed' (k string, v int) and stream 'other' (k string, v bigint), which differ. "
            "Make them alike with a functor's select=",
        ),
        (lambda a, feed, other: [feed, "other"], "it reads 'other'. Give it the stream that app.source(...)"),
        (lambda a, feed, other: None, "it reads None. Give it the stream that app.source(...)"),
        (lambda a, feed, other: 5, "it reads 5. Give it the stream that app.source(...)"),
    ],
)
def test_what_is_wrong_with_a_port_is_said(ports: Callable[..., Any], problem: str) -> None:
    app, feed = app_with_feed()
    other = app.source("other", rr.rows([], "k string, v bigint"))

    assert problem in said(lambda: app.functor("f", ports(app, feed, other), select="k"))


def test_a_list_cannot_be_a_key() -> None:
    app = rr.Application("lists")
    feed = app.source("feed", rr.rows([], "k array<int>"))

    assert "the key 'k' is array<int>. A key's columns are single values" in said(
        lambda: app.aggregate("agg", feed, by="k", window=rr.sliding(tuples=1), select="count(*) as n")
    )


def test_operators_are_placed_by_stream_or_name() -> None:
    app, feed = app_with_feed()
    means = app.composite("short", smoothed, feed, 2)
    app.sink("out", means, rr.memory())
    app.place("apart", means, "out")
    app.place("apart", "out")
    app.composite("inner", lambda inner: inner.place("first", feed, process="other"))

    assert app.graph().places == {"short.means": "apart", "out": "apart", "feed": "first"}
    assert app.graph().processes == {"first": "other"}


def test_what_is_wrong_with_a_placement_is_said() -> None:
    app, feed = app_with_feed()
    app.place("one", feed)

    assert "no operator 'sink'. There are: feed" in said(lambda: app.place("one", "sink"))
    assert "'feed' is in 'one' already" in said(lambda: app.place("two", feed))
    assert "it names no operator" in said(lambda: app.place("two"))
    assert "a name is letters, digits and '_', got 'a b'" in said(lambda: app.place("a b", feed))
    assert "process= is a name of letters" in said(lambda: app.place("one", feed, process="a b"))
    app.place("one", feed, process="first")
    assert "it is in process 'first' already" in said(lambda: app.place("one", feed, process="second"))


def looping() -> tuple[rr.Application, rr.Stream, rr.Stream]:
    app, feed = app_with_feed()
    return app, feed, app.loop("back", FEED)


def test_a_loop_is_closed_with_a_stream() -> None:
    app, feed, back = looping()
    chosen = app.functor("chosen", feed, where="v > 0")
    app.sink("out", chosen, rr.memory())
    # An operator with a control port that takes what is made behind it.
    app._operators["feed"] = dataclasses.replace(app._operators["feed"], control=(back.name,))

    assert said(app.graph) == "loop 'back' is open: close it with app.close(loop, stream)"
    app.close(back, chosen)
    assert app.graph()["feed"].control == ("chosen",)


def test_what_is_wrong_with_a_loop_is_said() -> None:
    app, feed, back = looping()
    wide = app.functor("wide", feed, select="k, v, 1 as one")

    assert "'feed' is no loop. Make one with app.loop(...)" in said(lambda: app.close(feed, feed))
    assert (
        "stream 'back' (k string, v int) was announced, and it is stream 'wide' (k string, v int, one int)"
    ) in said(lambda: app.close(back, wide))
    assert "loop 'feed' (FILE" in said(lambda: app.loop("feed", FEED))
    assert "the name is taken" in said(lambda: app.loop("back", FEED))
    assert "loop 'bad' (FILE" in said(lambda: app.loop("bad", "nonsense"))
    app.close(back, feed)
    assert "loop 'back' is 'feed' already" in said(lambda: app.close(back, feed))


def test_an_operator_cannot_take_the_name_of_a_loop() -> None:
    app, feed, _ = looping()

    assert "the name is taken by a loop" in said(lambda: app.functor("back", feed, select="k"))


def test_csv_files_hold_no_lists() -> None:
    app = rr.Application("lists")
    feed = app.source("feed", rr.rows([], "a array<int>"))

    assert "a CSV file cannot hold the list column 'a'" in said(lambda: app.sink("out", feed, rr.csv("out")))
    app.sink("out", feed, rr.json("out"))


def test_the_options_of_a_run_are_shown_by_help() -> None:
    shown = signature(rr.Application.run).parameters
    assert [n for n in shown if n != "self"] == list(signature(rr.RunOptions).parameters)
    told = rr.Application.run.__doc__ or ""
    assert [n for n in shown if n != "self"] == re.findall(r":param (\w+):", told)


def test_the_version_is_that_of_the_package() -> None:
    assert rr.__version__ == metadata.version("riprap")
