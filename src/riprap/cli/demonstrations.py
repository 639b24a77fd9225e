"""What 'riprap demo' shows of each built-in application: the input it makes, and the rows worth a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from riprap.apps import made_log

_BARGAINS = 10
_ALERTS = 20
_WORDS = 20
_LOTS = 20
_TICKERS = 10
_SIGNALS = 20


class MakeInput(Protocol):
    """Write so much input to a folder that does not exist yet."""

    def __call__(self, folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """The demonstration of one application.

    ``unit`` is what its input is counted in, ``amount`` how much of it there is unless the user says otherwise.
    ``pick`` finds the rows to show among all that were put out; ``formats`` has their columns. ``result`` is what the
    rows are called in JSON, ``heading`` above the table.
    """

    title: str
    unit: str
    amount: int
    make_feed: MakeInput
    pick: Callable[[pa.Table], pa.Table]
    result: str
    heading: str
    formats: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    run_options: str = ""


def best_bargains(bargains: pa.Table) -> pa.Table:
    """Pick the best bargain of each ticker, and of these the best."""
    ordered = bargains.sort_by([("gain", "descending"), ("seq", "ascending")])
    # A quote that stands is quoted again and again: one a ticker makes a better table.
    first = ordered.append_column("row", pa.array(range(len(ordered)), pa.int64()))
    rows = first.group_by("ticker").aggregate([("row", "min")])["row_min"].sort()
    return ordered.take(rows.slice(0, _BARGAINS))


def first_alerts(alerts: pa.Table) -> pa.Table:
    """Pick the alerts that came first."""
    return alerts.sort_by("last").slice(0, _ALERTS)


def frequent_words(words: pa.Table) -> pa.Table:
    """Pick the most frequent words: the total of a word is the largest number that was put out for it."""
    totals = words.group_by("word").aggregate([("n", "max")]).rename_columns(["word", "n"])
    return totals.sort_by([("n", "descending"), ("word", "ascending")]).slice(0, _WORDS)


def newest_lots(lots: pa.Table) -> pa.Table:
    """Pick the lots that came last."""
    return lots.sort_by([("lot", "descending")]).slice(0, _LOTS)


def busiest_tickers(averages: pa.Table) -> pa.Table:
    """Pick the last row of each ticker, and of these the ones with the most volume."""
    newest = averages.group_by("ticker").aggregate([("seq", "max")])["seq_max"]
    rows = averages.filter(pc.is_in(averages["seq"], value_set=newest.combine_chunks()))
    return rows.sort_by([("volume", "descending"), ("ticker", "ascending")]).slice(0, _TICKERS)


def strongest_signals(signals: pa.Table) -> pa.Table:
    """Pick the strongest row of each moment, and of these the strongest."""
    by_power = [("power", "descending"), ("block", "ascending"), ("band", "ascending")]
    strongest = signals.group_by("time").aggregate([("power", "max")])["power_max"]
    rows = signals.filter(pc.is_in(signals["power"], value_set=strongest.combine_chunks()))
    return rows.sort_by(by_power).slice(0, _SIGNALS)


def _make_market(folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None:
    from riprap.apps.market import write_feed

    # Small enough that the bar on the screen moves.
    write_feed(folder, amount, seed=seed, rows_per_file=250_000, progress=progress)


def _make_log(folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None:
    made_log.write_log(folder, amount, seed=seed, progress=progress)


def _make_mails(folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None:
    from riprap.apps.mails import write_mails

    write_mails(folder, amount, seed=seed, progress=progress)


def _make_wafers(folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None:
    from riprap.apps.wafer_feed import write_wafers

    write_wafers(folder, amount, seed=seed, progress=progress)


def _make_blocks(folder: Path, amount: int, *, seed: int, progress: Callable[[int], None]) -> None:
    from riprap.apps.lois_feed import write_blocks

    write_blocks(folder, amount, seed=seed, progress=progress)


DEMONSTRATIONS: Mapping[str, Demonstration] = {
    "bargain": Demonstration(
        title="Bargain Discovery",
        unit="events",
        amount=2_000_000,
        make_feed=_make_market,
        pick=best_bargains,
        result="best",
        heading="The {count} best bargains, one a ticker",
        formats={"seq": ",d", "ticker": "", "vwap": ",.4f", "price": ",.2f", "size": ",d", "gain": ",.2f"},
        run_options=" --rate 50000",
    ),
    "logwatch": Demonstration(
        title="Log watch",
        unit="lines",
        amount=200_000,
        make_feed=_make_log,
        pick=first_alerts,
        result="alerts",
        heading="The first {count} attacks",
        formats={"host": "", "first": "%d %b %H:%M:%S", "last": "%d %b %H:%M:%S", "attempts": ",d"},
        settings={"year": made_log.YEAR},
        run_options=f" --set year={made_log.YEAR} --set attempts=50",
    ),
    "wordcount": Demonstration(
        title="Word count",
        unit="mails",
        amount=100,
        make_feed=_make_mails,
        pick=frequent_words,
        result="words",
        heading="The {count} most frequent words",
        formats={"word": "", "n": ",d"},
    ),
    "wafer": Demonstration(
        title="Wafer yield",
        unit="wafers",
        amount=5_381,
        make_feed=_make_wafers,
        pick=newest_lots,
        result="lots",
        heading="The last {count} lots; the error is in points of yield",
        formats={
            "lot": ",d",
            "product": "",
            "wafers": ",d",
            "measured": ".2f",
            "predicted": ".2f",
            "error": ".2f",
        },
        run_options=" --rate 300",
    ),
    "vwap": Demonstration(
        title="VWAP",
        unit="events",
        amount=2_000_000,
        make_feed=_make_market,
        pick=busiest_tickers,
        result="averages",
        heading="The {count} busiest tickers: averages over their last five minutes",
        formats={
            "ticker": "",
            "price": ",.2f",
            "vwap": ",.4f",
            "low": ",.2f",
            "high": ",.2f",
            "volume": ",d",
            "trades": ",d",
        },
        run_options=" --set window=1m",
    ),
    "lois": Demonstration(
        title="LOIS",
        unit="blocks",
        amount=8_192,
        make_feed=_make_blocks,
        pick=strongest_signals,
        result="signals",
        heading="The {count} strongest signals, one a moment",
        formats={
            "time": "%H:%M:%S.%f",
            "antenna": ",d",
            "band": ",d",
            "power": ",.0f",
            "usual": ",.0f",
            "turning": ".2f",
            "x": ".2f",
            "y": ".2f",
            "z": ".2f",
        },
        run_options=" --rate 512",
    ),
}
