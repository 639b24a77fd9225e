"""Bargain Discovery six ways: Riprap, plain Spark and Bytewax, each by key and by bucket, and a bare Numba loop.

Same events, same Spark settings, same file sink; every trial's answer is checked before its time counts. Trials
run one at a time, each in a process of its own, and the variants take turns, so that a slow spell of the machine
meets them all.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.errors import RunError
from riprap_bench.answers import MEANING, difference, first_of, read_answer
from riprap_bench.bargain_table import table as table
from riprap_bench.feed import FeedFiles, make_feed
from riprap_bench.measuring import (
    Outcome,
    Report,
    WarmUp,
    about,
    measure,
    middle,
    rounded,
    spread,
    steady_rate,
)
from riprap_bench.trial import MASTER, SETTINGS, STAGE, VARIANTS, Trial, Variant, missing

SEED = 20051227
# At least so many times the events/s of the other variant, at so many rows a batch.
BARS: Mapping[str, Mapping[str, float]] = {
    "100000": {"by_key": 40.0, "by_bucket": 6.0, "bytewax_key": 1.0},
    "500000": {"by_key": 25.0, "by_bucket": 6.0, "bytewax_key": 1.0},
}
MAY_GROW = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to run. ``events`` says, by batch size, how much of the feed each variant gets."""

    events: Mapping[int, Mapping[Variant, int]]
    repetitions: int
    warm_up: WarmUp
    scaling: Sequence[int] = ()
    scaling_rows: int = 100_000
    scaling_repetitions: int = 1
    seed: int = SEED


FULL = Plan(
    events={
        100_000: {
            **dict.fromkeys(("riprap", "numba", "bytewax_bucket"), 16_000_000),
            **{"by_key": 800_000, "by_bucket": 2_400_000, "bytewax_key": 6_000_000},
        },
        500_000: {
            **dict.fromkeys(("riprap", "numba", "bytewax_bucket"), 24_000_000),
            **{"by_key": 4_000_000, "by_bucket": 8_000_000, "bytewax_key": 12_000_000},
        },
    },
    repetitions=2,
    warm_up=WarmUp(batches=2, seconds=6.0),
    scaling=(1_000_000, 4_000_000, 16_000_000),
    scaling_repetitions=3,
)
QUICK = Plan(
    events={
        100_000: {
            **dict.fromkeys(("riprap", "numba", "bytewax_key", "bytewax_bucket"), 1_500_000),
            **{"by_key": 300_000, "by_bucket": 700_000},
        },
        500_000: {
            **dict.fromkeys(("riprap", "numba", "bytewax_key", "bytewax_bucket"), 3_000_000),
            **{"by_key": 1_500_000, "by_bucket": 2_000_000},
        },
    },
    repetitions=1,
    warm_up=WarmUp(batches=1, seconds=1.0),
    scaling=(200_000, 1_000_000),
)


PARTS = ("throughput", "scaling")


def run(quick: bool, report: Report, *, only: Sequence[str] = PARTS) -> dict[str, Any]:
    """Run the comparison, or some of its parts. ``quick`` is a smoke test: its figures say little."""
    if unknown := sorted(set(only) - set(PARTS)):
        raise RunError(f"there is no part '{unknown[0]}'; there are: {', '.join(PARTS)}")
    plan = QUICK if quick else FULL
    if "throughput" not in only:
        plan = replace(plan, events={})
    if "scaling" not in only:
        plan = replace(plan, scaling=())
    return run_plan(plan, report, quick=quick)


