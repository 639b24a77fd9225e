"""Make a feed of trades and quotes like the one Bargain Discovery was measured on.

    >>> batch = next(generate(1000, seed=7))
    >>> batch.num_rows, batch.schema == FEED_SCHEMA
    (1000, True)

The published feed cannot be had: 5 million events, 80% of them quotes, 3,099 tickers, 500 events a second
with peaks of 2,200. `generate` has these figures, and prices calibrated against a real slice, which
`read_real` reads; `docs/market-feed.md` has the comparison. The content depends on the seed, the number of
tickers and the price model alone: a shorter feed is the beginning of a longer one, however either is cut into
batches.
"""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import NormalDist
from string import ascii_uppercase

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.apps.market_prices import RECENT_TRADES, Book, Draws, Listing, MarketEvents, PriceModel, play
from riprap.apps.market_real import read_real
from riprap.apps.market_schema import FEED_SCHEMA
from riprap.arrays import Floats, Ints

__all__ = ["CALIBRATED", "FEED_SCHEMA", "generate", "read_real", "write_feed"]

OPEN = np.datetime64("2005-12-27T14:30:00", "us")
QUOTE_SHARE = 0.8
AVERAGE_RATE = 500
PEAK_RATE = 2200
MINUTE = 60 * AVERAGE_RATE  # events: every minute has one peak and exactly the average rate

MARKET_STEP = 0.00003  # log level of the market, one standard deviation in a second at the average rate
CALIBRATED = PriceModel()

_KINDS = pa.array(["trade", "quote"])


def generate(
    events: int,
    *,
    seed: int = 0,
    tickers: int = 3099,
    block: int = 250_000,
    model: PriceModel = CALIBRATED,
) -> Iterator[pa.RecordBatch]:
    """Yield `events` events in batches of `block` rows."""
    if events < 0 or tickers < 1 or block < 1:
        raise ValueError(
            f"a feed needs events >= 0, tickers >= 1 and block >= 1; got {events=}, {tickers=}, {block=}"
        )
    return _cut(_minutes(events, _Market(seed, tickers, model)), block)


def _minutes(events: int, market: "_Market") -> Iterator[pa.RecordBatch]:
    for first in range(0, events, MINUTE):
        yield market.next_minute().slice(0, min(MINUTE, events - first))


def _cut(batches: Iterator[pa.RecordBatch], block: int) -> Iterator[pa.RecordBatch]:
    """Cut the rows of `batches` into batches of `block` rows and a last one of the rest."""
    held: list[pa.RecordBatch] = []
    waiting = 0
    for batch in batches:
        held.append(batch)
        waiting += batch.num_rows
        if waiting >= block:
            whole = pa.concat_batches(held)
            full = waiting - waiting % block
            for start in range(0, full, block):
                yield whole.slice(start, block)
            held, waiting = [whole.slice(full)], waiting - full
    if waiting:
        yield pa.concat_batches(held)


def write_feed(
    path: Path,
    events: int,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    rows_per_file: int = 1_000_000,
    row_group: int = 100_000,
) -> None:
    """Write a feed as `path`/part-00000.parquet and so on; `progress` hears how many events are written."""
    path.mkdir(parents=True, exist_ok=True)
    if stale := sorted(path.glob("part-*.parquet")):
        raise FileExistsError(f"{path} already holds a feed ({stale[0].name}); write to an empty folder")
    done = 0
    for number, batch in enumerate(generate(events, seed=seed, block=rows_per_file)):
        pq.write_table(
            pa.Table.from_batches([batch]),
            path / f"part-{number:05d}.parquet",
            row_group_size=row_group,
            use_dictionary=["ticker", "kind"],
            compression="zstd",
        )
        done += batch.num_rows
        if progress is not None:
            progress(done)


