"""Bargain Discovery: find quotes that ask less than the recent average price of their stock."""

from __future__ import annotations

from pathlib import Path

import riprap as rr
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.graph.stream import Stream


def bargain(feed: str | Path | SourceConnector, out: SinkConnector) -> rr.Application:
    """Describe Bargain Discovery over a market feed (see docs/market-feed.md)."""
    app = rr.Application("bargain")
    connector = rr.files(feed) if isinstance(feed, str | Path) else feed
    source = app.source("Source", connector, position="seq")
    app.sink("Sink", discover(app, source), out)
    return app


def discover(app: rr.Application, events: Stream) -> Stream:
    """Find the bargains in a stream of trades and quotes."""
    events = app.functor("TradeQuote", events, select="seq, ticker, kind, price, size")
    trades = app.functor("TradeFilter", events, where="kind = 'trade'", select="ticker, price, size")
    sums = app.aggregate(
        "Aggregator", trades, by="ticker", window=rr.sliding(tuples=5), emit=rr.every(tuples=1),
        select="sum(price * size) as notional, sum(size) as volume",
    )  # fmt: skip
    vwap = app.functor("VWAP", sums, select="ticker, notional / volume as vwap")
    quotes = app.functor("QuoteFilter", events, where="kind = 'quote'", select="seq, ticker, price, size")
    return app.join(
        "BargainIndex", vwap, quotes, by="ticker", windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)),
        where="vwap > price",
        select="seq, ticker, vwap, price, size, (vwap - price) * size as gain",
    )  # fmt: skip
