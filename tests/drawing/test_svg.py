"""Where boxes and lines stand, and what an SVG drawing says."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as xml

from tests.drawing.shapes import Shape, bargain, edges_of, every_graph

from riprap.drawing import draw_svg
from riprap.drawing.layout import crossings, lay_out
from riprap.drawing.routing import Wire, route
from riprap.drawing.scene import compose
from riprap.graph import Application, Graph
from riprap.graph.connectors import memory, rows

SVG = "{http://www.w3.org/2000/svg}"


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
