"""Draw a graph as one SVG: no script, no font of its own, legible on light and on dark pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from xml.etree import ElementTree as xml

from riprap.drawing.labels import shorten, shorten_name, window_label
from riprap.drawing.scene import (
    DETAIL_LIMIT,
    KIND_AT,
    LINE,
    NAME_AT,
    NAME_LIMIT,
    STARTS,
    Box,
    Curve,
    Frame,
    Scene,
    compose,
    details_of,
)
from riprap.graph.graph import Graph
from riprap.graph.regions import regions_of

# Fill and border. Boxes bring their own light ground and dark text; what lies outside them is a grey that
# stands out from white as well as from black.
_ROUTE, _WAIT = ("#cffafe", "#0891b2"), ("#ffe4e6", "#e11d48")
_COLOURS = {
    "Source": ("#dbeafe", "#3b82f6"),
    "Functor": ("#eef0f3", "#7c8798"),
    "Lookup": ("#e0e7ff", "#6366f1"),
    "Aggregate": ("#fef3c7", "#d97706"),
    "Sort": ("#ffedd5", "#ea580c"),
    "TopN": ("#ffedd5", "#ea580c"),
    "Join": ("#ede9fe", "#8b5cf6"),
    "Barrier": ("#fae8ff", "#c026d3"),
    "Split": _ROUTE,
    "Union": _ROUTE,
    "Punctor": _ROUTE,
    "Deduplicate": _WAIT,
    "Delay": _WAIT,
    "Throttle": _WAIT,
    "Gate": _WAIT,
    "Custom": ("#fce7f3", "#be185d"),
    "Sink": ("#dcfce7", "#16a34a"),
}
_PLAIN = ("#f5f5f4", "#78716c")
# Of regions and replica groups, one after the other: each is seen on white as well as on black, behind lines and
# around boxes.
_SHADES = ("#0d9488", "#c2570c", "#7c5cd6", "#cc3a74", "#3578c4")
INK, FAINT_INK, OUTSIDE = "#1f2937", "#4b5563", "#828d9e"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

_HALO = 6.0  # of a region, around boxes and along lines
_WIDE_HALO = 9.5  # of a replica group: it shows beside that of a region
_LEGEND_WIDTH = 5.9  # of a character, generous: fonts differ
MARGIN = 16.0
ARROW = 8.0
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_svg(
    graph: Graph, *, title: str | None = None, elements: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Draw a graph from left to right as an SVG document; ``title`` puts a heading over it.

    ``elements`` names the operators of each processing element; if there are several, each gets a frame. Operators of a
    consistent region, and the lines between them, have its colour around them, and so have those of a replica group.
    """
    scene = compose(graph, elements if elements and len(elements) > 1 else None)
    heading = 26.0 if title else 0.0
    kinds = list(dict.fromkeys(operator.kind for operator in graph))
    legend = [(kind, False) for kind in sorted(kinds, key=[*_COLOURS, *kinds].index)]
    if any(operator.stateful for operator in graph):
        legend.append(("keeps state", True))
    parts = _shades(graph)
    region_colours = {part.name: part.colour for part in parts if part.kind == "region"}
    labels = [*(label for label, _ in legend), *(part.label for part in parts)]
    legend_width = sum(_legend_step(label) for label in labels) - 14
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
    right, down = MARGIN - scene.left, MARGIN + heading - scene.top
    body = xml.SubElement(root, "g", {"transform": f"translate({decimal(right)} {decimal(down)})"})
    for frame in scene.frames:
        _draw_frame(body, frame)
    for part in parts:
        _draw_shade(body, scene, part)
    for curve in scene.curves:
        _draw_curve(body, curve)
    for line in scene.returns:
        _draw_return(body, line)
    for box in scene.boxes:
        _draw_box(body, box, region_colours.get(box.region or ""))
    _draw_legend(root, legend, parts, height - MARGIN - 10)
    return xml.tostring(root, encoding="unicode")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shade:
    """A part of the graph that has a colour behind it: a consistent region, or a replica group."""

    kind: str
    name: str
    label: str
    operators: frozenset[str]
    colour: str
    halo: float


