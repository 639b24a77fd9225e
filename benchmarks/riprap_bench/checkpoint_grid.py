"""The paper's joins with and without checkpoints: windows by groups by intervals, in rounds of neighbouring runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Self

from riprap_bench.checkpoint_feeds import Feed, Kind, Maker
from riprap_bench.checkpoint_plan import RUN_SECONDS, Plan, Round, Track
from riprap_bench.checkpoint_ratios import (
    LEAST,
    LEAST_SMALLEST,
    against,
    bars_of,
    line_of,
    median_of,
    pair_up,
)
from riprap_bench.checkpoint_runs import Bench, Group, Measured, Policy, join_app
from riprap_bench.measuring import middle
from riprap_bench.trial import CORES

# The batch that fills the window, and one more.
WARM_UP = 2
# To begin with; the second time the first rate is known.
_GUESS_PAIRS = 8_000_000
_CALIBRATION_BATCHES = 5
# Of the time of a batch; the rest is Spark's.
_SHARE_OF_WORK = 0.7

Place = tuple[int, float, Group]
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """A round that was carried out, and its runs in their order."""

    round: Round
    batch_rows: int
    runs: tuple[Measured, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "window": self.round.window,
            "every": self.round.every,
            "groups": list(self.round.groups),
            "batch_rows": self.batch_rows,
            "runs": [run.to_json() for run in self.runs],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Take up a round of an earlier sitting."""
        round = Round(told["window"], told["every"], tuple(told["groups"]))
        return cls(round, told["batch_rows"], tuple(Measured.from_json(run) for run in told["runs"]))


@dataclass(slots=True)
class Grid:
    """The rounds of one kind of join being carried out; ``done`` may hold some of an earlier sitting."""

    kind: Kind
    plan: Plan
    bench: Bench
    track: Track
    done: list[Ran] = field(default_factory=list)
    feeds: dict[int, Feed] = field(default_factory=dict)

    def measure(self, keep: Keep) -> dict[str, Any]:
        """Run the rounds that are left; ``keep`` hears of the result after each."""
        order = random.Random(f"{self.plan.seed} {len(self.done)}")
        there = Counter(ran.round for ran in self.done)
        for round in self.plan.rounds(self.kind):
            if there[round]:
                there[round] -= 1
            else:
                self._round(round, order)
                keep(self.result())
            self.track.pass_(round.runs * (self.plan.measured_seconds(round.every) + RUN_SECONDS))
        return self.result()

    def result(self) -> dict[str, Any]:
        """Put together what there is so far."""
        runs: dict[Place, list[tuple[Measured, Mapping[str, float]]]] = {}
        plain: dict[tuple[int, float], list[Ran]] = {}
        for ran in self.done:
            plain.setdefault((ran.round.window, ran.round.every), []).append(ran)
            for run, beside in pair_up(ran.runs):
                assert run.policy is not None
                place = ran.round.window, ran.round.every, run.policy.group
                runs.setdefault(place, []).append((run, against(run, beside)))
        return {
            "lines": [self._line(place, runs[place]) for place in sorted(runs, key=_in_order)],
            "together": together({place: [ratios for _, ratios in found] for place, found in runs.items()}),
            "unprotected": [_unprotected(*place, plain[place]) for place in sorted(plain)],
            "rounds": [ran.to_json() for ran in self.done],
        }

    def _round(self, round: Round, order: random.Random) -> None:
        if round.window not in self.feeds:
            self.feeds[round.window] = self._calibrated(round.window)
        feed = self.feeds[round.window].first(
            WARM_UP + ceil(self.plan.measured_seconds(round.every) / self.plan.batch_seconds)
        )
        groups = order.sample(round.groups, len(round.groups))
        measured = [self._run(round.window, feed, policy) for policy in with_plain(round.every, groups)]
        self.done.append(Ran(round, feed.rows[-1], tuple(measured)))
        ratios = {run.policy.group: against(run, beside) for run, beside in pair_up(measured) if run.policy}
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

    def _line(self, place: Place, runs: Sequence[tuple[Measured, Mapping[str, float]]]) -> dict[str, Any]:
        window, every, group = place
        maker = Maker(self.kind, window, self.plan.seed)
        line = line_of(runs, tuple_bytes=maker.tuple_bytes())
        smallest = self.kind == "single" and window == min(self.plan.windows) and every <= 1.0
        least = LEAST_SMALLEST if smallest else LEAST
        met = bars_of(line, least=least, meet_intervals=self.kind == "zipf")
        return {"window": window, "every": every, "group": group, **line, "least": least, "met": met}


def together(ratios: Mapping[Place, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Sum up all configurations of an interval: single pairs vary by more than there is to be seen in one of them."""
    return [
        {
            "every": every,
            **{
                name: median_of(
                    [each[name] for (_, e, _), found in ratios.items() if e == every for each in found]
                )
                for name in ("throughput", "cpu")
            },
        }
        for every in sorted({every for _, every, _ in ratios})
    ]


def _unprotected(window: int, every: float, rounds: Sequence[Ran]) -> dict[str, Any]:
    runs = [run for ran in rounds for run in ran.runs if run.policy is None]
    return {
        "window": window,
        "measured_with": every,
        "batch_rows": rounds[-1].batch_rows,
        "tuples_per_s": middle([run.rate for run in runs]),
        "spread": [min(run.rate for run in runs), max(run.rate for run in runs)],
        "matches_per_tuple": runs[-1].answer.matches / runs[-1].rows,
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
