"""Draw a graph in the terminal, as boxes and arrows; :mod:`riprap.drawing.svg` draws it for a page.

    ╭ Source ╮    ╔ Aggregate ╗    ╭ Sink ╮
    │ words  ├───►║ counts    ╟───►│ out  │
    ╰────────╯    ║ 10 tuples ║    ╰──────╯
                  ╚═══════════╝

Wide terminals get it from left to right, others from top to bottom, and where even that is too wide, a list.
A line that meets another (├ ┬ ┤ ┴ ┼) is the same operator's; one that passes behind another (─│─) is not. What an
operator with several outputs sends has the name of the stream at its arrow. Streams that lead to a control port, and so
may lead back, stand under the drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from riprap.drawing.canvas import Canvas, Leg, Wire, route
from riprap.drawing.labels import feedbacks, shorten, shorten_name, streams_label, window_label
from riprap.drawing.layout import Arrangement, Slot, lay_out
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.graph.regions import region_by_operator
from riprap.graph.replicas import ReplicaGroup, group_by_operator

_LEGEND = "Doubled boxes keep state."
_IN = "in: the processing element."
_REPLICAS = "replicas: how many run, and of which group."
_REGION = "region: what it is in, by where that starts."
_SINGLE = "╭─╮│╰╯├┬"  # corners and sides, then where a line leaves to the right and downwards
_DOUBLE = "╔═╗║╚╝╟╤"
_COLOURS = {
    "Source": "36",
    "Functor": "34",
    "Lookup": "34",
    "Aggregate": "33",
    "Sort": "33",
    "TopN": "33",
    "Join": "35",
    "Barrier": "35",
    "Split": "96",
    "Union": "96",
    "Punctor": "96",
    "Deduplicate": "31",
    "Delay": "31",
    "Throttle": "31",
    "Gate": "31",
    "Custom": "95",
    "Sink": "32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """One way to draw: the first whose result is narrow enough is taken."""

    rightward: bool
    name_limit: int
    lead: int  # cells of line between a box and the first track
    gap: int  # cells between boxes of a layer


_STYLES = (
    *(_Style(rightward=True, name_limit=24, lead=lead, gap=0) for lead in (2, 1, 0)),
    *(_Style(rightward=False, name_limit=limit, lead=0, gap=2) for limit in (40, 24, 18)),
    *(_Style(rightward=False, name_limit=limit, lead=0, gap=1) for limit in (14, 10, 7)),
)


def draw_text(
    graph: Graph,
    *,
    width: int = 100,
    colour: bool = False,
    elements: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Draw a graph with box characters, in lines of at most ``width`` characters.

    ``colour`` adds terminal colours by kind of operator; they do not count as width. ``elements`` names the operators
    of each processing element; if there are several, every box says in which it is. Those in a consistent region say in
    which one, too.
    """
    layout = lay_out(graph)
    several = elements.items() if elements and len(elements) > 1 else ()
    inside = {operator: element for element, operators in several for operator in operators}
    legend = [shorten(line, width) for line in _legend(graph)]
    legend += [shorten(_IN, width)] if inside else []
    regions = {name: region.name for name, region in region_by_operator(graph).items()}
    legend += [shorten(_REGION, width)] if regions else []
    groups = group_by_operator(graph)
    legend += [shorten(_REPLICAS, width)] if groups else []
    for style in _STYLES:
        boxes = {
            o.name: _Box.of(o, style.name_limit, inside.get(o.name), regions.get(o.name), groups.get(o.name))
            for o in graph
        }
        canvas = _draw(graph, layout, style, boxes)
        if canvas.width <= width:
            return "\n".join([*canvas.lines(colour=colour), *legend])
    return "\n".join(shorten(line, width) for line in _list(graph, regions, groups, width))


def _legend(graph: Graph) -> Iterator[str]:
    for sender, target, streams in feedbacks(graph):
        named = "" if streams == sender else f"{streams} of "
        yield f"{named}{sender} ╌╌► control port of {target}"
    if any(operator.stateful for operator in graph):
        yield _LEGEND


