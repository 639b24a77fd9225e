"""Compare the generated market feed with real events, and print the table of docs/market-feed.md.

    python benchmarks/calibrate_feed.py TradesAndQuotes.csv.gz --events 2000000 --seeds 10 11 12

Both feeds go through the same measurements. The oracle here is Bargain Discovery in its plainest form, on
purpose independent of the operators of the library. The last column is a feed without what the price model
adds to a random walk of each ticker: it shows the bargains, but not the error of an outage.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from riprap.apps.market import CALIBRATED, generate, read_real
from riprap.apps.market_prices import PriceModel

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
QUANTILES = (25, 50, 75, 90, 99)
PLAIN_WALK = PriceModel(news=0.0, crowd=0.0, trade_echo=0.0, quote_echo=0.0, drift=0.00015)
OUTAGE_SECONDS = 16
OUTAGE_TRADES = 16 * 2200 // 5  # as the paper counts it: trades at the peak rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A feed as arrays, one element per event; `time` in seconds since the first event."""

    time: Floats
    ticker: NDArray[np.int64]
    quote: Flags
    price: Floats
    size: NDArray[np.int64]
    bid: Floats

    @classmethod
    def of(cls, table: pa.Table) -> "Feed":
        micros = table["time"].cast(pa.int64()).to_numpy()
        return cls(
            time=(micros - micros[0]) / 1e6,
            ticker=pc.dictionary_encode(table["ticker"]).combine_chunks().indices.to_numpy().astype(np.int64),
            quote=pc.equal(table["kind"], "quote").to_numpy(),
            price=table["price"].to_numpy(),
            size=table["size"].to_numpy(),
            bid=pc.fill_null(table["bid"], np.nan).to_numpy(),
        )


@njit(cache=True)
def bargains(
    ticker: NDArray[np.int64], quote: Flags, price: Floats, size: NDArray[np.int64], lost: Flags
) -> tuple[Floats, Floats]:
    """Return the average price each quote meets (NaN: no trade yet) and its gain (0: no bargain)."""
    tickers = ticker.max() + 1
    prices, sizes = np.zeros((tickers, 5)), np.zeros((tickers, 5))
    vwap = np.full(tickers, np.nan)
    met, gain = np.full(ticker.size, np.nan), np.zeros(ticker.size)
    for i in range(ticker.size):
        t = ticker[i]
        if quote[i]:
            met[i] = vwap[t]
            if vwap[t] > price[i]:
                gain[i] = (vwap[t] - price[i]) * size[i]
        elif not lost[i]:
            # Oldest first: the same five trades must give the same bits, whatever was lost before them.
            prices[t, :4], sizes[t, :4] = prices[t, 1:].copy(), sizes[t, 1:].copy()
            prices[t, 4], sizes[t, 4] = price[i], size[i]
            vwap[t] = (prices[t] * sizes[t]).sum() / sizes[t].sum()
    return met, gain


def run(feed: Feed, lost: Flags | None = None) -> tuple[Floats, Floats]:
    if lost is None:
        lost = np.zeros(feed.time.size, bool)
    met, gain = bargains(feed.ticker, feed.quote, feed.price, feed.size, lost)
    return met, gain


def outage_ratio(feed: Feed, golden: Floats, lost: Flags, horizon: float = np.inf) -> float:
    """Divide the gain with the trades `lost` by the true gain, over the quotes whose gain is not the same.

    Quotes later than `horizon` seconds after the first lost trade do not count.
    """
    _, gain = run(feed, lost)
    affected = (gain != golden) & (feed.time <= feed.time[np.argmax(lost)] + horizon)
    return float(gain[affected].sum() / golden[affected].sum())


def outages_by_time(feed: Feed, starts: Floats, horizon: float = np.inf) -> list[float]:
    """Return the ratio for the loss of all trades of 16 s, from each of `starts`."""
    _, golden = run(feed)
    return [
        outage_ratio(
            feed, golden, ~feed.quote & (feed.time >= start) & (feed.time < start + OUTAGE_SECONDS), horizon
        )
        for start in starts
    ]


