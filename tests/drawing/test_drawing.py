"""The drawings are read back: what a reader would make of the picture must be the graph.

``edges_in`` follows the lines of a text drawing cell by cell, knowing nothing of how it was laid out.
"""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.drawing import draw_svg, draw_text
from riprap.drawing.layout import crossings, lay_out
from riprap.drawing.routing import Wire, route
from riprap.drawing.scene import compose
from riprap.graph import Application, Graph, Stream
from riprap.graph.connectors import memory, rows
from riprap.graph.operators import Source
from riprap.graph.windows import sliding

SNAPSHOTS = Path(__file__).parent / "snapshots"
SVG = "{http://www.w3.org/2000/svg}"
ANSI = re.compile(r"\x1b\[[0-9;]*m")

UP, DOWN, LEFT, RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)
WAYS = {
    "─": {LEFT, RIGHT},
    "│": {UP, DOWN},
    "╭": {DOWN, RIGHT},
    "╮": {DOWN, LEFT},
    "╰": {UP, RIGHT},
    "╯": {UP, LEFT},
    "├": {UP, DOWN, RIGHT},
    "┤": {UP, DOWN, LEFT},
    "┬": {DOWN, LEFT, RIGHT},
    "┴": {UP, LEFT, RIGHT},
    "┼": {UP, DOWN, LEFT, RIGHT},
}


class Shape:
    """An application of operators that pass on one column, where only the shape matters."""

    def __init__(self) -> None:
        self.app = Application("shape")

    def source(self, name: str) -> Stream:
        return self.app.source(name, rows([], "k bigint"))

    def functor(self, name: str, stream: Stream) -> Stream:
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