@dataclass(frozen=True, slots=True)
class _Box:
    """An operator's box: its words and its size. The layout places its first line, or its middle."""

    operator: Operator
    kind: str
    words: tuple[str, ...]
    width: int

    @property
    def height(self) -> int:
        return 2 + len(self.words)

    @classmethod
    def of(
        cls,
        operator: Operator,
        limit: int,
        element: str | None,
        region: str | None,
        group: ReplicaGroup | None,
    ) -> _Box:
        kind = shorten(operator.kind, limit)
        words = [shorten_name(operator.name, limit)]
        # A line for each input, so that each arrow has a place of its own.
        window = window_label(operator)
        words += [shorten(window, limit)] if window is not None else []
        words += [shorten_name(f"in {element}", limit)] if element is not None else []
        words += [shorten_name(f"region {region}", limit)] if region is not None else []
        words += (
            [shorten_name(f"{group.replicas} replicas, {group.name}", limit)] if group is not None else []
        )
        words += [""] * (len(operator.inputs) - len(words))
        return cls(operator, kind, tuple(words), 4 + max(len(kind), *map(len, words)))

    def draw(self, canvas: Canvas, x: int, y: int, width: int) -> None:
        colour = _COLOURS.get(self.operator.kind, "")
        corners = tuple(_DOUBLE if self.operator.stateful else _SINGLE)
        left_top, flat, right_top, side, left_bottom, right_bottom = corners[:6]
        title = f"{flat * (width - 4 - len(self.kind))}{right_top}"
        canvas.write(x, y, f"{left_top} {self.kind} {title}", colour)
        for row, text in enumerate(self.words, start=y + 1):
            canvas.write(x, row, side, colour)
            canvas.write(x + 1, row, f" {text:<{width - 3}}", "1" if row == y + 1 else "")
            canvas.write(x + width - 1, row, side, colour)
        canvas.write(x, y + self.height - 1, left_bottom + flat * (width - 2) + right_bottom, colour)


