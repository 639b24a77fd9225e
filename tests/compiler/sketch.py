"""Applications in the making, for tests of the compiler."""

from __future__ import annotations

from typing import Any

import riprap as rr

ONE = rr.sliding(tuples=1)
FEED = "k string, j string, v int, at bigint"


class Sketch:
    """An application in the making, with its streams at hand."""

    def __init__(self) -> None:
        self.app = rr.Application("sketch")

    def source(self, name: str = "feed", schema: str = FEED, **options: Any) -> rr.Stream:
        return self.app.source(name, rr.rows([], schema), **options)

    def count(self, name: str, stream: Any, by: Any = "k", app: rr.Application | None = None) -> rr.Stream:
        window = rr.sliding(tuples=3)
        return (app or self.app).aggregate(name, stream, by=by, window=window, select="count(*) as n")

    def join(
        self, name: str, left: rr.Stream, right: rr.Stream, by: Any = "k", select: str | None = None
    ) -> rr.Stream:
        key = by if isinstance(by, str) else by[0]
        return self.app.join(name, left, right, by=by, windows=(ONE, ONE), select=select or key)

    def done(self, *streams: rr.Stream) -> rr.Graph:
        for number, stream in enumerate(streams):
            self.app.sink(f"out{number}", stream, rr.memory())
        return self.app.graph()
