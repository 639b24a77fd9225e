"""Put out tuples at least some time apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Traits, by_columns
from riprap.graph.stream import Stream
from riprap.operators.holding import LONGEST, WAITING, Held, of_column, waiting
from riprap.protection import Policy
from riprap.windows import span


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(Held):
    """Puts out tuples at least some time apart: ``gap``, in microseconds."""

    TRAITS: ClassVar[Traits] = replace(WAITING, does="spaces tuples out")

    gap: int

    @property
    def spacing(self) -> tuple[int, int]:
        return 0, self.gap

    def summary(self) -> str:
        return f"one every {span(self.gap)}{of_column(self.on)}{by_columns(self.by)}"


def throttle(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    rate: float,
    on: str | None = None,
    clock: Stream | None = None,
    by: str | Sequence[str] = (),
    protect: Policy | None = None,
) -> Stream:
    """Add a throttle: of each key at most ``rate`` tuples a second leave, by ``on`` or ``clock``; none is dropped.

    A tuple is due 1/``rate`` after the one before it, or when it comes if that is later, and leaves at the first
    event of its key from then on: a tuple of the key, itself included, or a tick.

    >>> app = rr.Application("demo")
    >>> calls = app.source("calls", rr.rows([], "number string, at timestamp"))
    >>> print(app.throttle("slower", calls, rate=2, by="number", on="at"))
    stream 'slower' (number string, at timestamp)
    """
    here = Here("Throttle", name, app, stream)
    return here.add(Throttle(**waiting(here, stream, by, on, clock, protect), gap=_gap(here, rate)))


def _gap(here: Here, rate: float) -> int:
    """Return how many whole microseconds lie between two tuples, rounded up."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise here.error(f"rate= is {rate!r}", "Give it a number of tuples a second, greater than 0")
    # As it is written: the nearest double may lie beside a rate that divides a second.
    return min(math.ceil(1_000_000 / Fraction(repr(float(rate)))), LONGEST)
