"""Large windows saved every few seconds: with a small share replaced between checkpoints, and with all of it.

Keys report in turn, some tuples at a time, and each has a window of its own. First the windows are filled at full
speed. Then either a small file comes at every trigger, so that a certain share is replaced between checkpoints; what is
compared is then how long batches take, for throughput is given. Or what filled the windows comes again and again at
full speed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from math import ceil
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap_bench.checkpoint_feeds import WORD_BYTES, Feed, letters
from riprap_bench.checkpoint_grid import Keep
from riprap_bench.checkpoint_plan import RUN_SECONDS, Plan, Track
from riprap_bench.checkpoint_ratios import against, bars_of, line_of, pair_up
from riprap_bench.checkpoint_runs import Bench, Measured, Policy, join_app

Pace = Literal["share", "all"]
TEXT_BYTES = 1000
# A window of so many tuples for each key, which come so many at a time.
WINDOW, BURST = 64, 8
TUPLE_BYTES = TEXT_BYTES + 12
LEAST = 0.97
_FILE_TUPLES = 20_000
_ONE_OF_S2 = 100
_SAMPLE = 997


@dataclass(frozen=True, slots=True)
class Pair:
    """A protected run and the unprotected one beside it."""

    mb: int
    pace: Pace
    protected: Measured
    unprotected: Measured

    def ratios(self) -> dict[str, float]:
        return against(self.protected, [self.unprotected])

    def to_json(self) -> dict[str, Any]:
        runs = {"protected": self.protected.to_json(), "unprotected": self.unprotected.to_json()}
        return {"mb": self.mb, "pace": self.pace, **runs}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Take up a pair of an earlier sitting."""
        runs = (Measured.from_json(told[name]) for name in ("protected", "unprotected"))
        return cls(told["mb"], told["pace"], *runs)


@dataclass(slots=True)
class Sizes:
    """The windows of every size, being measured; ``done`` may hold pairs of an earlier sitting."""

    plan: Plan
    bench: Bench
    track: Track
    done: list[Pair] = field(default_factory=list)
    feeds: dict[tuple[int, Pace], tuple[Feed, int]] = field(default_factory=dict)

    def measure(self, keep: Keep) -> dict[str, Any]:
        """Run every size both ways, an unprotected run beside each, as far as that is not done."""
        there = Counter((pair.mb, pair.pace) for pair in self.done)
        for repetition in range(self.plan.repetitions):
            for size in self.plan.sizes:
                for pace in get_args(Pace):
                    if there[size, pace] <= repetition:
                        self._pair(repetition, size, pace)
                        keep(self.result())
                    interval = self.plan.size_interval * (self.plan.size_intervals + 2)
                    self.track.pass_(2 * (interval + RUN_SECONDS + size / 30))
        return self.result()

    def result(self) -> dict[str, Any]:
        """Put together what there is so far."""
        places = sorted({(pair.mb, pair.pace) for pair in self.done})
        return {
            "lines": [self._line(*place) for place in places],
            "pairs": [pair.to_json() for pair in self.done],
        }

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
        self.done.append(Pair(size, pace, run, beside[0]))
        what = "busy" if pace == "share" else "throughput"
        ratio = self.done[-1].ratios()[what]
        self.track.report(f"{size} MB, {pace} replaced: {ratio:.3f} of unprotected ({what})")

    def _line(self, size: int, pace: Pace) -> dict[str, Any]:
        pairs = [pair for pair in self.done if (pair.mb, pair.pace) == (size, pace)]
        line = line_of([(pair.protected, pair.ratios()) for pair in pairs], tuple_bytes=TUPLE_BYTES)
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
        some = linked(folder, fill, len(fill.files) + 4)
        app = join_app(some, by="number", window=WINDOW, policy=None, sample=_SAMPLE)
        rate = self.bench.run(app, some, None, warm_up=len(fill.files)).rate
        seconds = self.plan.size_interval * (self.plan.size_intervals + 1)
        batches = max(4, ceil(rate * seconds / fill.rows[0]))
        first = max(1, ceil(rate * self.plan.size_interval / fill.rows[0]))
        return linked(folder, fill, len(fill.files) + batches), len(fill.files) + min(first, batches - 2)


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


def linked(folder: Path, feed: Feed, batches: int) -> Feed:
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
