"""Draw a net as SVG: places are circles, timed activities ovals, instantaneous ones bars, gates triangles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal
from xml.etree import ElementTree as xml

from riprap.drawing.labels import shorten, shorten_name
from riprap.drawing.layout import Slot, arrange
from riprap.drawing.svg import ARROW, FAINT_INK, FONT, INK, MARGIN, OUTSIDE, add_text, clean, decimal
from riprap.san.code import expression, read_by, statements, written_by
from riprap.san.net import InputGate, Net

ShapeKind = Literal["place", "timed", "instantaneous", "input gate", "output gate"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A place, an activity or a gate; ``detail`` is written under its name, ``about`` shown when it is pointed at."""

    key: str
    kind: ShapeKind
    name: str
    detail: str
    about: str
    tokens: int = 0


def shapes_of(net: Net) -> tuple[dict[str, Shape], list[tuple[str, str]]]:
    """Return the shapes of a net by key, and which leads to which.

    A gate stands between an activity and the places that it reads or changes. Places that a case puts tokens in, or
    changes, are reached from the activity.
    """
    shapes = {}
    lines: list[tuple[str, str]] = []
    places = {place.name for place in net.places}
    for place in net.places:
        shapes[place.name] = Shape(place.name, "place", place.name, "", f"place {place.name}", place.initial)
    for activity in net.activities:
        key = f"activity {activity.name}"
        kind: ShapeKind = "timed" if activity.timed else "instantaneous"
        odds = ", ".join(str(case.probability) for case in activity.cases)
        about = f"{key}: {activity.time or 'at once'}" + (f"; cases {odds}" if odds else "")
        shapes[key] = Shape(key, kind, activity.name, str(activity.time or ""), about)
        lines += [(place, key) for place in activity.takes]
        lines += [(key, place) for place in activity.puts]
        for case in activity.cases:
            lines += [(key, place) for place in (*case.puts, *written_by(statements(case.then)))]
        for number, gate in enumerate(activity.gates, start=1):
            own = f"gate {number} of {activity.name}"
            if isinstance(gate, InputGate):
                shapes[own] = Shape(own, "input gate", "", "", f"when {gate.when}: {gate.then or 'go'}")
                read = {*read_by(expression(str(gate.when))), *written_by(statements(gate.then))}
                lines += [(own, key), *((place, own) for place in sorted(read & places))]
            else:
                shapes[own] = Shape(own, "output gate", "", "", gate.then)
                lines += [
                    (key, own),
                    *((own, place) for place in sorted({*written_by(statements(gate.then))})),
                ]
    return shapes, list(dict.fromkeys(lines))


def forward(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Turn the lines around that would close a circle, so that all can go from left to right."""
    after: dict[str, list[str]] = {key: [] for key in shapes}
    for source, target in lines:
        after[source].append(target)
    order: list[str] = []
    seen: set[str] = set()

    def walk(key: str) -> Iterator[tuple[str, Iterator[str]]]:
        seen.add(key)
        yield key, iter(after[key])

    for root in _roots(shapes, lines):
        stack = [*walk(root)] if root not in seen else []
        while stack:
            key, rest = stack[-1]
            following = next((target for target in rest if target not in seen), None)
            if following is None:
                order.append(key)
                stack.pop()
            else:
                stack += walk(following)
    rank = {key: len(order) - place for place, key in enumerate(order)}
    return [(a, b) if rank[a] < rank[b] else (b, a) for a, b in lines if a != b]


def _roots(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> list[str]:
    """Return where to begin: what nothing leads to, then what holds tokens, then the rest."""
    reached = {target for _, target in lines}
    return sorted(shapes, key=lambda key: (key in reached, shapes[key].tokens == 0))


def layers(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each shape: the length of the longest way to it."""
    depth = dict.fromkeys(shapes, 0)
    for _ in shapes:
        moved = False
        for a, b in lines:
            if depth[b] <= depth[a]:
                depth[b], moved = depth[a] + 1, True
        if not moved:
            break
    return depth


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
