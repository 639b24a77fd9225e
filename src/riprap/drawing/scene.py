"""What an SVG of a graph shows, as numbers: a rectangle for each operator, a line for each stream."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.drawing.labels import shorten, shorten_name, window_label
from riprap.drawing.layout import Edge, Layout, Slot, lay_out
from riprap.graph.graph import Graph
from riprap.graph.operators import Operator

NAME_LIMIT, DETAIL_LIMIT = 22, 26
_NAME_WIDTH, _DETAIL_WIDTH = 8.3, 5.7  # of a character, generous: fonts differ
_LAYER_GAP, _ROW_GAP, _PORT_GAP = 52.0, 20.0, 20.0


@dataclass(frozen=True, slots=True)
class Box:
    """An operator's rectangle."""

    operator: Operator
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A stream's line: points in pairs, straight inside a pair and curved from one pair to the next."""

    source: str
    target: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """The whole picture, without margins, heading and legend."""

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    width: float
    height: float


def compose(graph: Graph) -> Scene:
    """Give every operator its rectangle and every stream its line."""
    layout = lay_out(graph)
    heights = {operator.name: 62.0 if window_label(operator) else 46.0 for operator in graph}

    def reach(slot: Slot) -> tuple[float, float]:
        half = 4.0 if slot.passing else heights[slot.name] / 2
        return half, half

    across = layout.across(reach, _ROW_GAP, balanced=True)
    columns: list[tuple[float, float]] = []  # where each layer starts and ends
    for layer in layout.layers:
        start = columns[-1][1] + _LAYER_GAP if columns else 0.0
        wide = max(_box_width(graph[slot.name]) for slot in layer if not slot.passing)
        columns.append((start, start + wide))
    boxes = tuple(
        Box(
            operator=graph[slot.name],
            x=columns[slot.layer][0],
            y=across[slot] - heights[slot.name] / 2,
            width=columns[slot.layer][1] - columns[slot.layer][0],
            height=heights[slot.name],
        )
        for layer in layout.layers
        for slot in layer
        if not slot.passing
    )
    curves = tuple(_curve(layout, edge, across, columns) for edge in layout.edges)
    return Scene(boxes, curves, columns[-1][1], max(at + reach(slot)[1] for slot, at in across.items()))


def _curve(
    layout: Layout, edge: Edge, across: dict[Slot, float], columns: list[tuple[float, float]]
) -> Curve:
    first, *passed, last = edge.path
    points = [(columns[first.layer][1], across[first])]
    for slot in passed:
        points += [(columns[slot.layer][0], across[slot]), (columns[slot.layer][1], across[slot])]
    arrivals = layout.before[last]
    port = arrivals.index(edge.path[-2]) - (len(arrivals) - 1) / 2
    points.append((columns[last.layer][0], across[last] + _PORT_GAP * port))
    return Curve(edge.source, edge.target, tuple(points))


def _box_width(operator: Operator) -> float:
    name = len(shorten_name(operator.name, NAME_LIMIT)) * _NAME_WIDTH
    detail = len(detail_of(operator)) * _DETAIL_WIDTH
    window = len(shorten(window_label(operator) or "", DETAIL_LIMIT)) * _DETAIL_WIDTH
    return max(84.0, 26 + max(name, detail, window))


def detail_of(operator: Operator) -> str:
    """Return what an operator does, short enough for the line under its name."""
    return shorten(" ".join(operator.summary().split()), DETAIL_LIMIT)
