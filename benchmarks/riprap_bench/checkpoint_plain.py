"""An application without any policy, on this source tree and on an older one, taking turns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap_bench.checkpoint_plan import Plan, Track
from riprap_bench.checkpoint_ratios import median_of
from riprap_bench.feed import make_feed
from riprap_bench.measuring import Tree, WarmUp, measure, middle, steady_rate
from riprap_bench.trial import Trial

LEAST = 0.98
_ROWS = 100_000
_WARM_UP = WarmUp(batches=2, seconds=3.0)


def measure_plain(plan: Plan, folder: Path, before: Path, track: Track) -> dict[str, Any]:
    """Run Bargain Discovery on both trees, each time in a process of its own."""
    trees = {"before": tree_of(before), "now": Tree()}
    feed = make_feed(folder / "feed", plan.plain_events, rows_per_file=_ROWS, seed=plan.seed)
    rates: dict[str, list[float]] = {name: [] for name in trees}
    for turn in range(plan.repetitions):
        # Which goes first changes.
        for name in sorted(trees, reverse=turn % 2 == 1):
            trial = Trial(
                variant="riprap",
                files=tuple(map(str, feed.files)),
                rows_per_file=_ROWS,
                events=feed.events,
                folder=str(folder / f"trial-{turn}-{name}"),
            )
            rates[name].append(steady_rate(measure(trial, tree=trees[name]), _WARM_UP))
            shutil.rmtree(trial.folder)
            track.pass_(15 + plan.plain_events / 400_000)
        track.report(
            f"without a policy: {rates['now'][-1]:,.0f} events/s, before {rates['before'][-1]:,.0f} events/s"
        )
    ratio = median_of([now / then for now, then in zip(rates["now"], rates["before"], strict=True)])
    return {
        "events_per_s": middle(rates["now"]),
        "before_events_per_s": middle(rates["before"]),
        "rates": rates,
        "throughput": ratio,
        "least": LEAST,
        "met": {"throughput": ratio["median"] >= LEAST},
    }


def tree_of(folder: Path) -> Tree:
    """Return the tree in a folder. Older ones have the benchmarks in the package."""
    folder = folder.resolve()
    if (folder / "benchmarks" / "riprap_bench" / "trial.py").is_file():
        return Tree(folders=(folder / "src", folder / "benchmarks"))
    for source in (folder / "src", folder):
        if (source / "riprap" / "bench" / "trial.py").is_file():
            return Tree(program="riprap.bench.trial", folders=(source,))
    raise RunError(f"--before {folder}: there is no riprap with benchmarks in it")
