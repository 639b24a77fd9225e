"""Applications with every operator that has state, each protected and with a sink of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr
from riprap.expressions import parse_schema

ROWS = 40
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = parse_schema("seq bigint, at timestamp, k string, v bigint")
TICKS = parse_schema("at timestamp")
SAFE = rr.checkpoint(every="100ms", keep=2)


@dataclass
class Marks:
    seen: int = 0
    by_key: dict[str, int] = field(default_factory=dict)


class Declared(rr.CustomOperator):
    """Counts, in a state that it declares."""

    state: Marks

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.state.seen += 1
        self.state.by_key[tuple["k"]] = self.state.by_key.get(tuple["k"], 0) + 1
        self.submit({"n": self.state.seen, "mine": self.state.by_key[tuple["k"]]})


class SavesItself(rr.CustomOperator):
    """Remembers the greatest, and says itself what is to be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.most = -1

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.most = max(self.most, tuple["v"])
        self.submit({"n": tuple["seq"], "mine": self.most})

    def checkpoint(self) -> Any:
        return self.most

    def reset(self, saved: Any) -> None:
        self.most = saved

    def reset_to_initial_state(self) -> None:
        self.most = -1


def number(part: int) -> pa.Table:
    """Return the rows of a part of the input: times rise, some keys are rare, values go up and down."""
    numbers = range(part * ROWS, (part + 1) * ROWS)
    rows = [
        {"seq": n, "at": START + timedelta(seconds=n // 3), "k": "aabacadbe"[n % 9], "v": n * 37 % 23}
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def ticks(part: int) -> pa.Table:
    """Return a tick a second, up to the last row of a part."""
    first, end = (-(-n * ROWS // 3) for n in (part, part + 1))
    return pa.Table.from_pylist([{"at": START + timedelta(seconds=s)} for s in range(first, end)], TICKS)


def complete(group: str, parts: int) -> int:
    """Say how many rows of some parts can be computed: with a clock the last second may still go on."""
    return parts * ROWS if group == "columns" else (parts * ROWS - 1) // 3 * 3


def write(folder: Path, part: int, table: pa.Table) -> None:
    """Add a file to a source, all at once."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder.parent / f"half-{folder.name}")
    (folder.parent / f"half-{folder.name}").rename(folder / f"{part:02d}.parquet")


Made = dict[str, rr.Stream]


def by_columns(app: rr.Application, sources: Path) -> Made:
    """Describe all that needs no clock."""
    calls = app.source("calls", rr.files(str(sources / "calls")), position="seq")
    low = app.functor("low", calls, where="v < 12")
    high = app.functor("high", calls, where="v >= 12")
    cut = app.punctor("cut", calls, where="v = 5")
    totals = "sum(v) as total, count(*) as n, first(seq) as first, last(seq) as last"

    def sums(name: str, window: rr.Window, stream: rr.Stream = calls, **options: Any) -> rr.Stream:
        return app.aggregate(name, stream, by="k", window=window, select=totals, protect=SAFE, **options)

    def join(name: str, windows: tuple[rr.Window, rr.Window], outer: Any) -> rr.Stream:
        select = "low.seq as l, high.seq as h"
        return app.join(
            name, low, high, by="k", windows=windows, where="low.v < high.v - 3", select=select, outer=outer,
            protect=SAFE,
        )  # fmt: skip

    counted = (rr.sliding(tuples=4), rr.sliding(tuples=3))
    timed = (rr.sliding(time="6s", on="at"), rr.sliding(time="4s", on="at"))
    made = [
        sums("sliding_tuples", rr.sliding(tuples=5)),
        sums("sliding_now_and_then", rr.sliding(tuples=7), emit=rr.every(tuples=3)),
        sums("sliding_time", rr.sliding(time="5s", on="at")),
        sums("sliding_delta", rr.sliding(delta=9, on="seq")),
        sums("tumbling_tuples", rr.tumbling(tuples=4)),
        sums("tumbling_time", rr.tumbling(time="7s", on="at")),
        sums("tumbling_delta", rr.tumbling(delta=11, on="seq")),
        sums("tumbling_punctuation", rr.tumbling(punctuation=True), cut),
        join("join_inner", counted, "inner"),
        join("join_left", timed, "left"),
        join("join_full", (counted[0], timed[1]), "full"),
        app.barrier("barrier", low, high, by="k", select="k, low.seq as l, high.seq as h", protect=SAFE),
        app.deduplicate("deduplicate_tuples", calls, by="v", tuples=30, protect=SAFE),
        app.deduplicate("deduplicate_time", calls, by="k", time="4s", on="at", protect=SAFE),
        app.delay("delay", calls, time="6s", on="at", by="k", protect=SAFE),
        app.throttle("throttle", calls, rate=0.2, on="at", by="k", protect=SAFE),
        app.gate("gate", low, high, unacknowledged=2, by="k", protect=SAFE),
        app.sort("sort", calls, order="v desc", window=rr.tumbling(tuples=6), by="k", protect=SAFE),
        app.top("top", calls, n=2, order="v desc", window=rr.tumbling(tuples=6), by="k", protect=SAFE),
        app.functor(
            "functor", calls, by="k", variables={"n": "0L", "most": "-1L"},
            update="n + 1 as n, greatest(most, v) as most", select="seq, n, most", protect=SAFE,
        ),
        app.custom("custom_declared", Declared, calls, schema="n bigint, mine bigint", protect=SAFE),
        app.custom("custom_saves_itself", SavesItself, calls, schema="n bigint, mine bigint", protect=SAFE),
    ]  # fmt: skip
    return {stream.name: stream for stream in made}


def by_clock(app: rr.Application, sources: Path) -> Made:
    """Describe all that a clock can drive."""
    calls = app.source("calls", rr.files(str(sources / "calls")), ordering="at")
    clock = app.clock("clock", rr.files(str(sources / "clock")), time="at", ordering="at")
    totals = "sum(v) as total, count(*) as n, first(seq) as first, last(seq) as last"
    low = app.functor("low", calls, where="v < 12")
    high = app.functor("high", calls, where="v >= 12")
    timed = (rr.sliding(time="6s"), rr.sliding(time="4s"))
    told: dict[str, Any] = {"by": "k", "clock": clock, "protect": SAFE}
    made = [
        app.aggregate("sliding_clock", calls, window=rr.sliding(time="5s"), select=totals, **told),
        app.aggregate("tumbling_clock", calls, window=rr.tumbling(time="7s"), select=totals, **told),
        app.join(
            "join_clock", low, high, windows=timed, where="low.v < high.v - 3",
            select="low.seq as l, high.seq as h", outer="full", **told,
        ),
        app.sort("sort_clock", calls, order="v", window=rr.tumbling(time="5s"), **told),
        app.deduplicate("deduplicate_clock", calls, time="4s", **told),
        app.delay("delay_clock", calls, time="6s", **told),
        app.throttle("throttle_clock", calls, rate=0.2, **told),
    ]  # fmt: skip
    return {stream.name: stream for stream in made}


GROUPS: dict[str, Callable[[rr.Application, Path], Made]] = {"columns": by_columns, "clock": by_clock}


def application(group: str, sources: Path, out: Path | None) -> rr.Application:
    """Describe a group of operators; without ``out`` their sinks are in memory."""
    app = rr.Application(f"by_{group}")
    for name, stream in GROUPS[group](app, sources).items():
        app.sink(f"{name}_out", stream, rr.parquet(out / name, roll=0) if out else rr.memory())
    return app