class _Market:
    """Carry one feed from minute to minute.

    Each concern draws from a random stream of its own, and always for whole minutes. So the numbers one event
    gets depend on its place in the feed and on nothing else.
    """

    def __init__(self, seed: int, tickers: int, model: PriceModel) -> None:
        streams = [np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(6)]
        listing, self._arrivals, self._choices, self._moves, self._sizes, self._mood = streams
        self._model = model
        self._minute = 0
        self._level = self._log_agitation = 0.0

        rank = _popularity_scores(tickers)
        self._symbols = pa.array(listing.permutation(_symbols(tickers)))
        self._trade_share = _cumulative_share(1.35 * rank)
        self._quote_share = _cumulative_share(1.2 * rank)
        spread = np.clip(0.0026 * np.exp(1.0 * listing.standard_normal(tickers) - 0.4 * rank), 0.0001, 0.08)
        volatility = np.exp(0.4 * listing.standard_normal(tickers)) * (spread / 0.0026) ** 0.5
        self._listing = Listing(spread, volatility, beta=np.clip(listing.normal(1.0, 0.4, tickers), 0.1, 2.5))
        empty = np.zeros((4, tickers), np.int64)
        self._book = Book(
            log_price=np.log(np.clip(32.0 * np.exp(0.7 * listing.standard_normal(tickers)), 2.0, 400.0)),
            seen=np.zeros(tickers),
            market=np.zeros(tickers),
            ask=empty[0],
            bid=empty[1],
            ask_size=empty[2],
            bid_size=empty[3],
            recent=np.zeros(RECENT_TRADES, np.int64),
            trades=np.zeros(1, np.int64),
        )

    def next_minute(self) -> pa.RecordBatch:
        """Make the next `MINUTE` events."""
        rates = self._rates()
        second = np.repeat(np.arange(60), rates)
        micros = np.sort(second * 1_000_000 + self._arrivals.integers(0, 1_000_000, MINUTE))
        micros += self._minute * 60_000_000
        level, agitation = self._climate(rates)
        draws = self._draw(micros / 1e6, level[second], agitation[second])
        batch = self._batch(micros, draws, play(self._model, self._listing, self._book, draws))
        self._minute += 1
        return batch

    def _rates(self) -> Ints:
        """Share a minute's events among its seconds, with one burst that reaches the peak rate exactly."""
        peak = int(self._arrivals.integers(5, 50))
        weight = AVERAGE_RATE * np.exp(0.2 * self._arrivals.standard_normal(60))
        weight[peak - 1] += 0.3 * PEAK_RATE
        weight[peak + 1 : peak + 6] += PEAK_RATE * np.array([0.6, 0.45, 0.3, 0.2, 0.1])
        weight[peak] = 0.0
        ends = np.rint(np.cumsum(weight) / weight.sum() * (MINUTE - PEAK_RATE)).astype(np.int64)
        rates: Ints = np.diff(ends, prepend=0)
        rates[peak] = PEAK_RATE
        return rates

    def _climate(self, rates: Ints) -> tuple[Floats, Floats]:
        """Walk the market's level and its agitation through the seconds of a minute."""
        level, agitation = np.empty(60), np.empty(60)
        steps = self._mood.standard_normal((60, 2))
        for second, (calm, step) in enumerate(steps.tolist()):
            self._log_agitation = 0.97 * self._log_agitation + 0.1 * calm
            agitation[second] = np.exp(self._log_agitation)
            scale = MARKET_STEP * agitation[second] * np.sqrt(rates[second] / AVERAGE_RATE)
            # The pull back to 0 keeps a market that falls for hours from turning every quote into a bargain.
            self._level = 0.99 * self._level + scale * step
            level[second] = self._level
        return level, agitation

    def _draw(self, time: Floats, level: Floats, agitation: Floats) -> Draws:
        trade = self._choices.random(MINUTE) >= QUOTE_SHARE
        place, echo, echo_of = self._choices.random((3, MINUTE))
        popular = np.where(
            trade, np.searchsorted(self._trade_share, place), np.searchsorted(self._quote_share, place)
        )
        move, ask_noise, bid_noise = self._moves.standard_normal((3, MINUTE))
        ask_change, bid_change = self._moves.random((2, MINUTE))
        return Draws(
            time=time,
            market=level,
            agitation=agitation,
            trade=trade,
            popular=popular,
            echo=echo,
            echo_of=echo_of,
            move=move,
            surprise=self._moves.laplace(size=MINUTE),
            ask_noise=ask_noise,
            bid_noise=bid_noise,
            ask_change=ask_change,
            bid_change=bid_change,
            ask_lots=self._lots(median=3.0, sigma=1.94),
            bid_lots=self._lots(median=3.0, sigma=1.94),
            lots=self._lots(median=0.9, sigma=2.26),
        )

    def _lots(self, *, median: float, sigma: float) -> Ints:
        lots = self._sizes.lognormal(np.log(median), sigma, MINUTE)
        return np.clip(np.rint(lots), 1, 10_000).astype(np.int64)

    def _batch(self, micros: Ints, draws: Draws, events: MarketEvents) -> pa.RecordBatch:
        first = self._minute * MINUTE + 1
        columns = [
            pa.array(np.arange(first, first + MINUTE)),
            pa.array(OPEN + micros.astype("timedelta64[us]")).cast(FEED_SCHEMA.field("time").type),
            self._symbols.take(pa.array(events.ticker)),
            _KINDS.take(pa.array(np.where(draws.trade, 0, 1))),
            pa.array(events.price / 100),
            pa.array(events.size),
            pa.array(events.bid / 100, mask=draws.trade),
            pa.array(events.bid_size, mask=draws.trade),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=FEED_SCHEMA)


def _symbols(count: int) -> list[str]:
    """List the `count` shortest words of capital letters."""
    words: list[str] = []
    length = 1
    while len(words) < count:
        words += ["".join(letters) for letters in product(ascii_uppercase, repeat=length)]
        length += 1
    return words[:count]


def _popularity_scores(count: int) -> Floats:
    """Return the standard normal scores of `count` ranks, highest first: the same skew at every seed."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(1 - (rank + 0.5) / count) for rank in range(count)])


def _cumulative_share(log_weight: Floats) -> Floats:
    weight = np.exp(log_weight)
    # One event in fifty ignores popularity, so that the least popular ticker turns up in a long feed.
    share = 0.98 * weight / weight.sum() + 0.02 / weight.size
    ends: Floats = np.cumsum(share)
    ends[-1] = 1.0
    return ends
