"""Applications with an operator that records its windows, and what comes of them, worked out row by row."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import riprap as rr

SCHEMA = "seq bigint, k int, v bigint"
KEYS = 300


def rows(count: int) -> list[dict[str, int]]:
    """Return rows: some keys come often, and some seldom."""
    chance = random.Random(18)
    return [{"seq": i, "k": int(chance.random() ** 3 * KEYS), "v": i * 13 % 101} for i in range(count)]


def tumbling(out: Path, count: int, *, size: int = 9, **options: Any) -> rr.Application:
    """Add up windows of a few rows each, key by key, between two parts that lose nothing either."""
    app = rr.Application("sums")
    source = app.source("source", rr.rows(rows(count), SCHEMA), protect=rr.consistent(period="300ms"))
    total = app.aggregate(
        "total", source, by="k", window=rr.tumbling(tuples=size), select="sum(v) as t, first(seq) as f, last(seq) as l",
        protect=rr.eventual(**options),
    )  # fmt: skip
    app.sink("out", total, rr.parquet(out, roll=0))
    return app


def expected(count: int, *, size: int = 9) -> list[dict[str, int]]:
    """Work out what :func:`tumbling` puts out."""
    windows: defaultdict[int, list[dict[str, int]]] = defaultdict(list)
    found = []
    for row in rows(count):
        window = windows[row["k"]]
        window.append(row)
        if len(window) == size:
            total = sum(each["v"] for each in window)
            found.append({"k": row["k"], "t": total, "f": window[0]["seq"], "l": row["seq"]})
            window.clear()
    return found


def several(out: Path, count: int, protect: rr.Policy | None) -> rr.Application:
    """Join, drop what comes again, and count with variables: an element each, and a sink each."""
    app = rr.Application("several")
    source = app.source("source", rr.rows(rows(count), SCHEMA), protect=rr.consistent(period="300ms"))
    low = app.functor("low", source, where="v < 50")
    high = app.functor("high", source, where="v >= 50")
    window = rr.sliding(tuples=2)
    both = app.join(
        "both",
        low,
        high,
        by="k",
        windows=(window, window),
        select="low.seq as l, high.seq as h",
        protect=protect,
    )
    stamped = app.functor("stamped", source, select="seq, k, timestamp_micros(seq * 1000000) as at")
    once = app.deduplicate("once", stamped, by="k", time="90s", on="at", protect=protect)
    counts = app.functor(
        "counts",
        source,
        by="k",
        variables={"n": "0L"},
        update="n + v as n",
        select="seq, k, n",
        protect=protect,
    )
    for stream in (both, once, counts):
        app.sink(f"{stream.name}_out", stream, rr.parquet(out / stream.name, roll=0))
    return app
