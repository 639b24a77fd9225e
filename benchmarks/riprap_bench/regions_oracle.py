"""What should come of the benchmark's jobs, by other programs: counters, loops and pandas over the same files.

Files that come again, under another name, are read once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.apps.lois_feed import SAMPLES
from riprap.apps.made_log import YEAR
from riprap_bench.checkpoint_sizes import WINDOW
from riprap_bench.regions_jobs import Chain, Job, Large, LogWatch, Lois, Vwap, WordCount

_QUIET = timedelta(minutes=10)
# After that long an attack is over, and has come out, for whoever puts late lines in order first too.
_SURELY = timedelta(hours=1)
_ATTEMPTS = 5
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOSE = 1e-9
_SAMPLED = 997


def wrong(job: Job, files: Sequence[Path], found: pa.Table, *, over: int | None = None) -> str | None:
    """Say what of the results of a job over some files is not what it should be, if anything.

    With ``over`` nobody has said that the input has ended: of attacks, those that were over in the first so many files
    have come out, and others may have.
    """
    match job:
        case WordCount():
            return _wrong_words(files, found)
        case LogWatch():
            return _wrong_attacks(files, found, over)
        case Vwap():
            return _wrong_averages(files, found)
        case Lois():
            return _wrong_signals(files, found)
        case Large():
            return _wrong_matches(files, found)
        case Chain():
            return _wrong_numbers(job, files, found)
    raise TypeError(f"nobody knows what should come of {job}")


def _times(files: Sequence[Path]) -> Counter[Path]:
    """Count how often each file comes; links are the file they are links of."""
    first: dict[int, Path] = {}
    return Counter(first.setdefault(file.stat().st_ino, file) for file in files)


def _wrong_words(files: Sequence[Path], found: pa.Table) -> str | None:
    expected: Counter[str] = Counter()
    for file, times in _times(files).items():
        text = file.read_text().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        words = Counter(word for run in re.findall(r"(?:[^\W_]|')+", text) if (word := run.strip("'")))
        expected.update({word: times * n for word, n in words.items()})
    totals = found.group_by("word").aggregate([("n", "max")])
    counted = dict(zip(totals["word"].to_pylist(), totals["n_max"].to_pylist(), strict=True))
    return None if counted == expected else "other totals of words"


def _wrong_averages(files: Sequence[Path], found: pa.Table) -> str | None:
    feed = pd.concat([pq.read_table(file).to_pandas() for file in files], ignore_index=True)
    trades = feed[(feed.kind == "trade") & (feed.price > 0) & (feed["size"] > 0)].copy()
    trades["moment"] = trades.groupby("ticker", observed=True)["time"].cummax()
    trades["notional"] = trades.price * trades["size"]
    trades = trades.sort_values(["ticker", "moment", "seq"]).set_index("moment")
    windows = trades.groupby("ticker", observed=True).rolling("5min")
    sums = windows[["notional", "size"]].sum()
    expected = pd.DataFrame(
        {
            "seq": trades.seq.to_numpy(),
            "vwap": (sums["notional"] / sums["size"]).to_numpy(),
            "volume": sums["size"].round().astype(np.int64).to_numpy(),
            "low": windows.price.min().to_numpy(),
            "high": windows.price.max().to_numpy(),
            "trades": windows.price.count().astype(np.int64).to_numpy(),
        }
    ).sort_values("seq", ignore_index=True)
    rows = found.select(list(expected.columns)).to_pandas().sort_values("seq", ignore_index=True)
    if len(rows) != len(expected):
        return f"{len(rows):,} averages, and there should be {len(expected):,}"
    for column in ("seq", "low", "high", "volume", "trades"):
        if not np.array_equal(rows[column], expected[column]):
            return f"another {column}"
    return None if np.allclose(rows.vwap, expected.vwap, rtol=_CLOSE, atol=0) else "other averages"


Attack = tuple[str, datetime, datetime, int]


def _wrong_attacks(files: Sequence[Path], found: pa.Table, over: int | None) -> str | None:
    expected = _attacks(files)
    plain = pa.timestamp("us")
    columns = [found["host"], *(found[name].cast(plain) for name in ("first", "last")), found["attempts"]]
    rows = sorted(zip(*(column.to_pylist() for column in columns), strict=True))
    if over is not None:
        until = (
            max((time for _, time, _ in _failures(files[:over])), default=datetime.min + _SURELY) - _SURELY
        )
        expected, rows = ([attack for attack in each if attack[2] < until] for each in (expected, rows))
    return None if rows == sorted(expected) else "other attacks"


def _attacks(files: Sequence[Path]) -> list[Attack]:
    """List the attacks of a log."""
    runs: dict[str, list[tuple[datetime, datetime]]] = {}
    attacks: list[Attack] = []

    def end(host: str) -> None:
        run = runs.pop(host)
        newest = [sum(at > now - _QUIET for at, _ in run[: n + 1]) for n, (now, _) in enumerate(run)]
        if max(newest) >= _ATTEMPTS:
            attacks.append((host, min(t for _, t in run), max(t for _, t in run), len(run)))

    for log_time, time, host in _failures(files):
        if host in runs and log_time - runs[host][-1][0] >= _QUIET:
            end(host)
        runs.setdefault(host, []).append((log_time, time))
    for host in list(runs):
        end(host)
    return attacks


def _failures(files: Sequence[Path]) -> Iterator[tuple[datetime, datetime, str]]:
    """List the failed logins of a log: log time, time, host."""
    year, month_before, log_time = YEAR, 0, datetime.min
    stamps: dict[str, datetime] = {}
    for file in files:
        stamps.clear()
        for line in file.read_text().splitlines():
            if line[:3] not in _MONTHS:
                continue
            month = _MONTHS.index(line[:3]) + 1
            if month == 1 and month_before == 12:
                year += 1
                stamps.clear()
            month_before = month
            stamp = line[:15]
            if stamp not in stamps:
                clock = datetime.strptime(stamp[7:], "%H:%M:%S").replace(tzinfo=UTC)
                stamps[stamp] = clock.replace(year=year, month=month, day=int(stamp[4:6]), tzinfo=None)
            log_time = max(log_time, stamps[stamp])
            told = re.search(r" sshd\[\d+\]: Failed password for .* from (\S+) port \d+ ssh2$", line)
            if told is not None:
                yield log_time, stamps[stamp], told[1]


def _wrong_signals(files: Sequence[Path], found: pa.Table) -> str | None:
    antennas, blocks, powers = [], [], []
    known: dict[bytes, Any] = {}
    for file in files:
        table = pq.read_table(file)
        antennas.append(table["antenna"].to_numpy())
        blocks.append(table["block"].to_numpy())
        samples = np.stack([_samples(table[dipole]) for dipole in "xyz"], axis=1)
        # The same radio comes again and again at later times.
        content = samples[:2].tobytes()
        if content not in known:
            known[content] = np.stack([_powers(block) for block in samples])
        powers.append(known[content])
    antenna, block, power = np.concatenate(antennas), np.concatenate(blocks), np.concatenate(powers)
    expected, close = [], set()
    for each in np.unique(antenna):
        mine = power[antenna == each]
        sums = np.concatenate([np.zeros((1, mine.shape[1])), np.cumsum(mine, axis=0)])
        ends = np.arange(1, len(mine) + 1)
        starts = np.maximum(ends - 64, 0)
        usual = (sums[ends] - sums[starts]) / (ends - starts)[:, None]
        for row, band in zip(*np.nonzero(mine > 2.0 * usual), strict=True):
            expected.append((int(block[antenna == each][row]), int(each), int(band) + 1))
        for row, band in zip(*np.nonzero(np.abs(mine - 2.0 * usual) <= _CLOSE * usual), strict=True):
            close.add((int(block[antenna == each][row]), int(each), int(band) + 1))
    names = zip(*(found[name].to_pylist() for name in ("block", "antenna", "band")), strict=True)
    rows = Counter(names)
    more = (set(rows) ^ set(expected)) - close
    return None if not more and max(rows.values(), default=1) == 1 else "other signals"


def _samples(column: pa.ChunkedArray) -> Any:
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat.astype(float).reshape(len(column), SAMPLES)


def _powers(block: Any) -> Any:
    """Return the power of each band of a block by a transform from the textbook."""
    frames = np.stack([block[:, start : start + 128] for start in range(0, SAMPLES - 127, 32)])
    spectra = (frames * _TAPER) @ _WAVES.T
    power = (np.abs(spectra) ** 2).sum(axis=(0, 1))
    return 2 / (128 * 29 * np.sum(_TAPER**2)) * power.reshape(16, 4).sum(axis=1)


_TIMES = np.arange(128)
_WAVES = np.exp(-2j * np.pi * np.outer(np.arange(1, 65), _TIMES) / 128)
_TAPER = 0.42 - 0.5 * np.cos(2 * np.pi * _TIMES / 127) + 0.08 * np.cos(4 * np.pi * _TIMES / 127)


def _wrong_matches(files: Sequence[Path], found: pa.Table) -> str | None:
    """Match the sampled tuples of S1 with those of S2 that come while they are in the window of their key."""
    columns = ["side", "number", "other"]
    feed = pd.concat([pq.read_table(file, columns=columns).to_pandas() for file in files], ignore_index=True)
    feed["rank"] = (feed.side == 1).groupby(feed.number).cumsum()
    first = feed[(feed.side == 1) & (feed.other % _SAMPLED == 0)]
    pairs = first.merge(feed[feed.side == 2], on="number", suffixes=("", "_2"))
    # So many of the key have come up to it, and up to the one of S2.
    met = pairs[(pairs["rank"] <= pairs.rank_2) & (pairs["rank"] > pairs.rank_2 - WINDOW)]
    expected = Counter(zip(met.number.tolist(), met.other.tolist(), strict=True))
    rows = Counter(zip(found["number"].to_pylist(), found["other"].to_pylist(), strict=True))
    return None if rows == expected else "other matches"


def _wrong_numbers(job: Chain, files: Sequence[Path], found: pa.Table) -> str | None:
    expected: Counter[tuple[int, float]] = Counter()
    for file, times in _times(files).items():
        table = pq.read_table(file)
        number, value = table["number"].to_numpy(), table["value"].to_numpy()
        kept = number % _SAMPLED < 4
        value = value[kept]
        for _ in range(job.length):
            value = value * 0.999 + 1
        expected.update(dict.fromkeys(zip(number[kept].tolist(), value.tolist(), strict=True), times))
    rows = Counter(zip(found["number"].to_pylist(), found["value"].to_pylist(), strict=True))
    return None if rows == expected else "other numbers"
