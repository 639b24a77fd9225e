"""The graph as a value: checked as a whole, in order, frozen, and walked by one fold."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import riprap as rr
from riprap.graph.operator import Operator
from riprap.operators.functor import Functor
from riprap.operators.sink import Sink
from riprap.operators.source import Source


def diamond() -> rr.Application:
    """A source read twice, joined, and a side way."""
    app = rr.Application("diamond")
    source = app.source("source", rr.rows([], "k string, v int"))
    left = app.functor("left", source, select="k, v")
    right = app.functor("right", source, where="v > 0")
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=0))
    joined = app.join("joined", left, right, by="k", windows=windows, select="k, right.v")
    app.sink("out", joined, rr.memory())
    app.sink("side", left, rr.memory())
    return app


def renamed(operator: Operator, name: str, *inputs: str) -> Operator:
    return dataclasses.replace(operator, name=name, ports=(inputs,))


def said(make: Callable[[], object]) -> str:
    with pytest.raises(rr.GraphError) as caught:
        make()
    return str(caught.value)


def test_operators_come_after_their_inputs_whatever_their_order() -> None:
    graph = diamond().graph()

    backwards = rr.Graph.of("diamond", reversed(graph.operators))

    for found in (graph, backwards):
        places = {o.name: n for n, o in enumerate(found)}
        assert all(places[i] < places[o.name] for o in found for i in o.inputs)
    assert {o.name for o in backwards} == {o.name for o in graph}


def test_operators_are_found_by_name_and_kind() -> None:
    graph = diamond().graph()

    assert graph["left"].name == "left"
    assert [o.name for o in graph.of_kind(Sink)] == ["out", "side"]
    assert [o.name for o in graph if "left" in o.inputs] == ["joined", "side"]
    with pytest.raises(
        KeyError, match="no operator 'middle'; there are: source, left, right, joined, out, side"
    ):
        graph["middle"]


def test_streams_are_found_with_their_makers_and_readers() -> None:
    graph = diamond().graph()

    assert graph.producer("left") is graph["left"]
    assert graph.schema_of("joined").names == ["k", "v"]
    assert [o.name for o in graph.before(graph["joined"])] == ["left", "right"]
    assert [o.name for o in graph.after(graph["left"])] == ["joined", "side"]
    with pytest.raises(KeyError, match="no stream 'out'; there are: source, left, right, joined"):
        graph.producer("out")


def test_a_control_port_may_close_a_circle() -> None:
    graph = diamond().graph()
    steered = dataclasses.replace(graph["left"], control=("joined",))
    side = [o for o in graph if o.name not in ("left", "out")]

    closed = rr.Graph.of("steered", [steered, *side])

    # What only steers an operator reaches something, and is no input.
    assert [o.name for o in closed.after(closed["joined"])] == ["left"]
    assert not any("joined" in o.inputs for o in closed)
    assert [o.name for o in closed.before(closed["left"])] == ["source"]
    assert closed.fold(lambda o, before: f"{o.name}({','.join(before)})")["left"] == "left(source())"


def test_a_control_port_reads_a_stream_that_exists() -> None:
    graph = diamond().graph()
    steered = dataclasses.replace(graph["left"], control=("nowhere",))

    assert "reads stream 'nowhere', which does not exist" in said(
        lambda: rr.Graph.of("steered", [o for o in graph if o.name != "left"] + [steered])
    )


def test_fold_walks_downstream_with_the_inputs_port_by_port() -> None:
    paths = diamond().graph().fold(lambda o, inputs: f"{o.name}({','.join(inputs)})")

    assert paths["out"] == "out(joined(left(source()),right(source())))"
    assert paths["side"] == "side(left(source()))"


def test_fold_walks_upstream_with_the_consumers() -> None:
    reach = diamond().graph().fold(lambda o, after: {o.name}.union(*after), upward=True)

    assert reach["left"] == {"left", "joined", "out", "side"}
    assert reach["source"] == {"source", "left", "right", "joined", "out", "side"}
    assert reach["out"] == {"out"}


def test_fold_visits_each_operator_once() -> None:
    graph = diamond().graph()
    visited: list[str] = []

    graph.fold(lambda o, _: visited.append(o.name))
    graph.fold(lambda o, _: visited.append(o.name), upward=True)

    names = [o.name for o in graph]
    assert visited == names + names[::-1]


def test_a_stream_that_reaches_no_sink_is_named() -> None:
    app = diamond()
    extra = app.source("extra", rr.rows([], "a int"))
    line = here(-1)
    app.functor("dangling", app.functor("loose", extra, select="a"), select="a")

    assert said(app.graph) == (
        f"operator 'extra' ({line}): its stream reaches no sink. Connect it to one with app.sink(...), or remove it"
    )


def here(offset: int) -> str:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def test_an_application_needs_a_source_and_a_sink() -> None:
    empty = rr.Application("empty")
    endless = rr.Application("endless")
    endless.source("s", rr.rows([], "a int"))

    assert said(empty.graph) == "application 'empty' has no source: add one with app.source(...)"
    assert said(endless.graph) == "application 'endless' has no sink: end it with app.sink(name, stream, ...)"


def test_a_circle_is_named_all_the_way_round() -> None:
    graph = diamond().graph()
    left = graph["left"]
    circle = [renamed(left, "a", "c"), renamed(left, "b", "a"), renamed(left, "c", "b")]

    text = said(lambda: rr.Graph.of("round", [*graph, *circle]))

    assert text == (
        f"operator 'a' ({left.location}): the streams run in a circle: a -> b -> c -> a. "
        "Only a control port may close one"
    )


def test_an_operator_that_reads_itself_is_a_circle() -> None:
    graph = diamond().graph()

    assert "run in a circle: a -> a." in said(
        lambda: rr.Graph.of("round", [*graph, renamed(graph["left"], "a", "a")])
    )


def test_a_stream_that_does_not_exist_is_named() -> None:
    graph = diamond().graph()

    text = said(lambda: rr.Graph.of("torn", [graph["source"], renamed(graph["left"], "left", "sauce")]))

    assert text == (
        f"operator 'left' ({graph['left'].location}): reads stream 'sauce', which does not exist. "
        "There are: source, left"
    )


def test_a_name_used_twice_is_named_with_both_lines() -> None:
    graph = diamond().graph()
    source = graph["source"]

    text = said(lambda: rr.Graph.of("twice", [*graph, source]))

    assert text == (
        f"operator 'source' ({source.location}): the name is taken by Source at {source.location}. "
        "Names are the checkpoint's key: give each its own"
    )


@pytest.mark.parametrize(
    "value",
    [diamond().graph(), *diamond().graph().operators, rr.sliding(tuples=1), rr.every(tuples=1), rr.memory(),
     rr.rows([], "a int"), rr.checkpoint(every="1s"), rr.consistent(period="1s"), rr.eventual(),
     rr.parquet("out"), diamond().graph()["left"].location],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_descriptions_are_frozen(value: Any) -> None:
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)
    with pytest.raises((AttributeError, TypeError)):
        value.something_else = 1


def test_a_graph_does_not_change_when_its_application_goes_on() -> None:
    app = diamond()
    graph = app.graph()

    app.sink("late", app.source("more", rr.rows([], "a int")), rr.memory())

    assert "late" not in {o.name for o in graph}
    assert "late" in {o.name for o in app.graph()}


def test_operators_remember_the_line_that_made_them() -> None:
    app = rr.Application("lines")
    source = app.source("source", rr.rows([], "k string"))
    first = here(-1)
    app.sink(
        "out",
        source,
        rr.memory(),
    )
    second = here(-5)

    assert str(app.graph()["source"].location) == first
    assert str(app.graph()["out"].location) == second
    assert app.graph()["source"].location.code == 'source = app.source("source", rr.rows([], "k string"))'


def test_operators_made_in_a_helper_point_into_the_helper() -> None:
    location = diamond().graph()["left"].location

    assert location.file == __file__
    assert location.code.startswith('left = app.functor("left"')


def test_built_in_applications_point_into_themselves() -> None:
    from riprap.apps.bargain import bargain

    feed = rr.rows([], "seq bigint, ticker string, kind string, price double, size bigint")
    graph = bargain(feed, rr.memory()).graph()

    assert graph["Aggregator"].location.file.endswith("riprap/apps/bargain.py")


def test_operators_say_what_they_do() -> None:
    graph = diamond().graph()

    assert {o.name: o.summary() for o in graph} == {
        "source": "0 rows in memory",
        "left": "k, v",
        "right": "k, v where v > 0",
        "joined": "by k, sliding(1 tuples) x sliding(0 tuples)",
        "out": "memory",
        "side": "memory",
    }
    assert isinstance(graph["source"], Source)
    assert isinstance(graph["left"], Functor)


PROGRAM = """
import riprap as rr