def outages_by_count(feed: Feed, offsets: Floats) -> list[float]:
    """Return the ratio for the loss of 16 s of trades at the peak rate, from each offset (in events)."""
    _, golden = run(feed)
    trades = np.cumsum(~feed.quote)
    ratios = []
    for offset in offsets.astype(np.int64):
        lost = ~feed.quote & (trades > trades[offset]) & (trades <= trades[offset] + OUTAGE_TRADES)
        ratios.append(outage_ratio(feed, golden, lost))
    return ratios


@njit(cache=True)
def moves_between_trades(
    time: Floats, ticker: NDArray[np.int64], quote: Flags, price: Floats
) -> tuple[Floats, Floats]:
    """Return, per trade, how far the ask moved since the ticker's last trade (log), and the time since."""
    tickers = ticker.max() + 1
    ask, ask_then, then = np.full(tickers, np.nan), np.full(tickers, np.nan), np.full(tickers, np.nan)
    move, gap = np.full(time.size, np.nan), np.full(time.size, np.nan)
    for i in range(time.size):
        t = ticker[i]
        if quote[i]:
            ask[t] = price[i]
        else:
            move[i] = np.log(ask[t] / ask_then[t])
            gap[i] = time[i] - then[t]
            ask_then[t], then[t] = ask[t], time[i]
    known = np.isfinite(move)
    return move[known], gap[known]


