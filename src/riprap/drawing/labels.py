"""The words a drawing puts on an operator, short enough to fit."""

from __future__ import annotations

from collections.abc import Sequence

from riprap.graph.operators import Operator
from riprap.graph.windows import Window, span


def shorten(text: str, limit: int) -> str:
    """Cut the end of a text that is longer than ``limit``.

    >>> shorten("sum(price * volume)", 10)
    'sum(price…'
    """
    return text if len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"[:limit]


def shorten_name(name: str, limit: int) -> str:
    """Cut the middle out of a name: numbered names differ in their ends.

    >>> shorten_name("average_of_sensor_17", 12)
    'average_…_17'
    """
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 3
    return name[: limit - 1 - tail] + "…" + name[len(name) - tail :] if limit > 0 else ""


def window_label(operator: Operator) -> str | None:
    """Say how much of its past an operator keeps, in a few words."""
    windows: Sequence[Window] = getattr(operator, "windows", ())
    window: Window | None = getattr(operator, "window", None)
    words = [_words(w) for w in (windows or ((window,) if window is not None else ()))]
    if len(words) == 2 and all(w.endswith(" tuples") for w in words):
        words[0] = words[0].removesuffix(" tuples")
    if words == ["1 tuples"]:
        return "1 tuple"
    return " x ".join(words) or None


def _words(window: Window) -> str:
    if window.tuples is not None:
        return f"{window.tuples} tuples"
    if window.time is not None:
        return span(window.time) if window.time else "0s"
    return "punctuation" if window.punctuation else f"{window.on} ± {window.delta}"
