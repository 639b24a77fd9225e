"""The first tuples of each window in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Traits, by_columns
from riprap.graph.stream import Stream
from riprap.operators.sort import Sort, sorting
from riprap.protection import Policy
from riprap.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class TopN(Sort):
    """Collects windows, and puts out the first tuples of each in order when it closes."""

    TRAITS: ClassVar[Traits] = replace(Sort.TRAITS, does="keeps the first tuples of windows in order")

    n: int

    @property
    def most(self) -> int | None:
        return self.n

    def summary(self) -> str:
        return f"first {self.n} of {', '.join(map(str, self.order))}{by_columns(self.by)}, {self.window}"


def top(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    n: int = 10,
    order: str,
    window: Window,
    by: str | Sequence[str] = (),
    clock: Stream | None = None,
    protect: Policy | None = None,
) -> Stream:
    """Add a top-n: the first ``n`` tuples of each tumbling window in order, when it closes, then a punctuation.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> print(app.top("best", sales, n=3, order="price desc", window=rr.tumbling(tuples=100)))
    stream 'best' (item string, price bigint)
    """
    here = Here("TopN", name, app, stream)
    fields = sorting(app, here, stream, order, window, by, clock, protect)
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise here.error(f"n= is {n!r}", "Give it a whole number of at least 1")
    return here.add(TopN(**fields, n=n))