def run_plan(plan: Plan, report: Report, *, quick: bool = False) -> dict[str, Any]:
    """Run a plan in a temporary folder and put its result together."""
    described = about(
        seed=plan.seed, repetitions=plan.repetitions, quick=quick, master=MASTER, settings=SETTINGS,
        events={str(size): dict(events) for size, events in plan.events.items()},
        same_answer_means=MEANING,
    )  # fmt: skip
    skipped = {v: reason for v in VARIANTS if (reason := missing(v)) is not None}
    for variant, reason in skipped.items():
        report(f"{variant} is skipped: {reason}")
    variants = tuple(v for v in VARIANTS if v not in skipped)
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
        bench = _Bench(plan, variants, Path(folder), report)
        bench.prepare()
        throughput = bench.throughput()
        scaling = bench.scaling()
    result: dict[str, Any] = {v: _figures(v, throughput, plan) for v in variants}
    result["skipped"] = skipped
    result["riprap"]["time_goes_ms"] = {
        str(size): _where(throughput["riprap", size][-1], plan.warm_up) for size in plan.events
    }
    result["ratios"] = _ratios(result, variants)
    result["bars"] = {size: dict(bars) for size, bars in BARS.items() if size in result["ratios"]}
    result["bars_met"] = all(
        result["ratios"][size].get(other, least) >= least
        for size, bars in result["bars"].items()
        for other, least in bars.items()
    )
    result["scaling"] = scaling
    # A difference would have ended the benchmark.
    result["same_answer"] = True
    result["about"] = described
    final: dict[str, Any] = rounded(result)
    return final


@dataclass(slots=True)
class _Bench:
    """A plan being carried out in a folder."""

    plan: Plan
    variants: Sequence[Variant]
    folder: Path
    report: Report
    feeds: dict[int, FeedFiles] = field(default_factory=dict)
    oracle: pa.Table | None = None
    trials: int = 0

    def prepare(self) -> None:
        """Write the feeds, and find the answer every trial is held against."""
        wanted = {size: max(events.values()) for size, events in self.plan.events.items()}
        if self.plan.scaling:
            most = max(self.plan.scaling)
            wanted[self.plan.scaling_rows] = max(wanted.get(self.plan.scaling_rows, 0), most)
        for size, events in wanted.items():
            self.report(f"writing a feed of {events:,} events in files of {size:,}")
            self.feeds[size] = make_feed(
                self.folder / f"feed-{size}", events, rows_per_file=size, seed=self.plan.seed
            )
        longest = max(self.feeds.values(), key=lambda feed: feed.events)
        outcome = self._measure("numba", longest)
        self.oracle = read_answer(outcome.trial.out)
        self.report(f"the answer: {self.oracle.num_rows:,} bargains in {longest.events:,} events")
        self._forget(outcome)

    def throughput(self) -> dict[tuple[Variant, int], list[Outcome]]:
        """Run every variant at every batch size, repeated, taking turns."""
        outcomes: dict[tuple[Variant, int], list[Outcome]] = {}
        for repetition in range(self.plan.repetitions):
            for size, events in self.plan.events.items():
                for variant in self.variants:
                    outcome = self._checked(variant, self.feeds[size].first(events[variant]))
                    outcomes.setdefault((variant, size), []).append(outcome)
                    rate = steady_rate(outcome, self.plan.warm_up)
                    self.report(
                        f"[{repetition + 1}/{self.plan.repetitions}] {variant} at {size:,} rows a batch: "
                        f"{rate:,.0f} events/s, {outcome.memory.total:,.0f} MB"
                    )
        return outcomes

    def scaling(self) -> list[dict[str, Any]]:
        """Run Riprap over feeds of growing length."""
        outcomes: dict[int, list[Outcome]] = {events: [] for events in self.plan.scaling}
        for _ in range(self.plan.scaling_repetitions):
            for events in self.plan.scaling:
                outcome = self._checked("riprap", self.feeds[self.plan.scaling_rows].first(events))
                outcomes[events].append(outcome)
                self.report(f"{events:,} events: {_seconds(outcome):.2f} s, {outcome.memory.total:,.0f} MB")
        lines: list[dict[str, Any]] = []
        for found in outcomes.values():
            lines.append(_scaling_line(found, lines[0] if lines else None))
        return lines

    def _checked(self, variant: Variant, feed: FeedFiles) -> Outcome:
        outcome = self._measure(variant, feed)
        assert self.oracle is not None, "prepare() comes first"
        wrong = difference(first_of(self.oracle, feed.events), read_answer(outcome.trial.out))
        if wrong is not None:
            raise RunError(f"{variant} at {feed.rows_per_file:,} rows a batch has another answer: {wrong}")
        self._forget(outcome)
        return outcome

    def _measure(self, variant: Variant, feed: FeedFiles) -> Outcome:
        self.trials += 1
        return measure(
            Trial(
                variant=variant,
                files=tuple(map(str, feed.files)),
                rows_per_file=feed.rows_per_file,
                events=feed.events,
                folder=str(self.folder / f"trial-{self.trials}"),
            )
        )

    def _forget(self, outcome: Outcome) -> None:
        shutil.rmtree(outcome.trial.folder)


