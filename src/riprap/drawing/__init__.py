"""Pictures of a dataflow graph, for the terminal and for a page."""

from riprap.drawing.svg import draw_svg
from riprap.drawing.text import draw_text

__all__ = ["draw_svg", "draw_text"]
