"""VWAP: what is put out is what a plain loop over the trades says, wherever batches end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import run_batches

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.market import FEED_SCHEMA, generate, read_real
from riprap.apps.vwap import vwap

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "taq_ibm_streams" / "TradesAndQuotes.csv.gz"
Row = dict[str, Any]
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def loop(events: Sequence[Row], window: timedelta = timedelta(minutes=5)) -> list[Row]:
    """Keep the trades of each ticker that are younger than the window, one after the other."""
    recent: dict[str, list[Row]] = {}
    found = []
    for event in events:
        if event["kind"] != "trade" or not event["price"] or not event["size"]:
            continue
        mine = recent.setdefault(event["ticker"], [])
        # Time does not go back: a trade that is late counts as just as old as the newest of its ticker.
        now = max(event["time"], mine[-1]["time"]) if mine else event["time"]
        mine[:] = [*(t for t in mine if t["time"] > now - window), {**event, "time": now}]
        prices, volume = [t["price"] for t in mine], sum(t["size"] for t in mine)
        found.append(
            {
                "seq": event["seq"],
                "ticker": event["ticker"],
                "price": event["price"],
                "vwap": math.fsum(t["price"] * t["size"] for t in mine) / volume,
                "low": min(prices),
                "high": max(prices),
                "volume": volume,
                "trades": len(mine),
            }
        )
    return found


def averages(feed: pa.Table, ends: Sequence[int] = (), *, window: str = "5m", **options: Any) -> list[Row]:
    """Return what VWAP puts out for a feed that comes in batches."""
    app = vwap(rr.rows(feed), rr.memory(), window=window)
    bounds = [0, *sorted(ends), feed.num_rows]
    batches = [{"Source": feed.slice(low, high - low)} for low, high in pairwise(bounds)]
    return run_batches(app, batches, sink="Sink", **options)


def trade(seq: int, second: int, price: float | None, size: int | None, ticker: str = "A") -> Row:
    return {
        "seq": seq,
        "time": NOON + timedelta(seconds=second),
        "ticker": ticker,
        "kind": "trade",
        "price": price,
        "size": size,
        "bid": None,
        "bid_size": None,
    }


@pytest.mark.parametrize("window", ["30s", "5m"])
@pytest.mark.parametrize("ends", [(), (1, 5_000, 11_111)])
def test_the_application_is_a_loop(window: str, ends: Sequence[int]) -> None:
    feed = pa.Table.from_batches(generate(20_000, seed=4, tickers=40))
    expected = loop(feed.to_pylist(), timedelta(seconds=30 if window == "30s" else 300))
    assert averages(feed, ends, window=window, buckets=4) == expected
    assert max(row["trades"] for row in expected) > 5


def test_a_trade_leaves_when_it_is_as_old_as_the_window() -> None:
    rows = [trade(1, 0, 10.0, 100), trade(2, 29, 20.0, 300), trade(3, 30, 30.0, 100)]
    found = averages(pa.Table.from_pylist(rows, FEED_SCHEMA), window="30s")
    assert [(r["vwap"], r["volume"], r["trades"]) for r in found] == [
        (10.0, 100, 1),
        (17.5, 400, 2),
        (22.5, 400, 2),
    ]


def test_what_is_no_trade_with_price_and_volume_does_not_count() -> None:
    quote = {**trade(2, 1, 99.0, 5), "kind": "quote", "bid": 98.0, "bid_size": 1}
    rows = [trade(1, 0, 10.0, 100), quote, trade(3, 2, None, 100), trade(4, 3, 11.0, 0), trade(5, 4, 0.0, 10)]
    found = averages(pa.Table.from_pylist([*rows, trade(6, 5, 12.0, 100)], FEED_SCHEMA))
    assert [(r["seq"], r["vwap"]) for r in found] == [(1, 10.0), (6, 11.0)]


TRADES = st.lists(
    st.tuples(st.integers(0, 90), st.sampled_from("AB"), st.integers(1, 9999), st.integers(0, 500)),
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(drawn=TRADES, ends=st.lists(st.integers(0, 20), max_size=3), tasks=st.integers(1, 4))
def test_batches_tasks_and_late_trades(
    drawn: list[tuple[int, str, int, int]], ends: list[int], tasks: int
) -> None:
    rows = [trade(n + 1, second, p / 100, size, ticker) for n, (second, ticker, p, size) in enumerate(drawn)]
    feed = pa.Table.from_pylist(rows, FEED_SCHEMA)
    cut = [min(end, len(rows)) for end in ends]
    found = averages(feed, cut, window="30s", buckets=4, tasks=[tasks] * (len(cut) + 1))
    assert sorted(found, key=lambda row: row["seq"]) == loop(rows, timedelta(seconds=30))


def test_real_trades() -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL} is not here: real events are no part of the repository")
    feed = read_real(REAL).slice(0, 50_000).replace_schema_metadata(None)
    expected = loop(feed.to_pylist())
    assert len(expected) > 5_000
    assert averages(feed, (10_000, 33_333), buckets=4) == expected


def test_a_feed_without_times_is_refused(tmp_path: Path) -> None:
    feed = pa.Table.from_batches(generate(10))
    pq.write_table(feed.drop_columns("time"), tmp_path / "feed.parquet")
    with pytest.raises(rr.GraphError, match=r"lacks time timestamp.*docs/market-feed.md"):
        CATALOGUE["vwap"].make(tmp_path / "feed.parquet", rr.memory())
    text = feed.set_column(1, "time", pa.array(["noon"] * 10))
    pq.write_table(text, tmp_path / "feed.parquet")
    with pytest.raises(rr.GraphError, match="column time is string, not timestamp"):
        CATALOGUE["vwap"].make(tmp_path / "feed.parquet", rr.memory())
