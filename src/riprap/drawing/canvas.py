"""A sheet of characters to draw on, and how lines cross it without two of them looking like one.

Between two layers of a drawing is a channel. A stream enters it at one coordinate, turns on a track, runs across, and
turns again to each of its readers::

    leaves 0 ──┬──► arrives 0
               │
               ╰──► arrives 2

Two streams may cross, but never run along the same stretch: their runs across are on different tracks unless
they are apart, and a stream that leaves where another arrives turns on an earlier track.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_UP, _RIGHT, _DOWN, _LEFT = 1, 2, 4, 8
_LINES = " ╵╶╰╷│╭├╴╯─┴╮┤┬┼"  # by the sum of the directions


@dataclass(slots=True)
class Canvas:
    """Characters and lines by cell. Lines know their stream, which tells a branch from a crossing."""

    glyphs: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    strokes: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return 1 + max(x for x, _ in [*self.glyphs, *self.strokes])

    def write(self, x: int, y: int, text: str, style: str = "") -> None:
        for offset, glyph in enumerate(text):
            self.glyphs[x + offset, y] = (glyph, style)

    def line(self, stream: str, start: tuple[int, int], end: tuple[int, int]) -> None:
        (x, y), (end_x, end_y) = start, end
        while (x, y) != (end_x, end_y):
            step_x, step_y = (end_x > x) - (end_x < x), (end_y > y) - (end_y < y)
            ahead = _RIGHT if step_x > 0 else _LEFT if step_x else _DOWN if step_y > 0 else _UP
            back = {_RIGHT: _LEFT, _LEFT: _RIGHT, _UP: _DOWN, _DOWN: _UP}[ahead]
            self._stroke(x, y, stream, ahead)
            x, y = x + step_x, y + step_y
            self._stroke(x, y, stream, back)

    def _stroke(self, x: int, y: int, stream: str, direction: int) -> None:
        cell = self.strokes.setdefault((x, y), {})
        cell[stream] = cell.get(stream, 0) | direction

    def _glyph(self, x: int, y: int) -> tuple[str, str]:
        if (x, y) in self.glyphs:
            return self.glyphs[x, y]
        streams = self.strokes.get((x, y), {})
        return ("│" if len(streams) > 1 else _LINES[sum(streams.values())]), ""

    def lines(self, *, colour: bool) -> Iterator[str]:
        for y in range(1 + max(y for _, y in [*self.glyphs, *self.strokes])):
            row = [self._glyph(x, y) for x in range(self.width)]
            while row and row[-1] == (" ", ""):
                row.pop()
            yield _coloured(row) if colour else "".join(glyph for glyph, _ in row)


def _coloured(row: list[tuple[str, str]]) -> str:
    text, now = "", ""
    for glyph, style in [*row, ("", "")]:
        if style != now:
            text += ("\x1b[0m" if now else "") + (f"\x1b[{style}m" if style else "")
            now = style
        text += glyph
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A stream on its way through a channel: where it comes in, and where it goes out."""

    stream: str
    leaves: int
    arrives: tuple[int, ...]

    @property
    def straight(self) -> bool:
        return set(self.arrives) == {self.leaves}

    @property
    def span(self) -> tuple[int, int]:
        return min(self.leaves, *self.arrives), max(self.leaves, *self.arrives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A wire with its track. ``begins`` and ``ends`` are tracks too, or None for the sides of the channel."""

    wire: Wire
    track: int
    begins: int | None = None
    ends: int | None = None


def route(wires: Sequence[Wire]) -> list[Leg]:
    """Give each wire that is not straight a track, counted along the flow.

    >>> [leg.track for leg in route([Wire(stream="a", leaves=0, arrives=(0, 2))])]
    [0]
    """
    begins: dict[Wire, int] = {}
    waiting = [wire for wire in wires if not wire.straight]
    used = {at for wire in wires for at in (wire.leaves, *wire.arrives)}
    legs: list[Leg] = []
    track = 0
    while waiting:
        ready = [w for w in waiting if not any(o.leaves in w.arrives for o in waiting if o is not w)]
        if not ready:
            # Each waits for another, as when two streams change places: one steps aside to a free coordinate.
            wire = waiting.pop(0)
            aside = _free_near(wire.leaves, used)
            used.add(aside)
            first = Wire(stream=wire.stream, leaves=wire.leaves, arrives=(aside,))
            second = Wire(stream=wire.stream, leaves=aside, arrives=wire.arrives)
            legs.append(Leg(wire=first, track=track, begins=begins.pop(wire, None), ends=track))
            begins[second] = track
            waiting.append(second)
        taken: list[tuple[int, int]] = []
        for wire in sorted(ready, key=_turns_late):
            low, high = wire.span
            if all(high < other_low or other_high < low for other_low, other_high in taken):
                taken.append((low, high))
                legs.append(Leg(wire=wire, track=track, begins=begins.get(wire)))
                waiting.remove(wire)
        track += 1
    return legs


def _turns_late(wire: Wire) -> int:
    """Of wires that go down the lower, of those that go up the upper turns first: so they need not cross."""
    return -wire.leaves if max(wire.arrives) > wire.leaves else wire.leaves


def _free_near(at: int, used: set[int]) -> int:
    distance = 1
    while True:
        for candidate in (at + distance, at - distance):
            if candidate >= 0 and candidate not in used:
                return candidate
        distance += 1