def _draw(graph: Graph, layout: Arrangement, style: _Style, boxes: dict[str, _Box]) -> Canvas:
    """Draw the layers one after the other, each followed by the channel to the next."""
    canvas = Canvas()
    right = style.rightward
    places = layout.across(lambda s: _reach(boxes, s, right), 1 + style.gap, balanced=False)
    across = {slot: round(place) for slot, place in places.items()}
    start = 0
    for layer in layout.layers:
        shown = [boxes[slot.name] for slot in layer if not slot.passing]
        depth = max(box.width if right else box.height for box in shown)
        for slot in layer:
            if slot.passing:
                canvas.line(slot.name, *_cells(right, (start, across[slot]), (start + depth, across[slot])))
                continue
            box = boxes[slot.name]
            x, y = (start, across[slot] - 1) if right else (across[slot] - box.width // 2, start)
            box.draw(canvas, x, y, depth if right else box.width)
        start = _channel(canvas, graph, layout, layer, boxes, across, start, depth, style)
    return canvas


def _channel(
    canvas: Canvas,
    graph: Graph,
    layout: Arrangement,
    layer: tuple[Slot, ...],
    boxes: dict[str, _Box],
    across: dict[Slot, int],
    start: int,
    depth: int,
    style: _Style,
) -> int:
    """Draw the lines from a layer to the next; return where the next one starts."""
    right = style.rightward

    def arrival(slot: Slot, reader: Slot) -> int:
        port = layout.before[reader].index(slot)
        if right:
            return across[reader] + port
        # Two cells apart, so that the arrows do not look like one; the stream straight above stays straight.
        middle = [n for n, writer in enumerate(layout.before[reader]) if across[writer] == across[reader]]
        return across[reader] + 2 * (port - (middle[0] if middle else 0))

    wires = [
        Wire(stream=s.name, leaves=across[s], arrives=tuple(arrival(s, reader) for reader in layout.after[s]))
        for s in layer
        if layout.after[s]
    ]
    legs = route(wires)
    begin = start + depth
    tracks = 1 + max((leg.track for leg in legs), default=-1)
    labels = {
        (slot, reader): shorten(streams_label(graph, slot.name, reader.name), style.name_limit)
        for slot in layer
        for reader in layout.after[slot]
        if not reader.passing
    }
    room = 2 + max(map(len, labels.values())) if right and any(labels.values()) else 0
    end = begin + max(style.lead + tracks + room, 1 if right else 0)  # the cell of the arrowheads
    for slot in layer:
        if layout.after[slot] and not slot.passing:
            _draw_exit(canvas, boxes[slot.name], across[slot], start, begin, right)
    for wire in wires:
        if wire.straight:
            canvas.line(wire.stream, *_cells(right, (begin, wire.leaves), (end + 1, wire.leaves)))
    for leg in legs:
        _draw_leg(canvas, leg, begin, end, style)
    for (slot, reader), label in labels.items():
        x, y = _cell(right, (end, arrival(slot, reader)))
        canvas.write(x, y, "►" if right else "▼")
        if label and right:
            canvas.write(x - len(label) - 2, y, f" {label} ")
        elif label:
            taken = [arrival(other, reader) for other in layout.before[reader]]
            width = boxes[reader.name].width
            _write_over_box(canvas, label, x, y, across[reader] - width // 2, width, taken)
    return end + 1


def _draw_leg(canvas: Canvas, leg: Leg, begin: int, end: int, style: _Style) -> None:
    """Draw a way through a channel that turns on a track."""

    def along(track: int | None, side: int) -> int:
        return side if track is None else begin + style.lead + track

    wire, turn, right = leg.wire, along(leg.track, begin), style.rightward
    canvas.line(wire.stream, *_cells(right, (along(leg.begins, begin - 1), wire.leaves), (turn, wire.leaves)))
    for at in wire.arrives:
        canvas.line(wire.stream, *_cells(right, (turn, wire.leaves), (turn, at)))
        canvas.line(wire.stream, *_cells(right, (turn, at), (along(leg.ends, end + 1), at)))


def _write_over_box(
    canvas: Canvas, label: str, x: int, y: int, first: int, width: int, taken: list[int]
) -> None:
    """Write what an arrow brings over its box, on the side where there is more room before the next arrow."""
    before = x - max([first, *(at + 2 for at in taken if at < x)]) - 1
    behind = min([first + width, *(at - 1 for at in taken if at > x)]) - x - 2
    word = shorten(label, max(before, behind))
    canvas.write(x + 2 if behind >= before else x - 1 - len(word), y, word)


def _draw_exit(canvas: Canvas, box: _Box, across: int, start: int, begin: int, right: bool) -> None:
    """Open the box's border where its stream leaves, and lead the line to the channel."""
    border = begin - 1 if right else start + box.height - 1
    glyph = (_DOUBLE if box.operator.stateful else _SINGLE)[6 if right else 7]
    x, y = _cell(right, (border, across))
    canvas.write(x, y, glyph, _COLOURS.get(box.operator.kind, ""))
    canvas.line(box.operator.name, *_cells(right, (border, across), (begin, across)))


def _reach(boxes: dict[str, _Box], slot: Slot, right: bool) -> tuple[int, int]:
    if slot.passing:
        return 0, 0
    box = boxes[slot.name]
    return (1, box.height - 2) if right else (box.width // 2, box.width - box.width // 2 - 1)


def _cell(right: bool, point: tuple[int, int]) -> tuple[int, int]:
    along, across = point
    return (along, across) if right else (across, along)


def _cells(right: bool, *points: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return (_cell(right, point) for point in points)


def _list(
    graph: Graph, regions: Mapping[str, str], groups: Mapping[str, ReplicaGroup], width: int
) -> Iterator[str]:
    """Name the operators in order, each with the numbers of those it reads, of those that steer it, of that where its
    region starts, and of its replicas."""
    number = {operator.name: str(place) for place, operator in enumerate(graph, start=1)}
    for operator in graph:
        reads = "".join(f" ◄{number[name]}" for name in dict.fromkeys(o.name for o in graph.before(operator)))
        reads += "".join(
            f" ↺{number[sender]}" for sender, target, _ in feedbacks(graph) if target == operator.name
        )
        region = regions.get(operator.name)
        reads += f" ~{number[region]}" if region is not None else ""
        reads += f" x{groups[operator.name].replicas}" if operator.name in groups else ""
        rest = f"{reads} {operator.kind}{'*' if operator.stateful else ''}"
        room = max(width - len(number[operator.name]) - 1 - len(rest), 3)
        yield f"{number[operator.name]} {shorten_name(operator.name, room)}{rest}"
    if any(operator.stateful for operator in graph):
        yield "* keeps state"
    if regions:
        yield "~ region"
    if groups:
        yield "x replicas"
