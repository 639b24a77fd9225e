"""Put out every tuple some time later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from riprap.durations import Duration
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Traits, by_columns
from riprap.graph.stream import Stream
from riprap.operators.holding import WAITING, Held, duration, of_column, waiting
from riprap.protection import Policy
from riprap.windows import span


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Held):
    """Puts out every tuple some time later."""

    TRAITS: ClassVar[Traits] = replace(WAITING, does="puts out every tuple later")

    time: int

    @property
    def spacing(self) -> tuple[int, int]:
        return self.time, 0

    def summary(self) -> str:
        return f"{span(self.time)}{of_column(self.on)}{by_columns(self.by)}"


def delay(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    time: Duration,
    on: str | None = None,
    clock: Stream | None = None,
    by: str | Sequence[str] = (),
    protect: Policy | None = None,
) -> Stream:
    """Add a delay: a tuple leaves at the first event of its key that is ``time`` later, by ``on`` or ``clock``.

    An event is a tuple of the key, which the delayed ones leave before, or a tick.

    >>> app = rr.Application("demo")
    >>> calls = app.source("calls", rr.rows([], "number string, at timestamp"))
    >>> print(app.delay("later", calls, time="5s", on="at"))
    stream 'later' (number string, at timestamp)
    """
    here = Here("Delay", name, app, stream)
    return here.add(Delay(**waiting(here, stream, by, on, clock, protect), time=duration(here, time)))
