"""The paper's joins with and without checkpoints: windows by groups by intervals, in rounds of neighbouring runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from riprap.bench.checkpoint_feeds import Feed, Kind, Maker
from riprap.bench.checkpoint_plan import RUN_SECONDS, Plan, Round, Track
from riprap.bench.checkpoint_ratios import (
    LEAST,
    LEAST_SMALLEST,
    against,
    bars_of,
    line_of,
    pair_up,
)
from riprap.bench.checkpoint_runs import Bench, Group, Measured, Policy, join_app
from riprap.bench.measuring import middle
from riprap.bench.trial import CORES

# The batch that fills the window, and one more.
WARM_UP = 2
# To begin with; the second time the first rate is known.
_GUESS_PAIRS = 8_000_000
_CALIBRATION_BATCHES = 5
# Of the time of a batch; the rest is Spark's.
_SHARE_OF_WORK = 0.7

Place = tuple[int, float, Group]
Keep = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Grid:
    """The rounds of one kind of join being carried out."""

    kind: Kind
    plan: Plan
    bench: Bench
    track: Track
    feeds: dict[int, Feed] = field(default_factory=dict)
    runs: dict[Place, list[tuple[Measured, Mapping[str, float]]]] = field(default_factory=dict)
    plain: dict[tuple[int, float], list[Measured]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, keep: Keep) -> dict[str, Any]:
        """Run all rounds; ``keep`` hears of the result after each."""
        order = random.Random(self.plan.seed)
        for round in self.plan.rounds(self.kind):
            if round.window not in self.feeds:
                self.feeds[round.window] = self._calibrated(round.window)
            self._round(round, order)
            self.track.pass_(round.runs * (self.plan.measured_seconds(round.every) + RUN_SECONDS))
            keep(self.result())
        return self.result()

    def result(self) -> dict[str, Any]:
        """Put together what there is so far."""
        return {
            "lines": [self._line(place) for place in sorted(self.runs, key=_in_order)],
            "unprotected": [self._unprotected(*place) for place in sorted(self.plain)],
            "runs": self.raw,
        }

    def _round(self, round: Round, order: random.Random) -> None:
        feed = self.feeds[round.window].first(
            WARM_UP + ceil(self.plan.measured_seconds(round.every) / self.plan.batch_seconds)
        )
        groups = order.sample(round.groups, len(round.groups))
        measured = [self._run(round.window, feed, policy) for policy in with_plain(round.every, groups)]
        number = len({line["round"] for line in self.raw})
        self.plain.setdefault((round.window, round.every), []).extend(m for m in measured if m.policy is None)
        ratios = {}
        for run, beside in pair_up(measured):
            assert run.policy is not None
            ratios[run.policy.group] = against(run, beside)
            self.runs.setdefault((round.window, round.every, run.policy.group), []).append(
                (run, ratios[run.policy.group])
            )
        self.raw += [_told(run, number, round) for run in measured]
        shown = ", ".join(f"{group} {r['throughput']:.3f}" for group, r in sorted(ratios.items(), key=str))
        rate = middle([m.rate for m in measured if m.policy is None])
        self.track.report(
            f"{self.kind}, window {round.window:,}, every {round.every:g} s: {rate:,.0f} tuples/s unprotected; "
            f"with groups of {shown} of that"
        )

    def _run(self, window: int, feed: Feed, policy: Policy | None) -> Measured:
        by = "whole" if self.kind == "single" else "number"
        return self.bench.run(
            join_app(feed, by=by, window=window, policy=policy), feed, policy, warm_up=WARM_UP
        )

    def _calibrated(self, window: int) -> Feed:
        """Write a feed whose batches take about as long as they should."""
        maker = Maker(self.kind, window, self.plan.seed)
        met = window if self.kind == "single" else 400
        rows = max(50, int(2 * _GUESS_PAIRS / met * self.plan.batch_seconds))
        for attempt in range(self.plan.calibrations):
            folder = self._folder(window, f"calibration-{attempt}")
            feed = maker.write(folder, batches=_CALIBRATION_BATCHES, batch_rows=rows)
            run = self._run(window, feed, None)
            # By the work alone: what a batch costs besides does not get less if it is smaller.
            tasks = 1 if self.kind == "single" else CORES
            rows = max(50, int(_SHARE_OF_WORK * self.plan.batch_seconds * tasks * run.rows / run.work))
        if not self.feeds:
            # The first checkpoint of a process loads compiled code, which takes longer than a checkpoint.
            self._run(window, feed, Policy(every=self.plan.batch_seconds, group="auto"))
        longest = max(self.plan.measured_seconds(r.every) for r in self.plan.rounds(self.kind))
        self.track.report(f"{self.kind}, window {window:,}: batches of {rows:,} tuples")
        batches = WARM_UP - 1 + ceil(longest / self.plan.batch_seconds)
        return maker.write(self._folder(window, "feed"), batches=batches, batch_rows=rows)

    def _folder(self, window: int, name: str) -> Path:
        return self.bench.folder / f"{self.kind}-{window}-{name}"

    def _line(self, place: Place) -> dict[str, Any]:
        window, every, group = place
        maker = Maker(self.kind, window, self.plan.seed)
        line = line_of(self.runs[place], tuple_bytes=maker.tuple_bytes())
        smallest = self.kind == "single" and window == min(self.plan.windows) and every <= 1.0
        least = LEAST_SMALLEST if smallest else LEAST
        met = bars_of(line, least=least, meet_intervals=self.kind == "zipf")
        return {"window": window, "every": every, "group": group, **line, "least": least, "met": met}

    def _unprotected(self, window: int, every: float) -> dict[str, Any]:
        runs = self.plain[window, every]
        return {
            "window": window,
            "measured_with": every,
            "batch_rows": self.feeds[window].rows[-1],
            "tuples_per_s": middle([run.rate for run in runs]),
            "spread": [min(run.rate for run in runs), max(run.rate for run in runs)],
            "matches_per_tuple": runs[0].answer.matches / runs[0].rows,
        }


def with_plain(every: float, groups: Sequence[Group]) -> Iterator[Policy | None]:
    """List the runs of a round: an unprotected one first, last, and after every second one.

    >>> [policy and policy.group for policy in with_plain(1.0, [512, 1024, 4096])]
    [None, 512, 1024, None, 4096, None]
    """
    yield None
    for number, group in enumerate(groups, 1):
        yield Policy(every=every, group=group)
        if number % 2 == 0 or number == len(groups):
            yield None


def _in_order(place: Place) -> tuple[int, float, int]:
    window, every, group = place
    return window, every, 0 if group == "auto" else group


def _told(run: Measured, number: int, round: Round) -> dict[str, Any]:
    return {
        "round": number,
        "window": round.window,
        "every": round.every,
        "group": run.policy.group if run.policy is not None else None,
        "tuples_per_s": run.rate,
        "cpu_seconds": run.cpu,
        "seconds": run.seconds,
        "rows": run.rows,
        "missed": run.missed,
        "checkpoints": [asdict(c) for c in run.checkpoints],
    }
