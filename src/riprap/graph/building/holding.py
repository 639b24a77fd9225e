"""Add operators that let tuples pass now, later or never."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa

from riprap.durations import Duration
from riprap.errors import GraphError
from riprap.expressions import type_name
from riprap.graph.building.builder import Builder
from riprap.graph.checks import Here, Inputs, Port, has
from riprap.graph.operators import Deduplicate, Delay, Gate, Throttle
from riprap.graph.stream import Stream
from riprap.graph.windows import microseconds
from riprap.protection import Policy

# So far from the ends of 64 bits that no time plus this runs over.
_LONGEST = 1 << 60


class Holding(Builder):
    """Deduplicate, delay, throttle, gate."""

    def deduplicate(
        self,
        name: str,
        stream: Port,
        *,
        by: str | Sequence[str],
        tuples: int | None = None,
        time: Duration | None = None,
        on: str | None = None,
        clock: Stream | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a filter that drops a tuple if one of the same key was put out shortly before.

        That is among the ``tuples`` of the stream before it, or less than ``time`` before it, by column ``on`` or by
        ``clock``. By a clock a key is forgotten when its time is over; by a column it is kept for good, as only its own
        tuples tell its time.
        """
        here = Here("Deduplicate", name, self, stream)
        inputs = here.port(stream)
        keys = here.keys(by, inputs)
        if not keys:
            raise here.error("it needs a key", "Give it by=, the columns that make two tuples the same")
        if (tuples is None) == (time is None):
            raise here.error(
                "it takes tuples= or time=, one of them", "Write tuples=1000, or time='10s', on='ts'"
            )
        if tuples is not None and (not isinstance(tuples, int) or isinstance(tuples, bool) or tuples < 1):
            raise here.error(f"tuples= is {tuples!r}", "Give it a whole number of at least 1")
        if tuples is not None and (on is not None or clock is not None):
            raise here.error("on= and clock= go with time=, not with tuples=", "Leave them out")
        return self._add(
            here,
            Deduplicate(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                clock=_timing(here, inputs, on, clock) if time is not None else None,
                by=keys,
                tuples=tuples,
                time=_duration(here, time) if time is not None else None,
                on=on,
            ),
        )

    def delay(
        self,
        name: str,
        stream: Port,
        *,
        time: Duration,
        on: str | None = None,
        clock: Stream | None = None,
        by: str | Sequence[str] = (),
        protect: Policy | None = None,
    ) -> Stream:
        """Add a delay: a tuple leaves at the first event of its key that is ``time`` later, by ``on`` or ``clock``.

        An event is a tuple of the key, which the delayed ones leave before, or a tick.
        """
        here = Here("Delay", name, self, stream)
        inputs = here.port(stream)
        keys = here.keys(by, inputs)
        return self._add(
            here,
            Delay(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                clock=_timing(here, inputs, on, clock),
                by=keys,
                on=on,
                time=_duration(here, time),
            ),
        )

    def throttle(
        self,
        name: str,
        stream: Port,
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
        """
        here = Here("Throttle", name, self, stream)
        inputs = here.port(stream)
        keys = here.keys(by, inputs)
        return self._add(
            here,
            Throttle(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                clock=_timing(here, inputs, on, clock),
                by=keys,
                on=on,
                gap=_gap(here, rate),
            ),
        )

    def gate(
        self,
        name: str,
        stream: Port,
        acknowledgements: Port,
        *,
        unacknowledged: int = 1,
        by: str | Sequence[str] = (),
        protect: Policy | None = None,
    ) -> Stream:
        """Add a gate: a tuple passes while fewer than ``unacknowledged`` tuples that passed are unacknowledged.

        Others wait; each acknowledgement lets the oldest pass. One that comes when none is outstanding is ignored.
        """
        here = Here("Gate", name, self, stream, acknowledgements)
        inputs, answers = here.port(stream), here.port(acknowledgements)
        keys = here.keys(by, inputs, answers)
        if not isinstance(unacknowledged, int) or isinstance(unacknowledged, bool) or unacknowledged < 1:
            raise here.error(f"unacknowledged= is {unacknowledged!r}", "Give it a whole number of at least 1")
        return self._add(
            here,
            Gate(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams, answers.streams),
                schema=inputs.schema,
                protect=protect,
                by=keys,
                unacknowledged=unacknowledged,
            ),
        )


def _timing(here: Here, inputs: Inputs, on: str | None, clock: Stream | None) -> str | None:
    """Check what tells the time: a column or a clock, one of them."""
    if on is not None:
        if on not in inputs.schema.names:
            raise here.error(f"on= names column '{on}', which does not exist", has(inputs.schema))
        kind = inputs.schema.field(on).type
        if not pa.types.is_timestamp(kind):
            raise here.error(f"time is read off a timestamp, '{on}' is {type_name(kind)}", "Cast it")
    return here.clock(clock, needed=on is None, why="its time")


def _duration(here: Here, time: Duration) -> int:
    try:
        return min(microseconds("time=", time), _LONGEST)
    except GraphError as error:
        raise here.error(str(error), "Give it one greater than 0") from None


def _gap(here: Here, rate: float) -> int:
    """Return how many whole microseconds lie between two tuples, rounded up."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise here.error(f"rate= is {rate!r}", "Give it a number of tuples a second, greater than 0")
    # As it is written: the nearest double may lie beside a rate that divides a second.
    return min(math.ceil(1_000_000 / Fraction(repr(float(rate)))), _LONGEST)
