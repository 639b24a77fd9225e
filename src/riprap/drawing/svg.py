"""Draw a graph as one SVG: no script, no font of its own, legible on light and on dark pages."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as xml

from riprap.drawing.labels import shorten, shorten_name, window_label
from riprap.drawing.scene import DETAIL_LIMIT, NAME_LIMIT, Box, Curve, compose, detail_of
from riprap.graph.graph import Graph

# Fill and border. Boxes bring their own light ground and dark text; what lies outside them is a grey that
# stands out from white as well as from black.
_COLOURS = {
    "Source": ("#dbeafe", "#3b82f6"),
    "Functor": ("#eef0f3", "#7c8798"),
    "Aggregate": ("#fef3c7", "#d97706"),
    "Join": ("#ede9fe", "#8b5cf6"),
    "Sink": ("#dcfce7", "#16a34a"),
}
_PLAIN = ("#f5f5f4", "#78716c")
INK, FAINT_INK, OUTSIDE = "#1f2937", "#4b5563", "#828d9e"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

_LEGEND_WIDTH = 5.9  # of a character, generous: fonts differ
MARGIN = 16.0
ARROW = 8.0
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_svg(graph: Graph, *, title: str | None = None) -> str:
    """Draw a graph from left to right as an SVG document; ``title`` puts a heading over it."""
    scene = compose(graph)
    heading = 26.0 if title else 0.0
    kinds = list(dict.fromkeys(operator.kind for operator in graph))
    legend = [(kind, False) for kind in sorted(kinds, key=[*_COLOURS, *kinds].index)]
    if any(operator.stateful for operator in graph):
        legend.append(("keeps state", True))
    legend_width = sum(_legend_step(label) for label, _ in legend) - 14
    width = max(scene.width, legend_width, len(title or "") * 8.5) + 2 * MARGIN
    height = heading + scene.height + 2 * MARGIN + 24
    root = xml.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": decimal(width),
            "height": decimal(height),
            "viewBox": f"0 0 {decimal(width)} {decimal(height)}",
            "role": "img",
            "font-family": FONT,
        },
    )
    xml.SubElement(root, "title").text = clean(title or graph.name)
    if title:
        add_text(root, MARGIN, MARGIN + 12, title, size=15, fill=OUTSIDE, weight="600")
    body = xml.SubElement(
        root, "g", {"transform": f"translate({decimal(MARGIN)} {decimal(MARGIN + heading)})"}
    )
    for curve in scene.curves:
        _draw_curve(body, curve)
    for box in scene.boxes:
        _draw_box(body, box)
    _draw_legend(root, legend, height - MARGIN - 10)
    return xml.tostring(root, encoding="unicode")


def _draw_box(parent: xml.Element, box: Box) -> None:
    operator = box.operator
    group = xml.SubElement(parent, "g", {"class": "operator", "data-name": operator.name})
    about = f"{operator.kind} {operator.name}"
    xml.SubElement(group, "title").text = clean(
        f"{about}: {operator.summary()}" if operator.summary() else about
    )
    _draw_rectangle(group, box.x, box.y, box.width, box.height, operator.kind, doubled=operator.stateful)
    middle = box.x + box.width / 2
    detail = detail_of(operator)
    window = window_label(operator)
    name_at = box.y + (20 if detail else box.height / 2 + 5)
    add_text(
        group,
        middle,
        name_at,
        shorten_name(operator.name, NAME_LIMIT),
        size=13,
        weight="600",
        anchor="middle",
    )
    if detail:
        add_text(group, middle, box.y + 35, detail, size=10.5, fill=FAINT_INK, anchor="middle")
    if window:
        label = shorten(window, DETAIL_LIMIT)
        add_text(group, middle, box.y + 51, label, size=10.5, fill=FAINT_INK, weight="600", anchor="middle")


def _draw_rectangle(
    parent: xml.Element, x: float, y: float, width: float, height: float, kind: str, *, doubled: bool
) -> None:
    fill, border = _colours(kind)
    # Drawn from the outside in: a second border shows through the gap of the first.
    for inset in (0.0, 3.0) if doubled else (0.0,):
        xml.SubElement(
            parent,
            "rect",
            {
                "x": decimal(x + inset),
                "y": decimal(y + inset),
                "width": decimal(width - 2 * inset),
                "height": decimal(height - 2 * inset),
                "rx": decimal(min(8.0, height / 3) - inset / 2),
                "fill": fill,
                "stroke": border,
                "stroke-width": "1.3",
            },
        )


def _draw_curve(parent: xml.Element, curve: Curve) -> None:
    *_, (tip, level) = curve.points
    points = [*curve.points[:-1], (tip - ARROW + 1, level)]
    path = f"M{decimal(points[0][0])} {decimal(points[0][1])}"
    for place, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if place % 2 or y == to_y:
            path += f"L{decimal(to_x)} {decimal(to_y)}"
        else:
            bend = (x + to_x) / 2
            path += f"C{decimal(bend)} {decimal(y)} {decimal(bend)} {decimal(to_y)} {decimal(to_x)} {decimal(to_y)}"
    group = xml.SubElement(parent, "g", {"class": "edge", "data-from": curve.source, "data-to": curve.target})
    xml.SubElement(group, "path", {"d": path, "fill": "none", "stroke": OUTSIDE, "stroke-width": "1.6"})
    head = f"M{decimal(tip)} {decimal(level)}l{decimal(-ARROW)} -4v8z"
    xml.SubElement(group, "path", {"d": head, "fill": OUTSIDE})


def _draw_legend(parent: xml.Element, entries: list[tuple[str, bool]], y: float) -> None:
    parent = xml.SubElement(parent, "g", {"class": "legend"})
    x = MARGIN
    for label, doubled in entries:
        _draw_rectangle(parent, x, y, 16, 11, label, doubled=doubled)
        add_text(parent, x + 22, y + 9.5, label, size=10.5, fill=OUTSIDE)
        x += _legend_step(label)


def _legend_step(label: str) -> float:
    return 22 + len(label) * _LEGEND_WIDTH + 14


def _colours(kind: str) -> tuple[str, str]:
    return _COLOURS.get(kind, _PLAIN)


def add_text(
    parent: xml.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    fill: str = INK,
    weight: str = "400",
    anchor: str = "start",
) -> None:
    """Write a line of text."""
    style = {"font-size": decimal(size), "fill": fill, "font-weight": weight, "text-anchor": anchor}
    xml.SubElement(parent, "text", {"x": decimal(x), "y": decimal(y), **style}).text = clean(text)


def clean(text: str) -> str:
    """Replace the control characters that XML has no way to write."""
    return _NOT_XML.sub("\ufffd", text)


def decimal(value: float) -> str:
    """Write a coordinate."""
    return f"{round(value, 1):g}"