GRAPHS = {
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
        wanted = 2 if kind == "join" else 1
        inputs = draw(
            st.lists(st.sampled_from(streams), min_size=wanted, max_size=wanted, unique_by=lambda s: s.name)
        )
        read |= {stream.name for stream in inputs}
        build = shape.join if kind == "join" else shape.functor
        streams.append(build(f"op_{place}", *inputs))
    for stream in streams:
        if stream.name not in read:
            shape.sink(stream.name.replace("op", "to"), stream)
    return shape.app.graph()


def edges_of(graph: Graph) -> list[tuple[str, str]]:
    return sorted((stream, operator.name) for operator in graph for stream in operator.inputs)


def boxes_in(drawing: str) -> dict[str, tuple[int, int, int, int]]:
    """Find the boxes of a text drawing: left, top, right and bottom by name. No two may share a cell."""
    lines = drawing.splitlines()
    boxes: dict[str, tuple[int, int, int, int]] = {}
    for top, line in enumerate(lines):
        for found in re.finditer(r"[╭╔] \w+ [─═]*[╮╗]", line):
            left, right = found.start(), found.end() - 1
            bottom = next(y for y in range(top, len(lines)) if lines[y][left : left + 1] in ("╰", "╚"))
            assert lines[bottom][right] in "╯╝"
            name = lines[top + 1][left + 1 : right].strip()
            assert name not in boxes
            boxes[name] = (left, top, right, bottom)
    for (_, a), (_, b) in combinations(boxes.items(), 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1], "boxes overlap"
    return boxes


def edges_in(drawing: str) -> list[tuple[str, str]]:
    """Follow the lines of a text drawing from the boxes they leave to the boxes they point at."""
    lines = drawing.splitlines()
    boxes = boxes_in(drawing)
    found = []
    for name, (left, top, right, bottom) in boxes.items():
        exits = [((right, y), RIGHT) for y in range(top, bottom) if lines[y][right] in "├╟"]
        exits += [((x, bottom), DOWN) for x in range(left, right) if lines[bottom][x] in "┬╤"]
        assert len(exits) <= 1
        while exits:
            (x, y), (step_x, step_y) = exits.pop()
            x, y = x + step_x, y + step_y
            glyph = lines[y][x]
            if glyph in "►▼":
                assert (step_x, step_y) == (RIGHT if glyph == "►" else DOWN)
                tip_x, tip_y = x + step_x, y + step_y
                inside = [n for n, (a, b, c, d) in boxes.items() if a <= tip_x <= c and b <= tip_y <= d]
                found += [(name, target) for target in inside]
                assert inside, "an arrow points at nothing"
            elif glyph == "│" and step_x:
                exits.append(((x, y), (step_x, step_y)))  # behind another line
            else:
                back = (-step_x, -step_y)
                assert back in WAYS[glyph], f"a line breaks off at {glyph!r}"
                exits += [((x, y), way) for way in WAYS[glyph] - {back}]
    return sorted(found)


def edges_listed(drawing: str) -> list[tuple[str, str]]:
    lines = [line for line in drawing.splitlines() if line[0] != "*"]
    name = {line.split()[0]: line.split()[1] for line in lines}
    return sorted((name[number], line.split()[1]) for line in lines for number in re.findall(r"◄(\d+)", line))


def read_back(drawing: str) -> list[tuple[str, str]]:
    return edges_listed(drawing) if drawing.startswith("1 ") else edges_in(drawing)


@every_graph
@pytest.mark.parametrize("width", [300, 100, 60])
def test_text_shows_the_graph(graph: Graph, width: int) -> None:
    drawing = draw_text(graph, width=width)

    assert read_back(drawing) == edges_of(graph)
    assert max(map(len, drawing.splitlines())) <= width
    if not drawing.startswith("1 "):
        assert set(boxes_in(drawing)) == {operator.name for operator in graph}


@settings(max_examples=80, deadline=None)
@given(graph=graphs(), width=st.sampled_from([400, 120, 80, 60]))
def test_text_of_any_graph_reads_back(graph: Graph, width: int) -> None:
    drawing = draw_text(graph, width=width)

    assert read_back(drawing) == edges_of(graph)
    assert max(map(len, drawing.splitlines())) <= width


@every_graph
@pytest.mark.parametrize("width", [1, 2, 5, 11, 20, 33, 47])
def test_text_respects_any_width(graph: Graph, width: int) -> None:
    assert max(map(len, draw_text(graph, width=width).splitlines())) <= width


def test_text_marks_kind_and_state() -> None:
    drawing = draw_text(bargain(), width=200)

    boxes = boxes_in(drawing)
    for operator in bargain():
        left, top, *_ = boxes[operator.name]
        corner, kind = drawing.splitlines()[top][left:].split()[:2]
        assert (corner, kind.rstrip("═─╗╮")) == ("╔" if operator.stateful else "╭", operator.kind)
    assert "5 tuples" in drawing
    assert "1 x 0 tuples" in drawing


def test_text_goes_down_where_it_is_narrow() -> None:
    assert "►" in draw_text(bargain(), width=100)
    assert "▼" in draw_text(bargain(), width=99)


def test_colour_changes_nothing_but_colour() -> None:
    for graph in GRAPHS.values():
        plain, coloured = draw_text(graph), draw_text(graph, colour=True)
        assert ANSI.sub("", coloured) == plain
        assert "\x1b[" not in plain


def test_long_names_keep_their_ends() -> None:
    shape = Shape()
    feed = shape.source("the_feed_of_all_trades_and_quotes_of_the_market_of_the_year")
    for place in range(3):
        shape.sink(f"archive_in_the_long_term_storage_of_exchange_{place}", feed)
    drawing = draw_text(shape.app.graph(), width=70)

    assert len(boxes_in(drawing)) == 4
    assert {name[-1] for name in boxes_in(drawing) if "arch" in name} == {"0", "1", "2"}
    assert "…" in drawing


def test_bargain_text_snapshot() -> None:
    expected = (SNAPSHOTS / "bargain.txt").read_text(encoding="utf-8")

    assert draw_text(bargain(), width=100) + "\n" == expected


@every_graph
def test_scene_boxes_stand_apart_and_curves_join_them(graph: Graph) -> None:
    scene = compose(graph)

    boxes = {box.operator.name: box for box in scene.boxes}
    assert sorted(boxes) == sorted(operator.name for operator in graph)
    for a, b in combinations(scene.boxes, 2):
        beside = a.x + a.width < b.x or b.x + b.width < a.x
        assert beside or a.y + a.height < b.y or b.y + b.height < a.y
    for box in scene.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= scene.width
        assert box.y + box.height <= scene.height
    assert sorted((curve.source, curve.target) for curve in scene.curves) == edges_of(graph)
    for curve in scene.curves:
        source, target = boxes[curve.source], boxes[curve.target]
        assert curve.points[0] == (source.x + source.width, source.y + source.height / 2)
        assert curve.points[-1][0] == target.x
        assert target.y < curve.points[-1][1] < target.y + target.height
        for x, y in curve.points[1:-1]:
            assert not any(b.x < x < b.x + b.width and b.y <= y <= b.y + b.height for b in scene.boxes)
    tips = [curve.points[-1] for curve in scene.curves]
    assert len(set(tips)) == len(tips)


@every_graph
def test_svg_is_xml_with_every_operator_once(graph: Graph) -> None:
    root = xml.fromstring(draw_svg(graph))

    operators = [group for group in root.iter(f"{SVG}g") if group.get("class") == "operator"]
    assert sorted(group.get("data-name", "") for group in operators) == sorted(o.name for o in graph)
    for group in operators:
        operator = graph[group.get("data-name", "")]
        assert operator.summary() in (group.findtext(f"{SVG}title") or "")
        assert len(group.findall(f"{SVG}rect")) == (2 if operator.stateful else 1)
    edges = [(g.get("data-from"), g.get("data-to")) for g in root.iter(f"{SVG}g") if g.get("class") == "edge"]
    assert sorted(edges) == edges_of(graph)


def test_svg_escapes_what_users_write() -> None:
    app = Application("escaping")
    feed = app.source("feed", rows([], "k bigint, word string"))
    low = app.functor("low", feed, where="k < 3 and word <> '<script>&\"\x01'")
    app.sink("out", low, memory())
    drawing = draw_svg(app.graph(), title="a < b & c\x00")

    assert "<script" not in drawing
    texts = [text for element in xml.fromstring(drawing).iter() if (text := element.text)]
    assert "a < b & c\ufffd" in texts
    assert any('<script>&"\ufffd' in text for text in texts)


def test_svg_refers_to_nothing_outside() -> None:
    drawing = draw_svg(bargain(), title="Bargains")

    assert re.findall(r"https?://[^\"]+", drawing) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<(script|style|image|use)|href|url\(|@import", drawing)


def test_drawings_are_deterministic() -> None:
    assert draw_text(bargain()) == draw_text(bargain())
    assert draw_svg(bargain()) == draw_svg(bargain())


def test_layers_follow_the_longest_path() -> None:
    layout = lay_out(bargain())

    layers = {slot.name: slot.layer for layer in layout.layers for slot in layer if not slot.passing}
    assert layers == {
        "Source": 0,
        "TradeQuote": 1,
        "TradeFilter": 2,
        "QuoteFilter": 2,
        "Aggregator": 3,
        "VWAP": 4,
        "BargainIndex": 5,
        "Sink": 6,
    }
    long = next(
        edge for edge in layout.edges if (edge.source, edge.target) == ("QuoteFilter", "BargainIndex")
    )
    assert [(slot.layer, slot.passing) for slot in long.path] == [
        (2, False),
        (3, True),
        (4, True),
        (5, False),
    ]


def test_order_takes_crossings_away() -> None:
    shape = Shape()
    feeds = [shape.source(f"s{place}") for place in range(4)]
    for place, feed in enumerate(reversed(feeds)):
        shape.sink(f"out_{place}", shape.functor(f"f{place}", feed))
    layout = lay_out(shape.app.graph())

    assert crossings(layout.layers, layout.after) == 0


def test_streams_that_change_places_do_not_run_together() -> None:
    legs = route([Wire(stream="a", leaves=0, arrives=(4,)), Wire(stream="b", leaves=4, arrives=(0,))])

    assert [(leg.wire.stream, leg.wire.leaves, leg.wire.arrives, leg.track) for leg in legs] == [
        ("a", 0, (1,), 0),
        ("b", 4, (0,), 1),
        ("a", 1, (4,), 2),
    ]


def test_a_source_alone_is_drawn() -> None:
    graph = chain(1)

    assert isinstance(graph.operators[0], Source)
    assert draw_text(graph) == "╭ Source ╮\n│ op_0   │\n╰────────╯"