def market_moves(feed: Feed, start: float, busiest: int = 200, width: float = 10.0) -> tuple[float, float]:
    """Measure what tickers share: their mean correlation with the mean of the others, and that mean's size.

    The moves are those of the middle prices of the busiest tickers, from one 10 s bin to the next. The real
    slice has only two minutes of them, so a longer feed is measured in stretches of that length.
    """
    chosen = np.argsort(np.bincount(feed.ticker[feed.quote]))[::-1][:busiest]
    bins = int((feed.time[-1] - start) // width)
    inside = feed.quote & (feed.time >= start) & (feed.time < start + bins * width) & np.isfinite(feed.bid)
    middle = np.full((chosen.size, bins), np.nan)
    for row, ticker in enumerate(chosen):
        mine = np.flatnonzero(inside & (feed.ticker == ticker))
        newest = np.searchsorted(feed.time[mine], start + width * np.arange(1, bins + 1)) - 1
        middle[row, newest >= 0] = ((feed.price[mine] + feed.bid[mine]) / 2)[newest[newest >= 0]]
    moves = np.clip(np.diff(np.log(middle[np.isfinite(middle).all(axis=1)]), axis=1), -0.005, 0.005)
    correlations, sizes = [], []
    for first in range(0, moves.shape[1] - 10, 11):
        stretch = moves[:, first : first + 11]
        stretch = stretch[stretch.std(axis=1) > 0]
        others = (stretch.sum(axis=0) - stretch) / (len(stretch) - 1)
        correlations += [np.corrcoef(one, rest)[0, 1] for one, rest in zip(stretch, others, strict=True)]
        sizes.append(stretch.mean(axis=0).std())
    return float(np.mean(correlations)), float(np.mean(sizes))


def opening(feed: Feed) -> float:
    """Return when the feed becomes busy: the first second with more than 30 events."""
    return float(np.argmax(np.bincount(feed.time.astype(np.int64)) > 30))


def measure(feed: Feed) -> dict[str, str]:
    """Return the rows of the table, one figure or list of figures each."""
    met, gain = run(feed)
    quotes = feed.quote
    begin = opening(feed)
    counts = np.sort(np.bincount(feed.ticker))[::-1]
    won = np.sort(gain[gain > 0])[::-1]
    move, gap = moves_between_trades(feed.time, feed.ticker, quotes, feed.price)
    correlation, size = market_moves(feed, begin)
    rates = np.bincount(feed.time[feed.time >= begin].astype(np.int64))[int(begin) :]
    order = np.argsort(feed.ticker[quotes], kind="stable")
    asks, names = feed.price[quotes][order], feed.ticker[quotes][order]
    unchanged = (asks[1:] == asks[:-1])[names[1:] == names[:-1]]
    return {
        "events": f"{quotes.size:,}",
        "tickers": f"{counts.size:,}",
        "quotes": percent(quotes.mean()),
        "events a second: mean, peak": f"{rates.mean():.0f}, {rates.max():,}",
        "events of the top 10, 100, 500 tickers": percent(*np.cumsum(counts / counts.sum())[[9, 99, 499]]),
        "bargains among quotes": percent((gain[quotes] > 0).mean()),
        "gain of the top 1% of bargains": percent(won[: won.size // 100].sum() / won.sum()),
        "(average - ask) / ask, %": spread_of((met / feed.price - 1)[quotes & np.isfinite(met)]),
        "spread / ask, %": spread_of((1 - feed.bid / feed.price)[quotes & np.isfinite(feed.bid)]),
        "ask same as in the quote before": percent(unchanged.mean()),
        "ask size, lots": spread_of(feed.size[quotes] / 100, "{:.0f}"),
        "trade volume, shares": spread_of(feed.size[~quotes] / 100, "{:,.0f}"),
        "ask move between trades, %": spread_of(np.abs(move)),
        "the same, trades under 3 s apart": spread_of(np.abs(move[gap < 3])),
        "the same, trades 20 s to 60 s apart": spread_of(np.abs(move[(gap >= 20) & (gap < 60)])),
        "10 s moves: correlation with the market": f"{correlation:.2f}",
        "10 s moves: size of the market's, %": f"{100 * size:.3f}",
        **outage_rows(feed, begin),
    }


def outage_rows(feed: Feed, begin: float) -> dict[str, str]:
    """Measure outages from 50 s after the opening (averages are warm) to where one still fits."""
    end = feed.time[-1]
    starts = begin + 50 + np.linspace(0.0, 0.8 if end > 600 else 0.75, 20) * (end - begin - 50)
    rows = {
        "16 s without trades, next 60 s: gain ratio": ratios(outages_by_time(feed, starts, horizon=60.0)),
        "16 s without trades, to the end: gain ratio": ratios(outages_by_time(feed, starts)),
    }
    if feed.time.size > 50 * OUTAGE_TRADES:
        offsets = np.linspace(0.1, 0.9, 10) * feed.time.size
        rows[f"{OUTAGE_TRADES:,} trades lost: gain ratio"] = ratios(outages_by_count(feed, offsets))
    return rows


def percent(*shares: float) -> str:
    return ", ".join(f"{100 * share:.1f}%" for share in shares)


def spread_of(values: Floats, form: str = "{:.3f}") -> str:
    """Print quantiles, of fractions as percentages."""
    return " / ".join(form.format(100 * value) for value in np.percentile(values, QUANTILES))


def ratios(values: list[float]) -> str:
    low, middle, high = np.percentile(values, (10, 50, 90))
    return f"{low:.2f} / {middle:.2f} / {high:.2f}"


def generated(events: int, seed: int, model: PriceModel = CALIBRATED) -> Feed:
    return Feed.of(pa.Table.from_batches(generate(events, seed=seed, model=model)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("real", type=Path, help="TradesAndQuotes.csv.gz")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    arguments = parser.parse_args()

    columns = {"real": measure(Feed.of(read_real(arguments.real)))}
    for seed in arguments.seeds:
        columns[f"seed {seed}"] = measure(generated(arguments.events, seed))
    columns["plain walk"] = measure(generated(arguments.events, arguments.seeds[0], PLAIN_WALK))

    print(f"Quantiles: {QUANTILES}%. Gain ratios: quantiles (10, 50, 90)% over outages.\n")
    print("| |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for row in columns[f"seed {arguments.seeds[0]}"]:
        print(f"| {row} |", " | ".join(column.get(row, "-") for column in columns.values()), "|")


if __name__ == "__main__":
    main()
