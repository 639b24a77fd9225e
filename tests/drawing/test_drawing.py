"""The text drawings are read back: what a reader would make of the picture must be the graph.

``edges_in`` follows the lines of a text drawing cell by cell, knowing nothing of how it was laid out.
"""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing.shapes import GRAPHS, Shape, bargain, chain, edges_of, every_graph, graphs

from riprap.drawing import draw_svg, draw_text
from riprap.graph import Graph
from riprap.operators.source import Source

SNAPSHOTS = Path(__file__).parent / "snapshots"
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
            elif (step_x, step_y) == RIGHT and (glyph in " ,_…" or glyph.isalnum()):
                exits.append(((x, y), RIGHT))  # behind the name of the stream
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


def test_text_names_the_streams_of_a_split_and_what_leads_back() -> None:
    wide, narrow, listed = (draw_text(GRAPHS["ways in"], width=width) for width in (100, 60, 20))

    assert " even, odd ►│ out" in wide
    assert " even ►║ inner.counts" in wide
    assert "even ▼" in narrow
    for drawing in (wide, narrow):
        assert "odd of parity ╌╌► control port of parity" in drawing
    assert "◄1 ◄2 ↺4 Split" in listed


def test_text_says_in_which_processing_element_an_operator_is() -> None:
    trades = ["Source", "TradeQuote", "TradeFilter", "Aggregator", "VWAP"]
    elements = {"trades": trades, "quotes": ["QuoteFilter", "BargainIndex", "Sink"]}
    drawing = draw_text(bargain(), width=100, elements=elements)

    assert read_back(drawing) == edges_of(bargain())
    lines = drawing.splitlines()
    for name, (left, top, right, bottom) in boxes_in(drawing).items():
        inside = " ".join(line[left + 1 : right] for line in lines[top:bottom])
        assert f"in {'trades' if name in trades else 'quotes'}" in inside
    assert "in trades" not in draw_text(bargain(), elements={"trades": [*trades, *elements["quotes"]]})


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


def test_drawings_are_deterministic() -> None:
    assert draw_text(bargain()) == draw_text(bargain())
    assert draw_svg(bargain()) == draw_svg(bargain())


def test_a_source_alone_is_drawn() -> None:
    graph = chain(1)

    assert isinstance(graph.operators[0], Source)
    assert draw_text(graph) == "╭ Source ╮\n│ op_0   │\n╰────────╯"
