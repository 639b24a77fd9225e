"""Give every event of the market feed its ticker, its prices and its sizes.

This is the sequential half of the generator: a ticker's quote depends on everything that happened to the
ticker before, so it is one compiled loop over the events. `riprap.apps.market` draws the random numbers,
decides when events happen, and turns the result into Arrow.

Three causes move a price: the whole market (shared, by the second), the ticker's own drift (with the time
that passed, traded or not), and news, which arrives with a trade of high volume and draws further trades of
the same ticker after it. News is what makes lost trades matter: who misses those trades keeps an average from
before the move, and the ticker may not trade again for minutes.
"""

from typing import NamedTuple

import numpy as np

from riprap.arrays import Bools, Floats, Ints
from riprap.machine_code import compiled

RECENT_TRADES = 512  # the trades a later event can echo: about 5 s at the average rate


class PriceModel(NamedTuple):
    """Say how prices behave. `benchmarks/calibrate_feed.py` compares the defaults with real events."""

    trade_echo: float = 0.45  # share of trades that follow a recent trade of the same ticker
    quote_echo: float = 0.30  # share of quotes that follow a recent trade of the same ticker
    drift: float = 0.00003  # log price, one standard deviation in one second, of the ticker's own drift
    news: float = 0.00065  # log price, mean size of the move a trade without a forerunner brings
    echo_news: float = 0.1  # the same for a trade that follows another, as a part of `news`
    crowd: float = 4.0  # how much more volume a trade has for each mean size its move has
    refresh: float = 0.3  # chance that a quote moves a side that is not out of line
    wobble: float = 0.5  # log spread, one standard deviation at a refresh
    trade_bias: float = 0.25  # mean place of a trade above the efficient price, in half spreads
    trade_noise: float = 0.7  # standard deviation of that place
    keep_size: float = 0.45  # chance that a quote with an unchanged side keeps that side's size


class Listing(NamedTuple):
    """Hold what is fixed for each ticker, as arrays by ticker number."""

    spread: Floats  # relative to the price
    volatility: Floats  # a factor on drift and news
    beta: Floats  # the part of a market move the ticker follows


class Book(NamedTuple):
    """Hold what changes for each ticker: arrays by ticker number that `play` updates in place."""

    log_price: Floats  # the efficient price, which no one sees
    seen: Floats  # when the ticker was last heard of, in seconds
    market: Floats  # the market's level at that time
    ask: Ints  # cents; 0 while the ticker has no quote
    bid: Ints
    ask_size: Ints
    bid_size: Ints
    recent: Ints  # ring of the tickers of recent trades
    trades: Ints  # one element: trades so far


class Draws(NamedTuple):
    """Hold the randomness and the outer world of one stretch of events, as arrays by event."""

    time: Floats  # seconds since the start
    market: Floats  # log level of the market
    agitation: Floats  # market-wide factor on volatility
    trade: Bools
    popular: Ints  # the ticker, unless the event echoes a trade
    echo: Floats  # uniform: whether it does
    echo_of: Floats  # uniform: which trade it echoes
    move: Floats  # normal
    surprise: Floats  # Laplace
    ask_noise: Floats  # normal
    bid_noise: Floats  # normal
    ask_change: Floats  # uniform
    bid_change: Floats  # uniform
    ask_lots: Ints
    bid_lots: Ints
    lots: Ints  # of a trade


class MarketEvents(NamedTuple):
    """Hold the result: arrays by event, prices in cents."""

    ticker: Ints
    price: Ints
    size: Ints
    bid: Ints
    bid_size: Ints


def play(model: PriceModel, listing: Listing, book: Book, draws: Draws) -> MarketEvents:
    """Run the market over one stretch of events; `book` carries it on to the next."""
    events = MarketEvents(*(np.zeros(draws.time.size, np.int64) for _ in MarketEvents._fields))
    _play(model, listing, book, draws, events)
    return events


@compiled
def _play(model: PriceModel, listing: Listing, book: Book, draws: Draws, events: MarketEvents) -> None:
    for i in range(draws.time.size):
        trade = draws.trade[i]
        ticker = draws.popular[i]
        recent = min(book.trades[0], RECENT_TRADES)
        echoes = recent > 0 and draws.echo[i] < (model.trade_echo if trade else model.quote_echo)
        if echoes:
            ticker = book.recent[int(draws.echo_of[i] * recent)]
        events.ticker[i] = ticker
        _drift(model, listing, book, draws, i, ticker)
        if trade:
            book.recent[book.trades[0] % RECENT_TRADES] = ticker
            book.trades[0] += 1
            _trade(model, listing, book, draws, events, i, ticker, echoes)
        else:
            _quote(model, listing, book, draws, events, i, ticker)


@compiled
def _drift(model: PriceModel, listing: Listing, book: Book, draws: Draws, i: int, ticker: int) -> None:
    elapsed = draws.time[i] - book.seen[ticker]
    spread_out = model.drift * listing.volatility[ticker] * draws.agitation[i] * np.sqrt(elapsed)
    shared = listing.beta[ticker] * (draws.market[i] - book.market[ticker])
    book.log_price[ticker] += shared + spread_out * draws.move[i]
    book.seen[ticker] = draws.time[i]
    book.market[ticker] = draws.market[i]


@compiled
def _trade(
    model: PriceModel,
    listing: Listing,
    book: Book,
    draws: Draws,
    events: MarketEvents,
    i: int,
    ticker: int,
    echoes: bool,
) -> None:
    surprise = draws.surprise[i] * (model.echo_news if echoes else 1.0)
    book.log_price[ticker] += surprise * model.news * listing.volatility[ticker] * draws.agitation[i]
    fair = np.exp(book.log_price[ticker])
    half = fair * listing.spread[ticker] / 2
    price = fair + half * (model.trade_bias + model.trade_noise * draws.ask_noise[i])
    price = min(max(price, fair - half), fair + half)
    events.price[i] = max(1, round(price * 100))
    events.size[i] = 100 * max(1, int(draws.lots[i] * (1 + model.crowd * abs(surprise))))


@compiled
def _quote(
    model: PriceModel, listing: Listing, book: Book, draws: Draws, events: MarketEvents, i: int, ticker: int
) -> None:
    fair = np.exp(book.log_price[ticker])
    half = fair * listing.spread[ticker] / 2
    ask, bid = book.ask[ticker], book.bid[ticker]
    # A quote stays as it is until someone would trade against it, or it is too far off to matter.
    ask_gap, bid_gap = ask / 100 - fair, fair - bid / 100
    if draws.ask_change[i] < model.refresh or ask_gap < 0.0 or ask_gap > 4 * half + 0.01:
        ask = round((fair + half * np.exp(model.wobble * draws.ask_noise[i])) * 100)
    if draws.bid_change[i] < model.refresh or bid_gap < 0.0 or bid_gap > 4 * half + 0.01:
        bid = round((fair - half * np.exp(model.wobble * draws.bid_noise[i])) * 100)
    bid = max(bid, 1)
    ask = max(ask, bid + 1)
    # The draw that left the price alone is uniform above `refresh`: its upper part also keeps the size.
    if ask != book.ask[ticker] or draws.ask_change[i] < 1 - model.keep_size:
        book.ask_size[ticker] = draws.ask_lots[i]
    if bid != book.bid[ticker] or draws.bid_change[i] < 1 - model.keep_size:
        book.bid_size[ticker] = draws.bid_lots[i]
    book.ask[ticker], book.bid[ticker] = ask, bid
    events.price[i], events.bid[i] = ask, bid
    events.size[i], events.bid_size[i] = book.ask_size[ticker], book.bid_size[ticker]
