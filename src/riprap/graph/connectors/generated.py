"""Sources that need nothing outside: a rate of numbered tuples, and the ticks of a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.graph.connectors.checks import pace, tuples_a_second, whole_number
from riprap.graph.connectors.promise import Promise

_TIME = pa.field("time", pa.timestamp("us", "UTC"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Tuples made at a pace: the n-th has number n, and the time at which it is due."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.rate(1000), rr.ticks(every='1s')",
        does="makes numbered tuples, or ticks, at a pace",
        after_failure="goes on as if it had never stopped: what was due in the meantime comes at once",
    )

    rate: float
    limit: int | None
    schema: pa.Schema

    def __str__(self) -> str:
        if self.schema.names == ["time"]:
            return f"a tick every {1 / self.rate:g} s"
        return "numbers" + pace(self.rate)


def rate(tuples_per_second: float, *, limit: int | None = None) -> Generated:
    """Make numbered tuples at a pace: ``time timestamp, value bigint``, from 0; ``limit`` of them, or without end.

    >>> print(rr.rate(100, limit=1_000))
    numbers at 100 tuples/s
    """
    speed = tuples_a_second(tuples_per_second)
    assert speed is not None
    return Generated(
        rate=speed, limit=_limit("rate", limit), schema=pa.schema([_TIME, pa.field("value", pa.int64())])
    )


def ticks(*, every: Duration, limit: int | None = None) -> Generated:
    """Make the ticks of a clock: ``time timestamp``, one every so often, from when the run begins.

    >>> app = rr.Application("demo")
    >>> clock = app.clock("clock", rr.ticks(every="500ms"), time="time")
    """
    return Generated(
        rate=1 / seconds("ticks(every=...)", every), limit=_limit("ticks", limit), schema=pa.schema([_TIME])
    )


def _limit(what: str, limit: int | None) -> int | None:
    return None if limit is None else whole_number(f"{what}(limit=...)", limit)
