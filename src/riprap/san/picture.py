"""Draw a net as SVG: places are circles, timed activities ovals, instantaneous ones bars, gates triangles."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as xml

from riprap.drawing.labels import shorten, shorten_name
from riprap.drawing.layout import Slot, arrange
from riprap.drawing.svg import ARROW, FAINT_INK, FONT, INK, MARGIN, OUTSIDE, add_text, clean, decimal
from riprap.san.net import Net
from riprap.san.shapes import Shape, ShapeKind, forward, layers, shapes_of

_SIZES: dict[ShapeKind, tuple[float, float]] = {
    "place": (34, 34),
    "timed": (20, 38),
    "instantaneous": (6, 38),
    "input gate": (14, 18),
    "output gate": (14, 18),
}
_COLOURS: dict[ShapeKind, tuple[str, str]] = {
    "place": ("#dbeafe", "#3b82f6"),
    "timed": ("#fef3c7", "#d97706"),
    "instantaneous": ("#7c8798", "#7c8798"),
    "input gate": ("#ede9fe", "#8b5cf6"),
    "output gate": ("#dcfce7", "#16a34a"),
}
_NAME_LIMIT, _NAME_WIDTH, _GAP, _UNDER = 18, 6.2, 34.0, 26.0
_DOTS = {
    1: [(0, 0)],
    2: [(-5, 0), (5, 0)],
    3: [(-5, 4), (5, 4), (0, -5)],
    4: [(-5, -5), (5, -5), (-5, 5), (5, 5)],
}


def draw_net(net: Net) -> str:
    """Return the drawing of a net; long names are cut in the middle and whole when pointed at."""
    shapes, lines = shapes_of(net)
    ways = forward(shapes, lines)
    depth = layers(shapes, ways)
    feeders = {key: [a for a, b in ways if b == key] for key in sorted(shapes, key=depth.__getitem__)}
    root = xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": FONT})
    xml.SubElement(root, "title").text = clean(net.name)
    if not shapes:
        return xml.tostring(root, encoding="unicode")
    layout = arrange(depth, feeders)

    def reach(slot: Slot) -> tuple[float, float]:
        if slot.passing:
            return 4.0, 4.0
        shape = shapes[slot.name]
        half = _SIZES[shape.kind][1] / 2
        return half, half + (_UNDER if shape.name else 0.0)

    across = layout.across(reach, 10.0, balanced=True)
    columns: list[tuple[float, float]] = []
    for layer in layout.layers:
        start = columns[-1][1] + _GAP if columns else 0.0
        columns.append((start, start + max(_width(shapes[s.name]) for s in layer if not s.passing)))
    middle = {
        slot.name: ((columns[slot.layer][0] + columns[slot.layer][1]) / 2, across[slot])
        for layer in layout.layers
        for slot in layer
        if not slot.passing
    }
    body = xml.SubElement(root, "g", {"transform": f"translate({decimal(MARGIN)} {decimal(MARGIN)})"})
    directions = set(lines)
    for edge in layout.edges:
        first, *passed, last = edge.path
        points = [_side(shapes, middle, first.name, 1), (columns[first.layer][1], across[first])]
        for slot in passed:
            points += [(columns[slot.layer][0], across[slot]), (columns[slot.layer][1], across[slot])]
        points += [(columns[last.layer][0], across[last]), _side(shapes, middle, last.name, -1)]
        forth, back = (edge.source, edge.target) in directions, (edge.target, edge.source) in directions
        _draw_line(body, points, forth, back)
    for key, at in middle.items():
        _draw_shape(body, shapes[key], *at)
    width = columns[-1][1] + 2 * MARGIN
    height = max(at + reach(slot)[1] for slot, at in across.items()) + 2 * MARGIN
    root.attrib |= {"width": decimal(width), "height": decimal(height)}
    root.set("viewBox", f"0 0 {decimal(width)} {decimal(height)}")
    return xml.tostring(root, encoding="unicode")


def _width(shape: Shape) -> float:
    label = max(len(shorten_name(shape.name, _NAME_LIMIT)), len(shorten(shape.detail, _NAME_LIMIT)))
    return max(_SIZES[shape.kind][0], label * _NAME_WIDTH)


def _side(
    shapes: dict[str, Shape], middle: dict[str, tuple[float, float]], key: str, side: int
) -> tuple[float, float]:
    x, y = middle[key]
    return x + side * _SIZES[shapes[key].kind][0] / 2, y


def _draw_line(parent: xml.Element, points: list[tuple[float, float]], forth: bool, back: bool) -> None:
    path = f"M{decimal(points[0][0])} {decimal(points[0][1])}"
    for (x, y), (to_x, to_y) in pairwise(points):
        if y == to_y:
            path += f"L{decimal(to_x)} {decimal(to_y)}"
        else:
            bend = (x + to_x) / 2
            path += f"C{decimal(bend)} {decimal(y)} {decimal(bend)} {decimal(to_y)} {decimal(to_x)} {decimal(to_y)}"
    xml.SubElement(parent, "path", {"d": path, "fill": "none", "stroke": OUTSIDE, "stroke-width": "1.3"})
    for shown, (x, y), way in ((forth, points[-1], -1), (back, points[0], 1)):
        if shown:
            head = f"M{decimal(x)} {decimal(y)}l{decimal(way * ARROW)} -3.5v7z"
            xml.SubElement(parent, "path", {"d": head, "fill": OUTSIDE})


def _draw_shape(parent: xml.Element, shape: Shape, x: float, y: float) -> None:
    group = xml.SubElement(parent, "g", {"class": shape.kind, "data-name": shape.name or shape.key})
    xml.SubElement(group, "title").text = clean(shape.about)
    width, height = _SIZES[shape.kind]
    fill, border = _COLOURS[shape.kind]
    look = {"fill": fill, "stroke": border, "stroke-width": "1.3"}
    if shape.kind == "place":
        xml.SubElement(group, "circle", {"cx": decimal(x), "cy": decimal(y), "r": decimal(width / 2), **look})
        _draw_tokens(group, shape.tokens, x, y)
    elif shape.kind in ("timed", "instantaneous"):
        box = {"x": decimal(x - width / 2), "y": decimal(y - height / 2), "width": decimal(width)}
        xml.SubElement(group, "rect", {**box, "height": decimal(height), "rx": decimal(width / 2), **look})
    else:
        left, half = x - width / 2, height / 2
        tip, base = (left, left + width) if shape.kind == "input gate" else (left + width, left)
        points = f"M{decimal(tip)} {decimal(y)}L{decimal(base)} {decimal(y - half)}V{decimal(y + half)}z"
        xml.SubElement(group, "path", {"d": points, **look})
    under = y + height / 2 + 12
    if shape.name:
        add_text(
            group, x, under, shorten_name(shape.name, _NAME_LIMIT), size=11, fill=OUTSIDE, anchor="middle"
        )
    if shape.detail:
        add_text(
            group,
            x,
            under + 12,
            shorten(shape.detail, _NAME_LIMIT),
            size=9.5,
            fill=FAINT_INK,
            anchor="middle",
        )


def _draw_tokens(parent: xml.Element, tokens: int, x: float, y: float) -> None:
    for dx, dy in _DOTS.get(tokens, ()):
        xml.SubElement(
            parent, "circle", {"cx": decimal(x + dx), "cy": decimal(y + dy), "r": "3", "fill": INK}
        )
    if tokens > max(_DOTS):
        add_text(parent, x, y + 4, str(tokens), size=11, anchor="middle")
