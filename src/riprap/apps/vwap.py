"""VWAP: the average price of each stock over its newest trades, weighted by volume (see docs/vwap.md)."""

from __future__ import annotations

from pathlib import Path

import riprap as rr
from riprap.durations import Duration
from riprap.graph.connectors import SinkConnector, SourceConnector


def vwap(
    feed: str | Path | SourceConnector, out: SinkConnector, *, window: Duration = "5m"
) -> rr.Application:
    """Describe VWAP over a market feed (see docs/market-feed.md): a row for every trade, by those within ``window``."""
    app = rr.Application("vwap")
    connector = rr.files(feed) if isinstance(feed, str | Path) else feed
    source = app.source("Source", connector, position="seq")
    trades = app.functor(
        "Trades", source, where="kind = 'trade' and price > 0 and size > 0",
        select="seq, time, ticker, price, size",
    )  # fmt: skip
    sums = app.aggregate(
        "Sums", trades, by="ticker", window=rr.sliding(time=window, on="time"), emit=rr.every(tuples=1),
        select="last(seq) as seq, last(price) as price, min(price) as low, max(price) as high, "
        "sum(price * size) as notional, sum(size) as volume, count(*) as trades",
    )  # fmt: skip
    averages = app.functor(
        "VWAP", sums, select="seq, ticker, price, notional / volume as vwap, low, high, volume, trades"
    )
    app.sink("Sink", averages, out)
    return app
