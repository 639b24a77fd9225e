"""The words a drawing puts on an operator, short enough to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.windows import Window, span


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


def lines_of(text: str, width: int, most: int) -> list[str]:
    """Break a text into a few lines, if possible after the items of a list; what does not fit is cut.

    >>> lines_of("count(distinct page) as pages, sum(ms) as total by k", 30, 2)
    ['count(distinct page) as pages,', 'sum(ms) as total by k']
    """
    lines = [""]
    for item in _items(" ".join(text.split())):
        if lines[-1] and len(lines[-1]) + 1 + len(item) > width:
            lines.append("")
        *whole, last = wrap(f"{lines[-1]} {item}".strip(), width, break_on_hyphens=False)
        lines[-1:] = [*whole, last]
    if len(lines) <= most:
        return lines if lines[0] else []
    return [*lines[: most - 1], shorten(" ".join(lines[most - 1 :]), width)]


def _items(text: str) -> Iterator[str]:
    """Cut a text after commas and semicolons that are in no brackets, and before where and by."""
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        after = character in ",;" and text[place + 1 : place + 2] == " "
        before = text.startswith((" where ", " by "), place)
        if depth == 0 and (after or before):
            yield text[start : place + after]
            start = place + 1
    if text[start:]:
        yield text[start:]


def streams_label(graph: Graph, writer: str, reader: str) -> str:
    """Name the streams that one operator has of another, if that puts out several."""
    outputs = graph[writer].outputs
    read = [stream for stream in outputs if stream in graph[reader].inputs] if len(outputs) > 1 else []
    return ", ".join(_last(stream) for stream in read)


def feedbacks(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """Yield for each control port who sends to it, whose it is, and the streams in words."""
    for operator in graph:
        senders: dict[str, list[str]] = {}
        for stream in operator.control:
            senders.setdefault(graph.producer(stream).name, []).append(_last(stream))
        for sender, streams in senders.items():
            yield sender, operator.name, ", ".join(streams)


def _last(stream: str) -> str:
    return stream.rpartition(".")[2]


def window_label(operator: Operator) -> str | None:
    """Say how much of its past an operator keeps, in a few words, and whether its windows are recorded in its log."""
    windows: Sequence[Window] = getattr(operator, "windows", ())
    window: Window | None = getattr(operator, "window", None)
    words = [_words(w) for w in (windows or ((window,) if window is not None else ()))]
    if len(words) == 2 and all(w.endswith(" tuples") for w in words):
        words[0] = words[0].removesuffix(" tuples")
    if words == ["1 tuples"]:
        words = ["1 tuple"]
    recorded = ["recorded"] if operator.recording is not None else []
    return ", ".join([" x ".join(words), *recorded] if words else recorded) or None


def _words(window: Window) -> str:
    if window.tuples is not None:
        return f"{window.tuples} tuples"
    if window.time is not None:
        return span(window.time) if window.time else "0s"
    return "punctuation" if window.punctuation else f"{window.on} ± {window.delta}"