def _shades(graph: Graph) -> list[_Shade]:
    """List replica groups and regions as they are drawn, one over the other: they may overlap."""
    # Regions have the first colours, whatever groups there are.
    colours = cycle(_SHADES)
    regions = [
        _Shade(
            kind="region",
            name=region.name,
            label=f"region {shorten_name(region.name, NAME_LIMIT)}",
            operators=frozenset(region.operators),
            colour=next(colours),
            halo=_HALO,
        )
        for region in regions_of(graph)
    ]
    groups = [
        _Shade(
            kind="replicas",
            name=group.name,
            label=f"{shorten_name(group.name, NAME_LIMIT)}, {group.replicas} replicas",
            operators=frozenset(group.operators),
            colour=next(colours),
            halo=_WIDE_HALO,
        )
        for group in graph.groups
    ]
    return [*groups, *regions]


def _draw_box(parent: xml.Element, box: Box, region_colour: str | None) -> None:
    operator = box.operator
    group = xml.SubElement(parent, "g", {"class": "operator", "data-name": operator.name})
    about = f"{operator.kind} {operator.name}"
    xml.SubElement(group, "title").text = clean(
        f"{about}: {operator.summary()}" if operator.summary() else about
    )
    _draw_rectangle(group, box.x, box.y, box.width, box.height, operator.kind, doubled=operator.stateful)
    middle = box.x + box.width / 2

    def write(down: float, text: str, *, size: float, fill: str = INK, weight: str = "400") -> None:
        add_text(group, middle, box.y + down, text, size=size, fill=fill, weight=weight, anchor="middle")

    write(KIND_AT, operator.kind, size=9.5, fill=_colours(operator.kind)[1], weight="600")
    write(NAME_AT, shorten_name(operator.name, NAME_LIMIT), size=13, weight="600")
    details = details_of(operator)
    for number, line in enumerate(details, start=1):
        write(NAME_AT + 1 + LINE * number, line, size=10.5, fill=FAINT_INK)
    window = window_label(operator)
    if window:
        under = NAME_AT + 1 + LINE * (len(details) + 1)
        write(under, shorten(window, DETAIL_LIMIT), size=10.5, fill=FAINT_INK, weight="600")
    if box.starts and region_colour is not None:
        write(box.height - 9, STARTS, size=10.5, fill=region_colour, weight="600")


def _draw_shade(parent: xml.Element, scene: Scene, part: _Shade) -> None:
    """Put the colour of a part behind its boxes and the lines between them."""
    inside, halo = part.operators, part.halo
    # Drawn in one colour, and made faint as a whole: pieces that overlap do not show.
    style = {"opacity": "0.4", "fill": part.colour, "stroke": part.colour, "stroke-linejoin": "round"}
    group = xml.SubElement(parent, "g", {"class": part.kind, "data-name": part.name, **style})
    xml.SubElement(group, "title").text = clean(part.label)
    for curve in scene.curves:
        if {curve.source, curve.target} <= inside:
            _draw_band(group, _curved(curve.points), halo)
    for line in scene.returns:
        if {line.source, line.target} <= inside:
            _draw_band(group, _straight(line.points), halo)
    for box in scene.boxes:
        if box.operator.name in inside:
            place = {
                "x": box.x - halo,
                "y": box.y - halo,
                "width": box.width + 2 * halo,
                "height": box.height + 2 * halo,
            }
            rounded = {"rx": decimal(7 + halo), "stroke": "none"}
            xml.SubElement(group, "rect", {**{key: decimal(at) for key, at in place.items()}, **rounded})


def _draw_band(parent: xml.Element, path: str, halo: float) -> None:
    xml.SubElement(parent, "path", {"d": path, "fill": "none", "stroke-width": decimal(2 * halo)})


