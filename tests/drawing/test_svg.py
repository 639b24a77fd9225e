"""Where boxes and lines stand, and what an SVG drawing says."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as xml

from tests.drawing.shapes import GRAPHS, Shape, bargain, edges_of, every_graph

from riprap.application import Application
from riprap.apps.bargain import bargain as bargain_discovery
from riprap.drawing import draw_svg, draw_text
from riprap.drawing.canvas import Wire, route
from riprap.drawing.layout import crossings, lay_out
from riprap.drawing.scene import compose
from riprap.graph import Graph
from riprap.graph.connectors import files, memory, parquet, rows
from riprap.protection import autonomous, consistent
from riprap.windows import sliding

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


def test_svg_names_the_kind_in_every_box_and_tells_kinds_apart() -> None:
    graph = GRAPHS["ways in"]
    fills = {}
    for group in xml.fromstring(draw_svg(graph)).iter(f"{SVG}g"):
        if group.get("class") == "operator":
            kind = graph[group.get("data-name", "")].kind
            assert kind in [text.text for text in group.findall(f"{SVG}text")]
            fills[kind] = group.findall(f"{SVG}rect")[0].get("fill")
    assert len(set(fills.values())) == len(fills) == 4


def test_svg_names_the_streams_of_a_split_and_draws_what_leads_back() -> None:
    groups = list(xml.fromstring(draw_svg(GRAPHS["ways in"])).iter(f"{SVG}g"))
    labels = {(g.get("data-from"), g.get("data-to")): g.findtext(f"{SVG}text") for g in groups}

    assert labels["parity", "inner.counts"] == "even"
    assert labels["parity", "out"] == "even, odd"
    assert labels["inner.counts", "out"] is None
    assert labels["parity", "parity"] == "odd (control)"


def test_svg_says_what_an_aggregate_computes_as_it_was_written() -> None:
    app = Application("written")
    feed = app.source("feed", rows([], "k string, x bigint"))
    select = "count(distinct x) as kinds, sum(x) / count(*) as mean, concat(k, '`$0`') as text"
    app.sink("out", app.aggregate("counts", feed, by="k", window=sliding(tuples=5), select=select), memory())
    drawing = draw_svg(app.graph())

    assert app.graph()["counts"].summary() == f"{select} by k, sliding(5 tuples), every 1 tuples"
    assert "count(distinct x) as kinds," in [text.text for text in xml.fromstring(drawing).iter(f"{SVG}text")]


def regional() -> Graph:
    """Describe two regions, and a loop in the second."""
    app = Application("regional")
    a = app.source("a", rows([], "k bigint"), protect=consistent(period="1s"))
    left = app.functor("left", a, select="k", protect=autonomous())
    app.sink("out", app.functor("right", a, select="k"), memory())
    app.sink("shown", left, memory(), protect=consistent(period="1s"))
    return app.graph()


def test_regions_have_a_colour_behind_their_boxes_and_lines() -> None:
    groups = list(xml.fromstring(draw_svg(regional())).iter(f"{SVG}g"))
    boxes = {g.get("data-name"): g for g in groups if g.get("class") == "operator"}
    regions = {g.get("data-name"): g for g in groups if g.get("class") == "region"}

    assert {name: len(g.findall(f"{SVG}rect")) for name, g in regions.items()} == {"a": 3, "shown": 1}
    assert {name: len(g.findall(f"{SVG}path")) for name, g in regions.items()} == {"a": 2, "shown": 0}
    fills = {name: g.get("fill") for name, g in regions.items()}
    assert len(set(fills.values())) == 2
    starting = {
        name: text.get("fill")
        for name, g in boxes.items()
        for text in g.findall(f"{SVG}text")
        if text.text == "region starts here"
    }
    assert starting == fills
    # Each is behind a box of its own, and is around that.
    around = regions["shown"].find(f"{SVG}rect")
    box = boxes["shown"].find(f"{SVG}rect")
    assert around is not None
    assert box is not None
    assert float(around.get("x", 0)) < float(box.get("x", 0))
    assert float(around.get("width", 0)) > float(box.get("width", 0))
    legend = next(g for g in groups if g.get("class") == "legend")
    assert {"region a", "region shown"} <= {text.text for text in legend.findall(f"{SVG}text")}


def test_text_drawings_name_the_region_in_each_box() -> None:
    drawn = draw_text(regional())
    assert drawn.count("region a ") == 3
    assert drawn.count("region shown ") == 1
    assert drawn.splitlines()[-1] == "region: what it is in, by where that starts."
    listed = draw_text(regional(), width=20).splitlines()
    assert [line.split("~")[-1].split()[0] for line in listed if "~" in line] == [
        "1",
        "1",
        "1",
        "5",
        "region",
    ]


def test_processing_elements_are_framed() -> None:
    graph = bargain()
    trades = ["Source", "TradeQuote", "TradeFilter", "Aggregator", "VWAP"]
    # The branch of the quotes is under that of the trades: no one frame around the second element is without trades.
    elements = {"trades": trades, "quotes": ["QuoteFilter", "BargainIndex", "Sink"]}
    scene = compose(graph, elements)

    framed = []
    for frame in scene.frames:
        assert frame.x >= scene.left
        assert frame.y >= scene.top
        inside = [
            box.operator.name
            for box in scene.boxes
            if frame.x < box.x + box.width
            and box.x < frame.x + frame.width
            and frame.y < box.y + box.height
            and box.y < frame.y + frame.height
        ]
        assert set(inside) <= set(elements[frame.name])
        framed += inside
    assert sorted(framed) == sorted(operator.name for operator in graph)
    drawn = [g.get("data-name") for g in xml.fromstring(draw_svg(graph, elements=elements)).iter(f"{SVG}g")
             if g.get("class") == "element"]  # fmt: skip
    assert set(drawn) == {"trades", "quotes"}
    assert not compose(graph).frames


def test_the_picture_of_the_readme_is_what_is_drawn() -> None:
    feed = files("feed/*.parquet", schema="seq bigint, ticker string, kind string, price double, size bigint")
    drawing = draw_svg(bargain_discovery(feed, parquet("out/")).graph())

    assert Path("docs/bargain.svg").read_text() == drawing


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


def replicated() -> Graph:
    """Describe a group that begins before a region and ends in it, and one of three replicas."""
    app = Application("replicated")
    feed = app.source("feed", rows([], "k bigint"))
    one = app.functor("one", feed, where="k > 0")
    two = app.functor("two", one, where="k > 1", protect=consistent(period="2s"))
    three = app.functor("three", two, where="k > 2")
    app.replicate("hot", one, two)
    app.replicate("late", three, replicas=3)
    app.sink("out", three, memory())
    return app.graph()


def test_replica_groups_have_a_colour_of_their_own_that_shows_beside_a_region() -> None:
    groups = list(xml.fromstring(draw_svg(replicated())).iter(f"{SVG}g"))

    parts = [g for g in groups if g.get("class") in ("replicas", "region")]
    assert [(g.get("class"), g.get("data-name"), g.findtext(f"{SVG}title")) for g in parts] == [
        ("replicas", "hot", "hot, 2 replicas"),
        ("replicas", "late", "late, 3 replicas"),
        ("region", "two", "region two"),
    ]
    assert [len(g.findall(f"{SVG}rect")) for g in parts] == [2, 1, 3]
    assert [len(g.findall(f"{SVG}path")) for g in parts] == [1, 0, 2]
    assert len({g.get("fill") for g in parts}) == 3
    ours, regions = parts[0].findall(f"{SVG}rect")[1], parts[2].findall(f"{SVG}rect")[0]
    assert float(ours.get("width", "")) == float(regions.get("width", "")) + 7, "it shows around a region"
    (legend,) = (g for g in groups if g.get("class") == "legend")
    assert {"hot, 2 replicas", "late, 3 replicas", "region two"} <= {
        text.text for text in legend.findall(f"{SVG}text")
    }


def test_text_drawings_say_how_many_replicas_run_of_each_box() -> None:
    drawn = draw_text(replicated())
    assert [drawn.count(words) for words in ("2 replicas, hot ", "3 replicas, late ", "region two ")] == [
        2,
        1,
        3,
    ]
    assert drawn.splitlines()[-1] == "replicas: how many run, and of which group."
    listed = draw_text(replicated(), width=8).splitlines()
    assert listed[-1] == "x repli…"
