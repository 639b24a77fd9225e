"""Large windows saved every few seconds: with a small share replaced between checkpoints, and with all of it.

Keys report in turn, some tuples at a time, and each has a window of its own. First the windows are filled at full
speed. Then either a small file comes at every trigger, so that a certain share is replaced between checkpoints; what is
compared is then how long batches take, for throughput is given. Or what filled the windows comes again and again at
full speed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, cycle, islice
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.bench.checkpoint_feeds import WORD_BYTES, Feed, letters
from riprap.bench.checkpoint_grid import Keep
from riprap.bench.checkpoint_plan import RUN_SECONDS, Plan, Track
from riprap.bench.checkpoint_ratios import against, bars_of, line_of, pair_up
from riprap.bench.checkpoint_runs import Bench, Measured, Policy, join_app

Pace = Literal["share", "all"]
TEXT_BYTES = 1000
# A window of so many tuples for each key, which come so many at a time.
WINDOW, BURST = 64, 8
TUPLE_BYTES = TEXT_BYTES + 12
LEAST = 0.97
_FILE_TUPLES = 20_000
_ONE_OF_S2 = 100
_SAMPLE = 997


@dataclass(slots=True)
class Sizes:
    """The windows of every size, being measured."""

    plan: Plan
    bench: Bench
    track: Track
    feeds: dict[tuple[int, Pace], tuple[Feed, int]] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    runs: dict[tuple[int, Pace], list[tuple[Measured, dict[str, float]]]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, keep: Keep) -> dict[str, Any]:
        """Run every size both ways, an unprotected run beside each."""
        for repetition in range(self.plan.repetitions):
            for size in self.plan.sizes:
                for pace in ("share", "all"):
                    self._pair(repetition, size, "share" if pace == "share" else "all")
                    keep(self.result())
        return self.result()

    def result(self) -> dict[str, Any]:
        """Put together what there is so far."""
        return {"lines": [self._line(*place) for place in sorted(self.runs)], "runs": self.raw}

    def _pair(self, repetition: int, size: int, pace: Pace) -> None:
        feed, warm_up = self._feed(size, pace)
        trigger = self.plan.size_interval / self.plan.size_triggers if pace == "share" else None
        policy = Policy(every=self.plan.size_interval, group="auto")
        # Which goes first changes, so that neither always meets the colder machine.
        both = [None, policy] if repetition % 2 == 0 else [policy, None]
        runs = [
            self.bench.run(
                join_app(feed, by="number", window=WINDOW, policy=each, sample=_SAMPLE),
                feed,
                each,
                warm_up=warm_up,
                trigger=f"{trigger * 1000:.0f}ms" if trigger else None,
            )
            for each in both
        ]
        (run, beside), *_ = pair_up(runs)
        ratios = against(run, beside)
        self.runs.setdefault((size, pace), []).append((run, ratios))
        self.raw.append(
            {"mb": size, "pace": pace, **ratios, "protected": _told(run), "unprotected": _told(beside[0])}
        )
        what = "busy" if pace == "share" else "throughput"
        self.track.report(f"{size} MB, {pace} replaced: {ratios[what]:.3f} of unprotected ({what})")
        interval = self.plan.size_interval * (self.plan.size_intervals + 2)
        self.track.pass_(2 * (interval + RUN_SECONDS + size / 30))

    def _line(self, size: int, pace: Pace) -> dict[str, Any]:
        runs = self.runs[size, pace]
        line = line_of(runs, tuple_bytes=TUPLE_BYTES)
        if pace == "share":
            line["throughput"] = line["busy"]
        met = bars_of(line, least=LEAST) if pace == "share" else {}
        entered = line["tuples_a_checkpoint"]
        replaced = None if entered is None else entered / (keys_of(size) * WINDOW)
        return {"mb": size, "pace": pace, "replaced": replaced, **line, "least": LEAST, "met": met}

    def _feed(self, size: int, pace: Pace) -> tuple[Feed, int]:
        """Return the files of a size and pace, and how many of them come before what is measured."""
        if (size, pace) not in self.feeds:
            folder = self.bench.folder / f"size-{size}-{pace}"
            folder.mkdir(parents=True)
            made = write_fill(folder, size, self.plan.seed)
            if pace == "share":
                self.feeds[size, pace] = self._paced(folder, size, made)
            else:
                self.feeds[size, pace] = self._again(folder, size, made)
        return self.feeds[size, pace]

    def _paced(self, folder: Path, size: int, fill: Feed) -> tuple[Feed, int]:
        tuples = keys_of(size) * WINDOW
        each = max(BURST, int(tuples * self.plan.size_share / self.plan.size_triggers))
        batches = self.plan.size_triggers * (self.plan.size_intervals + 2)
        more = write(folder, "paced", size, [each] * batches, self.plan.seed, start=sum(fill.entering))
        # Two intervals pass, so that what filled the windows is saved before the clock starts.
        return _put(fill, more), len(fill.files) + 2 * self.plan.size_triggers

    def _again(self, folder: Path, size: int, fill: Feed) -> tuple[Feed, int]:
        """Take the files of the fill again, under other names, for as long as a run is to last."""
        some = _linked(folder, fill, len(fill.files) + 4)
        app = join_app(some, by="number", window=WINDOW, policy=None, sample=_SAMPLE)
        rate = self.bench.run(app, some, None, warm_up=len(fill.files)).rate
        seconds = self.plan.size_interval * (self.plan.size_intervals + 1)
        batches = max(4, ceil(rate * seconds / fill.rows[0]))
        first = max(1, ceil(rate * self.plan.size_interval / fill.rows[0]))
        return _linked(folder, fill, len(fill.files) + batches), len(fill.files) + min(first, batches - 2)


def keys_of(size: int) -> int:
    """Return how many keys make windows of so many MB."""
    return max(1, round(size * 1e6 / (WINDOW * TUPLE_BYTES)))


def write_fill(folder: Path, size: int, seed: int) -> Feed:
    """Write the tuples that fill all windows once."""
    tuples = keys_of(size) * WINDOW
    each = min(_FILE_TUPLES, ceil(tuples / 4))
    return write(folder, "fill", size, [each] * ceil(tuples / each), seed, start=0)


def write(folder: Path, name: str, size: int, sizes: Sequence[int], seed: int, *, start: int) -> Feed:
    """Write files of so many tuples of S1 each, and a hundredth of S2."""
    files, rows, entering = [], [], []
    for number, many in enumerate(sizes):
        table = _part(np.random.default_rng([seed, size, start]), start, many, keys_of(size))
        files.append(folder / f"{name}-{number:05d}.parquet")
        pq.write_table(table, files[-1], compression="none", use_dictionary=False)
        rows.append(table.num_rows)
        entering.append(many)
        start += many
    return Feed(tuple(files), tuple(rows), tuple(entering))


def _part(random: np.random.Generator, start: int, tuples: int, keys: int) -> pa.Table:
    others = ceil(tuples / _ONE_OF_S2)
    first = np.ones(tuples + others, bool)
    first[random.choice(tuples + others, others, replace=False)] = False
    numbers = np.empty(tuples + others, np.int32)
    numbers[first] = (np.arange(start, start + tuples) // BURST) % keys
    numbers[~first] = random.integers(0, keys, others)
    return pa.table(
        {
            "whole": np.zeros(len(first), np.int32),
            "side": np.where(first, 1, 2).astype(np.int32),
            "number": numbers,
            "other": random.integers(0, 1 << 31, len(first), np.int32),
            "text": letters(random, len(first), TEXT_BYTES, first),
            "word": letters(random, len(first), WORD_BYTES, ~first),
        }
    )


def _put(one: Feed, other: Feed) -> Feed:
    return Feed(one.files + other.files, one.rows + other.rows, one.entering + other.entering)


def _linked(folder: Path, feed: Feed, batches: int) -> Feed:
    """Return a feed of so many batches: its files, and then the same again as links."""

    def names() -> Iterator[Path]:
        for number, file in enumerate(islice(cycle(feed.files), len(feed.files), batches), len(feed.files)):
            link = folder / f"more-{number:06d}.parquet"
            if not link.exists():
                os.link(file, link)
            yield link

    return Feed(
        tuple(chain(feed.files, names())),
        tuple(islice(cycle(feed.rows), batches)),
        tuple(islice(cycle(feed.entering), batches)),
    )


def _told(run: Measured) -> dict[str, Any]:
    return {
        "tuples_per_s": run.rate,
        "cpu_seconds": run.cpu,
        "busy_seconds": run.busy,
        "seconds": run.seconds,
        "missed": run.missed,
        "checkpoints": [asdict(c) for c in run.checkpoints],
    }
