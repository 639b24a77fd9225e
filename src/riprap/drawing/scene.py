"""What an SVG of a graph shows, as numbers: a rectangle for each operator, a line for each stream, and frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from riprap.drawing.labels import feedbacks, lines_of, shorten, shorten_name, streams_label, window_label
from riprap.drawing.layout import Arrangement, Edge, Slot, lay_out
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.graph.regions import region_by_operator

NAME_LIMIT, DETAIL_LIMIT, DETAIL_LINES, LABEL_LIMIT = 22, 31, 4, 18
KIND_AT, NAME_AT, LINE = 15.0, 31.0, 13.0  # baselines from the top of a box, and from line to line
STARTS = "region starts here"
FRAME, FRAME_TITLE = 10.0, 16.0  # around the boxes of a processing element, and over them
_NAME_WIDTH, _DETAIL_WIDTH = 8.3, 5.7  # of a character, generous: fonts differ
_LAYER_GAP, _ROW_GAP, _PORT_GAP = 52.0, 20.0, 20.0
_BACK, _BACK_GAP = 14.0, 20.0  # of lines that lead back: from the boxes, and from each other


@dataclass(frozen=True, slots=True)
class Box:
    """An operator's rectangle, with the region it is in and whether that starts at it."""

    operator: Operator
    x: float
    y: float
    width: float
    height: float
    region: str | None = None
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A stream's line: points in pairs, straight inside a pair and curved from one pair to the next."""

    source: str
    target: str
    points: tuple[tuple[float, float], ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """A processing element, or a part of one that stands apart: the rectangle around its operators."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Scene:
    """The whole picture, without margins, heading and legend.

    ``returns`` lead to control ports, with straight pieces only. What is above or to the left of 0 is only frames,
    and lines that lead back.
    """

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    returns: tuple[Curve, ...]
    frames: tuple[Frame, ...]
    left: float
    top: float
    width: float
    height: float


def compose(graph: Graph, elements: Mapping[str, Sequence[str]] | None = None) -> Scene:
    """Give every operator its rectangle, every stream its line, and every processing element its frame.

    ``elements`` are the operators of each, if there are several.
    """
    layout = lay_out(graph)
    framed = 2 * FRAME + FRAME_TITLE if elements else 0.0
    regions = region_by_operator(graph)
    starts = {start for region in regions.values() for start in region.starts}
    heights = {o.name: _box_height(o) + (LINE if o.name in starts else 0) for o in graph}

    def reach(slot: Slot) -> tuple[float, float]:
        half = 4.0 if slot.passing else heights[slot.name] / 2
        return half, half

    across = layout.across(reach, _ROW_GAP + framed, balanced=True)
    columns = _columns(graph, layout, starts)
    boxes = tuple(
        Box(
            operator=graph[slot.name],
            x=columns[slot.layer][0],
            y=across[slot] - heights[slot.name] / 2,
            width=columns[slot.layer][1] - columns[slot.layer][0],
            height=heights[slot.name],
            region=regions[slot.name].name if slot.name in regions else None,
            starts=slot.name in starts,
        )
        for layer in layout.layers
        for slot in layer
        if not slot.passing
    )
    curves = tuple(_curve(graph, layout, edge, across, columns) for edge in layout.edges)
    frames = tuple(_frames(elements or {}, boxes))
    low = max(at + reach(slot)[1] for slot, at in across.items())
    returns = tuple(_returns(graph, boxes, max([low, *(f.y + f.height for f in frames)])))
    corners = [(f.x, f.y) for f in frames] + [(f.x + f.width, f.y + f.height) for f in frames]
    corners += [(x, y + 6.0) for line in returns for x, y in line.points]
    left, top = min([0.0, *(x for x, _ in corners)]), min([0.0, *(y for _, y in corners)])
    right, bottom = max([columns[-1][1], *(x for x, _ in corners)]), max([low, *(y for _, y in corners)])
    return Scene(boxes, curves, returns, frames, left, top, right - left, bottom - top)


def _columns(graph: Graph, layout: Arrangement, starts: Collection[str]) -> list[tuple[float, float]]:
    """Return where each layer starts and ends, with room for the names of the streams that enter it."""
    columns: list[tuple[float, float]] = []
    for number, layer in enumerate(layout.layers):
        labels = [
            len(shorten(streams_label(graph, edge.source, edge.target), LABEL_LIMIT)) * _DETAIL_WIDTH
            for edge in layout.edges
            if edge.path[-1].layer == number
        ]
        gap = max(_LAYER_GAP, 34 + max(labels, default=0.0))
        start = columns[-1][1] + gap if columns else 0.0
        wide = max(_box_width(graph[slot.name], slot.name in starts) for slot in layer if not slot.passing)
        columns.append((start, start + wide))
    return columns


def _curve(
    graph: Graph,
    layout: Arrangement,
    edge: Edge,
    across: dict[Slot, float],
    columns: list[tuple[float, float]],
) -> Curve:
    first, *passed, last = edge.path
    points = [(columns[first.layer][1], across[first])]
    for slot in passed:
        points += [(columns[slot.layer][0], across[slot]), (columns[slot.layer][1], across[slot])]
    arrivals = layout.before[last]
    port = arrivals.index(edge.path[-2]) - (len(arrivals) - 1) / 2
    points.append((columns[last.layer][0], across[last] + _PORT_GAP * port))
    label = shorten(streams_label(graph, edge.source, edge.target), LABEL_LIMIT)
    return Curve(edge.source, edge.target, tuple(points), label)


def _returns(graph: Graph, boxes: Sequence[Box], low: float) -> Iterator[Curve]:
    """Lead streams back under everything: down behind the sender, up before the one whose control port it is."""
    by_name = {box.operator.name: box for box in boxes}
    for number, (sender, target, streams) in enumerate(feedbacks(graph)):
        start, end = by_name[sender], by_name[target]
        aside = _BACK + 5.0 * number
        right, left, under = start.x + start.width + aside, end.x - aside, low + _BACK_GAP * (number + 1)
        out, into = start.y + start.height - 8.0, end.y + end.height - 8.0
        corners = [
            (start.x + start.width, out),
            (right, out),
            (right, under),
            (left, under),
            (left, into),
            (end.x, into),
        ]
        yield Curve(sender, target, tuple(corners), f"{streams} (control)")


def _frames(elements: Mapping[str, Sequence[str]], boxes: Sequence[Box]) -> Iterator[Frame]:
    for name, operators in elements.items():
        own = [box for box in boxes if box.operator.name in operators]
        others = [_frame("", [box]) for box in boxes if box.operator.name not in operators]
        yield from _around(name, own, others)


def _around(name: str, own: Sequence[Box], others: Sequence[Frame]) -> Iterator[Frame]:
    """Frame boxes, in parts where one frame would hold boxes of others."""
    if not own:
        return
    frame = _frame(name, own)
    if len(own) == 1 or not any(_meet(frame, other) for other in others):
        yield frame
        return
    layers = sorted({box.x for box in own})
    if len(layers) > 1:
        cut = layers[len(layers) // 2]
        parts = [box for box in own if box.x < cut], [box for box in own if box.x >= cut]
    else:
        down = sorted(own, key=lambda box: box.y)
        parts = down[: len(down) // 2], down[len(down) // 2 :]
    for part in parts:
        yield from _around(name, part, others)


def _frame(name: str, boxes: Sequence[Box]) -> Frame:
    left, right = min(b.x for b in boxes) - FRAME, max(b.x + b.width for b in boxes) + FRAME
    top, bottom = min(b.y for b in boxes) - FRAME - FRAME_TITLE, max(b.y + b.height for b in boxes) + FRAME
    return Frame(name, left, top, right - left, bottom - top)


def _meet(one: Frame, other: Frame) -> bool:
    beside = one.x + one.width < other.x or other.x + other.width < one.x
    return not (beside or one.y + one.height < other.y or other.y + other.height < one.y)


def _box_width(operator: Operator, starts: bool) -> float:
    name = len(shorten_name(operator.name, NAME_LIMIT)) * _NAME_WIDTH
    lines = [
        *details_of(operator),
        shorten(window_label(operator) or "", DETAIL_LIMIT),
        STARTS if starts else "",
    ]
    return max(84.0, 26 + max(name, *(len(line) * _DETAIL_WIDTH for line in lines)))


def _box_height(operator: Operator) -> float:
    return NAME_AT + 10 + LINE * (len(details_of(operator)) + (window_label(operator) is not None))


def details_of(operator: Operator) -> list[str]:
    """Return what an operator does, in the few lines there are under its name."""
    return lines_of(operator.summary(), DETAIL_LIMIT, DETAIL_LINES)
