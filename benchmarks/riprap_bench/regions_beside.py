"""The same jobs in a consistent region and on plain Structured Streaming with its checkpoints, taking turns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from math import ceil
from typing import Any

from riprap.errors import RunError
from riprap_bench.checkpoint_plan import Track
from riprap_bench.checkpoint_ratios import median_of
from riprap_bench.measuring import middle
from riprap_bench.regions_jobs import job_of
from riprap_bench.regions_plain import Completions, differs, run_plain
from riprap_bench.regions_plan import RUN_SECONDS, Name, Plan
from riprap_bench.regions_runs import Bench, Measured

Keep = Callable[[dict[str, Any]], None]
# Plain Spark is slower: a run of Riprap's is measured over so much input that Spark's takes a few times as long.
_SHARE = 0.35


def measure_plain(plan: Plan, bench: Bench, track: Track, keep: Keep) -> dict[str, Any]:
    """Run each job both ways over the same files; the answers must be the same where they can be compared."""
    lines: dict[str, list[tuple[Measured, Completions]]] = {name: [] for name in plan.plain_names}
    for turn in range(plan.repetitions):
        for name in plan.plain_names:
            lines[name].append(_both(plan, bench, name, turn))
            ours, plain = lines[name][-1]
            track.report(f"{name}: {ours.rate:,.0f} tuples/s, plain Spark {_rate(plain):,.0f}")
            track.pass_(3 * (plan.seconds + RUN_SECONDS))
            keep(_result(lines))
    return _result(lines)


def _both(plan: Plan, bench: Bench, name: Name, turn: int) -> tuple[Measured, Completions]:
    job, folder = job_of(name, plan.seed), bench.folder / f"plain-{name}"
    feeds = folder / "feed"
    if not feeds.exists():
        feed = job.write(feeds, bench.batches_for(job, feeds, _SHARE * plan.seconds))
    else:
        feed = job.write(feeds, len(list(feeds.iterdir())))
    answer = folder / f"answer-{turn}"

    def ours() -> Measured:
        return bench.run(job, feed, plan.plain_period, keep=answer)

    def plain() -> Completions:
        return run_plain(bench.session, name, feed, folder / f"plain-{turn}")

    # Which goes first changes.
    if turn % 2:
        completions, measured = plain(), ours()
    else:
        measured, completions = ours(), plain()
    wrong = differs(name, answer, folder / f"plain-{turn}" / "out")
    if wrong is not None:
        raise RunError(f"{name}: plain Spark has {wrong}")
    shutil.rmtree(answer)
    shutil.rmtree(folder / f"plain-{turn}")
    return measured, completions


def _rate(batches: Completions) -> float:
    """Return the rows a second after the first quarter of the batches."""
    warm = max(1, ceil(len(batches) / 4))
    return sum(rows for rows, _, _ in batches[warm:]) / (batches[-1][1] - batches[warm - 1][1])


def _result(lines: dict[str, list[tuple[Measured, Completions]]]) -> dict[str, Any]:
    return {"lines": [_line(name, runs) for name, runs in lines.items() if runs]}


def _line(name: str, runs: list[tuple[Measured, Completions]]) -> dict[str, Any]:
    throughput = median_of([ours.rate / _rate(plain) for ours, plain in runs])
    ours_s = middle([ours.batch_seconds for ours, _ in runs])
    plain_s = middle([middle([s for _, _, s in plain]) for _, plain in runs])
    return {
        "case": name,
        "throughput": throughput,
        "tuples_per_s": middle([ours.rate for ours, _ in runs]),
        "plain_tuples_per_s": middle([_rate(plain) for _, plain in runs]),
        "batch_seconds": ours_s,
        "plain_batch_seconds": plain_s,
        "met": {"throughput": throughput["median"] > 1, "latency": ours_s < plain_s},
    }
