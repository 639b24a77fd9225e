"""The words a drawing puts on an operator, short enough to fit."""

from __future__ import annotations

from riprap.graph.operators import Aggregate, Join, Operator


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
    match operator:
        case Aggregate(window=window):
            return _tuples(str(window.tuples))
        case Join(windows=(left, right)):
            return _tuples(f"{left.tuples} x {right.tuples}")
        case _:
            return None


def _tuples(count: str) -> str:
    return f"{count} tuple" if count == "1" else f"{count} tuples"
