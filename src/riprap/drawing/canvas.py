"""A sheet of characters to draw on: words, and lines that join up by themselves."""

from __future__ import annotations

from collections.abc import Iterator
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