def _figures(
    variant: Variant, throughput: Mapping[tuple[Variant, int], Sequence[Outcome]], plan: Plan
) -> dict[str, Any]:
    figures: dict[str, Any] = {"events_per_s": {}, "spread": {}, "peak_memory_mb": {}}
    for size in plan.events:
        outcomes = throughput[variant, size]
        rates = [steady_rate(o, plan.warm_up) for o in outcomes]
        figures["events_per_s"][str(size)] = middle(rates)
        figures["spread"][str(size)] = spread(rates)
        figures["peak_memory_mb"][str(size)] = middle([o.memory.total for o in outcomes])
    return figures


def _ratios(result: Mapping[str, Any], variants: Sequence[Variant]) -> dict[str, dict[str, float]]:
    ours = result["riprap"]["events_per_s"]
    return {
        size: {v: ours[size] / result[v]["events_per_s"][size] for v in variants if v != "riprap"}
        for size in ours
    }


def _where(outcome: Outcome, warm_up: WarmUp) -> dict[str, float]:
    """Return the mean milliseconds of each part of a steady batch."""
    batches, parts = outcome.batches, outcome.told["parts"]
    dropped = warm_up.drop(batches, batches[0][1])
    whole = (batches[-1][1] - batches[dropped - 1][1]) / (len(batches) - dropped)
    mean = {name: float(np.mean([p[name] for p in parts[dropped:]])) for name in parts[-1]}
    where = {"whole batch": whole, "between batches": whole - mean[STAGE], **mean}
    return {name: 1000 * seconds for name, seconds in where.items()}


def _seconds(outcome: Outcome) -> float:
    """Return the time after start-up: the first batch starts the workers, so from its completion to the end."""
    batches = outcome.batches
    return batches[-1][1] - batches[0][1]


def _scaling_line(outcomes: Sequence[Outcome], first: Mapping[str, Any] | None) -> dict[str, Any]:
    batches = outcomes[0].batches
    counted = sum(rows for rows, _ in batches[1:])
    times = [_seconds(o) for o in outcomes]
    line: dict[str, Any] = {
        "events": outcomes[0].trial.events,
        "seconds": middle(times),
        "spread": spread(times),
        "seconds_per_million": middle(times) / counted * 1e6,
        "late_over_early": middle([_late_over_early(o) for o in outcomes]),
        "peak_memory_mb": middle([o.memory.total for o in outcomes]),
        "peak_jvm_mb": middle([o.memory.jvm for o in outcomes]),
        "peak_python_mb": middle([o.memory.python for o in outcomes]),
        "live_heap_mb": middle([o.told["live_heap_mb"] for o in outcomes]),
    }
    start = first or line
    line["time_growth"] = line["seconds_per_million"] / start["seconds_per_million"]
    line["memory_growth"] = line["peak_memory_mb"] / start["peak_memory_mb"]
    line["grows_no_faster"] = line["time_growth"] <= MAY_GROW
    return line


def _late_over_early(outcome: Outcome) -> float:
    """Compare the last quarter of a run with its second: above 1 means that it slows down as it goes on."""
    ends = [end for _, end in outcome.batches]
    quarter = len(ends) // 4
    if quarter < 1:
        return 1.0
    return (ends[-1] - ends[-1 - quarter]) / (ends[2 * quarter] - ends[quarter])
