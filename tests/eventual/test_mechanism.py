"""Windows recorded one by one make up the whole state again, wherever the log ends: over random streams."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.eventual.simulated import PUNCTUATION, check_losses

import riprap as rr
from riprap.stage.recording import RecordOrder

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = rr.eventual(extent=10, replay=100)


def aggregate(
    window: rr.Window, emit: rr.Emit | None = None, by: str | tuple[str, ...] = "k"
) -> Callable[[], rr.Application]:
    def build() -> rr.Application:
        app = rr.Application("sums")
        source = app.source("source", rr.rows([], "k string, v bigint, at timestamp"))
        sums = app.aggregate(
            "sums", source, by=by, window=window, emit=emit, select="sum(v) as total, count(*) as n, first(v) as f",
            protect=POLICY,
        )  # fmt: skip
        app.sink("out", sums, rr.memory())
        return app

    return build


def by_clock(kind: str) -> Callable[[], rr.Application]:
    def build() -> rr.Application:
        app = rr.Application("clocked")
        source = app.source("source", rr.rows([], "k string, v bigint, at timestamp"))
        clock = app.clock("clock", rr.rows([], "time timestamp"), time="time")
        window = rr.sliding(time="4s")
        if kind == "deduplicate":
            out = app.deduplicate("once", source, by="k", time="3s", clock=clock, protect=POLICY)
        elif kind == "join":
            other = app.source("other", rr.rows([], "k string, w bigint, at timestamp"))
            out = app.join("both", source, other, by="k", windows=(window, window), select="k, v, w", outer="full",
                           clock=clock, protect=POLICY)  # fmt: skip
        else:
            whole = kind == "tumbling"
            out = app.aggregate(
                "sums", source, by="k", window=rr.tumbling(time="4s") if whole else window,
                emit=None if whole else rr.every(time="2s"), clock=clock, select="sum(v) as t", protect=POLICY,
            )  # fmt: skip
        app.sink("out", out, rr.memory())
        return app

    return build


def functor() -> rr.Application:
    app = rr.Application("counts")
    source = app.source("source", rr.rows([], "k string, v bigint, at timestamp"))
    counts = app.functor(
        "counts", source, by="k", variables={"n": "0L"}, update="n + v as n", select="k, n", protect=POLICY
    )
    app.sink("out", counts, rr.memory())
    return app


def deduplicate() -> rr.Application:
    app = rr.Application("once")
    source = app.source("source", rr.rows([], "k string, v bigint, at timestamp"))
    app.sink("out", app.deduplicate("once", source, by="k", time="3s", on="at", protect=POLICY), rr.memory())
    return app


def join(windows: tuple[rr.Window, rr.Window], outer: Any = "inner") -> Callable[[], rr.Application]:
    def build() -> rr.Application:
        app = rr.Application("both")
        source = app.source("source", rr.rows([], "k string, v bigint, at timestamp"))
        other = app.source("other", rr.rows([], "k string, w bigint, at timestamp"))
        both = app.join(
            "both", source, other, by="k", windows=windows, select="k, v, w", outer=outer, protect=POLICY
        )
        app.sink("out", both, rr.memory())
        return app

    return build


KINDS: dict[str, Callable[[], rr.Application]] = {
    "sliding": aggregate(rr.sliding(tuples=3)),
    "sliding, now and then": aggregate(rr.sliding(tuples=4), rr.every(tuples=3)),
    "sliding by time": aggregate(rr.sliding(time="4s", on="at")),
    "tumbling": aggregate(rr.tumbling(tuples=3)),
    "a window of one tuple": aggregate(rr.tumbling(tuples=1)),
    "tumbling by time": aggregate(rr.tumbling(time="4s", on="at")),
    "by change": aggregate(rr.tumbling(delta=3, on="v")),
    "by punctuation": aggregate(rr.tumbling(punctuation=True)),
    "by a clock, sliding": by_clock("sliding"),
    "by a clock, tumbling": by_clock("tumbling"),
    "by a clock, deduplicate": by_clock("deduplicate"),
    "by a clock, join": by_clock("join"),
    "without a key": aggregate(rr.tumbling(tuples=5), by=()),
    "functor": functor,
    "deduplicate": deduplicate,
    "join": join((rr.sliding(tuples=2), rr.sliding(tuples=3))),
    "join by time": join((rr.sliding(time="3s", on="at"), rr.sliding(time="2s", on="at")), "left"),
    "join on one side": join((rr.sliding(tuples=1), rr.sliding(tuples=0))),
}


def random_batches(chance: random.Random, keys: int, batches: int) -> list[dict[str, list[Any]]]:
    """Draw batches of random sizes: some keys come often, some seldom, and time goes on."""
    now, made = 0, []
    for _ in range(batches):
        batch: dict[str, list[Any]] = {"source": [], "other": [], "clock": []}
        for _ in range(chance.choice([0, 1, 3, 8, 20])):
            now += chance.choice([0, 0, 1, 2])
            key = f"k{int(chance.random() ** 2 * keys)}"
            row = {"k": key, "at": START + timedelta(seconds=now)}
            if chance.random() < 0.2:
                batch["clock"].append({"time": START + timedelta(seconds=now)})
                batch["source"].append(PUNCTUATION)
            if chance.random() < 0.5:
                batch["source"].append({**row, "v": chance.randrange(9)})
            else:
                batch["other"].append({**row, "w": chance.randrange(9)})
        made.append(batch)
    return made


def random_orders(chance: random.Random, batches: int) -> list[RecordOrder]:
    orders = (
        RecordOrder(upto=number - chance.randrange(1, 6), most=chance.choice([1, 3, 100]))
        for number in range(batches)
    )
    return [order if chance.random() < 0.5 else RecordOrder() for order in orders]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 10))])
def test_nothing_is_missing_and_nothing_doubled(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind}, {seed}")
    batches = random_batches(chance, keys=chance.choice([1, 4, 25]), batches=14)
    check_losses(KINDS[kind], batches, random_orders(chance, 14), [chance.randrange(1, 4) for _ in range(3)])