def _draw_frame(parent: xml.Element, frame: Frame) -> None:
    """Draw the frame of a processing element, its name in the corner."""
    group = xml.SubElement(parent, "g", {"class": "element", "data-name": frame.name})
    place = {"x": frame.x, "y": frame.y, "width": frame.width, "height": frame.height}
    style = {"rx": "12", "fill": OUTSIDE, "fill-opacity": "0.08", "stroke": OUTSIDE, "stroke-opacity": "0.6"}
    xml.SubElement(group, "rect", {**{name: decimal(at) for name, at in place.items()}, **style})
    room = int((frame.width - 20) / _LEGEND_WIDTH)
    add_text(
        group, frame.x + 10, frame.y + 15, shorten_name(frame.name, room), size=11, fill=OUTSIDE, weight="600"
    )


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
    path = _curved(points)
    group = xml.SubElement(parent, "g", {"class": "edge", "data-from": curve.source, "data-to": curve.target})
    xml.SubElement(group, "path", {"d": path, "fill": "none", "stroke": OUTSIDE, "stroke-width": "1.6"})
    _draw_head(group, tip, level)
    if curve.label:
        # On the side that the line does not come from.
        above = points[-2][1] >= level
        at = level - 4 if above else level + 12
        add_text(group, tip - ARROW - 3, at, curve.label, size=10.5, fill=OUTSIDE, weight="600", anchor="end")


def _curved(points: Sequence[tuple[float, float]]) -> str:
    """Write the path of a stream's line."""
    path = f"M{decimal(points[0][0])} {decimal(points[0][1])}"
    for place, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if place % 2 or y == to_y:
            path += f"L{decimal(to_x)} {decimal(to_y)}"
        else:
            bend = (x + to_x) / 2
            path += f"C{decimal(bend)} {decimal(y)} {decimal(bend)} {decimal(to_y)} {decimal(to_x)} {decimal(to_y)}"
    return path


def _straight(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{decimal(x)} {decimal(y)}" for x, y in points)


def _draw_return(parent: xml.Element, line: Curve) -> None:
    """Draw a stream that leads to a control port: dashed, with straight pieces."""
    *_, (tip, level) = line.points
    path = _straight([*line.points[:-1], (tip - ARROW + 1, level)])
    group = xml.SubElement(
        parent, "g", {"class": "feedback", "data-from": line.source, "data-to": line.target}
    )
    style = {"fill": "none", "stroke": OUTSIDE, "stroke-width": "1.6", "stroke-dasharray": "5 4"}
    xml.SubElement(group, "path", {"d": path, "stroke-linejoin": "round", **style})
    _draw_head(group, tip, level)
    (right, under), (left, _) = line.points[2:4]
    middle = (left + right) / 2
    add_text(group, middle, under - 4, line.label, size=10.5, fill=OUTSIDE, weight="600", anchor="middle")


def _draw_head(parent: xml.Element, tip: float, level: float) -> None:
    head = f"M{decimal(tip)} {decimal(level)}l{decimal(-ARROW)} -4v8z"
    xml.SubElement(parent, "path", {"d": head, "fill": OUTSIDE})


def _draw_legend(
    parent: xml.Element, entries: list[tuple[str, bool]], parts: Sequence[_Shade], y: float
) -> None:
    parent = xml.SubElement(parent, "g", {"class": "legend"})
    x = MARGIN
    for label, doubled in entries:
        _draw_rectangle(parent, x, y, 16, 11, label, doubled=doubled)
        add_text(parent, x + 22, y + 9.5, label, size=10.5, fill=OUTSIDE)
        x += _legend_step(label)
    for part in parts:
        place = {"x": decimal(x), "y": decimal(y), "width": "16", "height": "11", "rx": "4"}
        xml.SubElement(parent, "rect", {**place, "fill": part.colour, "opacity": "0.5"})
        add_text(parent, x + 22, y + 9.5, part.label, size=10.5, fill=OUTSIDE)
        x += _legend_step(part.label)


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