def make():
    app = rr.Application("made")
    app.sink("out", app.source("s", rr.rows([], "a int")), rr.memory())
    return app

app = make()
number = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("name", ["app", "make"])
def test_an_application_is_loaded_by_file_and_name(program: Path, name: str) -> None:
    assert rr.load(f"{program}:{name}").name == "made"


def test_loading_says_what_is_missing(program: Path) -> None:
    assert said(lambda: rr.load("program.py")) == "'program.py' names no application: write file.py:name"
    assert (
        said(lambda: rr.load("nowhere.py:app")) == "'nowhere.py' does not exist (asked for 'nowhere.py:app')"
    )
    assert said(lambda: rr.load(f"{program}:ap")) == f"'{program}' has no application 'ap'; it has: app"
    assert (
        said(lambda: rr.load(f"{program}:number")) == f"'{program}' has no application 'number'; it has: app"
    )


def modules() -> list[str]:
    found = ["riprap.adapters.json_lines", "riprap.application", "riprap.windows", "tests.oracle"]
    packages = ("graph", "state", "kernels", "operators", "compiler", "channels", "protection", "testing")
    for package in (f"riprap.{name}" for name in packages):
        path = importlib.import_module(package).__path__
        found += [package, *(m.name for m in pkgutil.walk_packages(path, f"{package}."))]
    return found


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), extraglobs={"rr": rr})

    assert results.failed == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [t for name in modules() for t in finder.find(importlib.import_module(name)) if t.examples]

    assert len(examples) >= 10
