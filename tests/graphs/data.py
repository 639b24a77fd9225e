"""Draw sources with rows, clocks, and how a run over them is cut up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.graphs.luck import Luck
from tests.graphs.model import Schema
from tests.graphs.program import Circumstances, Source

# The names columns have everywhere, so that streams are often alike enough to meet.
POOL: Schema = {"k": "string", "j": "string", "i": "bigint", "n": "bigint", "v": "double", "t": "timestamp"}
MILLI = 1000
# How much a step of column `at` is.
UNITS = {"bigint": 1, "timestamp": MILLI}
STEPS = 45


def a_time(luck: Luck) -> int | None:
    """Draw a time, mostly a whole one, so that it often lies exactly at the end of a window."""
    return None if luck.once_in(10) else luck.whole(-3, 15) * MILLI + luck.pick([0, 0, 0, 0, 1, 500])


VALUES: dict[str, Callable[[Luck], Any]] = {
    "string": lambda luck: luck.pick(["a", "a", "a", "a", "b", "b", "c", None]),
    "bigint": lambda luck: luck.pick([1, 1, 1, 2, 2, 2, 0, 3, -2, 7, None]),
    "double": lambda luck: luck.pick([1.5, 1.5, 1.5, 0.0, -0.0, -2.0, 0.1, 4.0, float("nan"), None]),
    "timestamp": a_time,
}


def draw_sources(luck: Luck, *, clock: bool, most: int = 40) -> tuple[Source, ...]:
    """Draw sources, mostly alike; time in them mostly goes on."""
    at_type = luck.pick(["bigint", "timestamp"])
    columns = list(POOL) if luck.once_in(2) else luck.some(list(POOL), 2, len(POOL))
    found = []
    for number in range(luck.pick([1, 1, 1, 2, 2, 3])):
        own = luck.some(list(POOL), 1, len(POOL)) if luck.once_in(4) else columns
        schema = {"at": at_type, **{c: POOL[c] for c in own}}
        rows = draw_rows(luck, schema, luck.pick([most, most // 2, luck.whole(0, most)]))
        found.append(Source(name=f"in{number}", schema=tuple(schema.items()), rows=rows))
    if clock:
        found.insert(luck.whole(0, len(found)), draw_clock(luck, at_type, most))
    return tuple(found)


def draw_rows(luck: Luck, schema: Schema, many: int) -> tuple[tuple[Any, ...], ...]:
    rising = not luck.once_in(3)
    at, rows = 0, []
    for place in range(many):
        at += luck.pick([1, 1, 1, 0, 2]) * UNITS[schema["at"]]
        row = {"at": at, **{c: VALUES[kind](luck) for c, kind in schema.items() if c != "at"}}
        if rising and row.get("t") is not None:
            row["t"] = row["t"] % (2 * MILLI) + place * MILLI
        rows.append(tuple(row.values()))
    return tuple(rows)


def draw_clock(luck: Luck, at_type: str, many: int) -> Source:
    at, time, rows = 0, 0, []
    for _ in range(luck.whole(0, many)):
        at += luck.pick([1, 1, 2, 0]) * UNITS[at_type]
        time += luck.pick([1000, 1000, 1000, 2000, 0, 500, 3500, -1000])
        rows.append((at, time))
    return Source(name="clock", schema=(("at", at_type), ("now", "timestamp")), rows=tuple(rows), tick="now")


def draw_circumstances(luck: Luck, sources: Sequence[Source]) -> Circumstances:
    """Draw how a run is cut up."""
    unit = UNITS[dict(sources[0].schema)["at"]] if len(sources) > 1 else 1
    ends = sorted(luck.whole(0, STEPS) * unit for _ in range(luck.whole(0, 6)))
    buckets = luck.whole(1, 7)
    return Circumstances(
        ends=tuple(ends),
        buckets=buckets,
        tasks=tuple(luck.whole(1, buckets) for _ in range(len(ends) + 1)),
        held_back=tuple(tuple(luck.some(range(6), 0, 2)) for _ in ends) if luck.once_in(2) else (),
    )
