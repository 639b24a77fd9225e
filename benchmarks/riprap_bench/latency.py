"""How long results take at a steady pace, from the arrival of a tuple to whoever gets the result, by their own clock.

Bargain Discovery replays a feed at so many events a second into each kind of sink. A tuple arrives when the pace makes
it due; its result is published when the consumer sees it: a function that is called, a server that gets a line, whoever
looks into a folder. What Riprap's own metrics say is shown beside it. Answers are checked as in ``bargain``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from riprap.errors import RunError
from riprap_bench.answers import MEANING, difference, read_answer
from riprap_bench.bargain_table import grid
from riprap_bench.baselines import run_bare
from riprap_bench.consumers import SEEN, Consumer, FolderReader, LineServer, OwnRecord
from riprap_bench.feed import FeedFiles, make_feed
from riprap_bench.measuring import Outcome, Report, about, measure, middle, rounded, spread
from riprap_bench.trial import MASTER, SETTINGS, SinkKind, Trial

SEED = 20051227
RATE = 10_000.0
PACE_TOLERANCE = 0.05
# Milliseconds, at most.
BARS: Mapping[SinkKind, Mapping[str, float]] = {
    "callback": {"median": 20.0, "p95": 40.0},
    "tcp": {"median": 20.0, "p95": 40.0},
    "parquet": {"median": 60.0},
}
_SINKS: Mapping[SinkKind, str] = {
    "callback": "a function that is called",
    "tcp": "lines over TCP",
    "parquet": "Parquet files",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to run: for how long, of which the beginning does not count, and how often."""

    rate: float = RATE
    seconds: float = 45.0
    warm_up: float = 10.0
    repetitions: int = 3
    sinks: Sequence[SinkKind] = get_args(SinkKind)
    seed: int = SEED


def run(
    quick: bool,
    report: Report,
    *,
    rate: float | None = None,
    repetitions: int | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Measure all sinks. ``quick`` is a smoke test: its figures say little."""
    plan = Plan(
        rate=rate or RATE,
        repetitions=repetitions or (1 if quick else 3),
        seconds=seconds or (25.0 if quick else 45.0),
        warm_up=4.0 if quick else 10.0,
    )
    return run_plan(plan, report, quick=quick)


def run_plan(plan: Plan, report: Report, *, quick: bool = False) -> dict[str, Any]:
    """Run a plan in a temporary folder; the sinks take turns."""
    described = about(
        seed=plan.seed, repetitions=plan.repetitions, quick=quick, master=MASTER, settings=SETTINGS,
        events_per_s=plan.rate, seconds=plan.seconds, warm_up=plan.warm_up, same_answer_means=MEANING,
    )  # fmt: skip
    lines: dict[SinkKind, list[dict[str, Any]]] = {sink: [] for sink in plan.sinks}
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
        top = Path(folder)
        events = int(plan.rate * plan.seconds)
        feed = make_feed(top / "feed", events, rows_per_file=500_000, seed=plan.seed)
        run_bare(feed.files, out=top / "oracle")
        oracle = read_answer(top / "oracle")
        for number in range(plan.repetitions):
            for sink in plan.sinks:
                line = _measure(plan, sink, feed, oracle, top / f"trial-{number}-{sink}")
                lines[sink].append(line)
                behind = "" if line["kept_up"] else ", but it did NOT keep up"
                report(
                    f"[{number + 1}/{plan.repetitions}] {_SINKS[sink]}: median {line['median']:.0f} ms, "
                    f"95% {line['p95']:.0f} ms, at most {line['max']:.0f} ms{behind}"
                )
    result: dict[str, Any] = {
        "sinks": {sink: _summary(found) for sink, found in lines.items()},
        "bars": {sink: dict(BARS[sink]) for sink in plan.sinks},
        # A difference would have ended the benchmark.
        "same_answer": True,
        "about": described,
    }
    result["bars_met"] = all(
        result["sinks"][sink][figure]["middle"] <= most
        for sink, bars in result["bars"].items()
        for figure, most in bars.items()
    )
    final: dict[str, Any] = rounded(result)
    return final


def _measure(plan: Plan, sink: SinkKind, feed: FeedFiles, oracle: pa.Table, folder: Path) -> dict[str, Any]:
    out = folder / "out"
    consumers: dict[SinkKind, Callable[[], Consumer]] = {
        "callback": lambda: OwnRecord(out),
        "tcp": LineServer,
        "parquet": lambda: FolderReader(out),
    }
    with consumers[sink]() as consumer:
        outcome = measure(
            Trial(
                variant="riprap",
                files=tuple(map(str, feed.files)),
                rows_per_file=feed.rows_per_file,
                events=feed.events,
                folder=str(folder),
                rate=plan.rate,
                sink=sink,
                port=consumer.port,
            )
        )
    seen = consumer.table().sort_by("seq")
    wrong = difference(oracle, seen)
    if wrong is not None:
        raise RunError(f"{_SINKS[sink]} got another answer: {wrong}")
    shutil.rmtree(folder)
    return {**latencies(plan, outcome, seen), "meter": by_meter(plan, outcome)}


def latencies(plan: Plan, outcome: Outcome, seen: pa.Table) -> dict[str, Any]:
    """Return how long results took, in milliseconds, of tuples that arrived after the warm-up."""
    (start,) = outcome.told["pace"]
    due = start + (seen.column("seq").to_numpy() - 1) / plan.rate
    moments = seen.column(SEEN).to_numpy()
    counted = due >= moments.min() + plan.warm_up
    if not counted.any():
        raise RunError(f"nothing arrived after {plan.warm_up:g} s of warm-up: measure for longer")
    milliseconds = 1000 * (moments - due)[counted]
    # All arrive by the pace; whoever keeps up has seen them by the pace, too.
    elapsed, paced = np.ptp(moments[counted]), np.ptp(due[counted])
    return {
        "results": int(counted.sum()),
        "kept_up": bool(abs(elapsed - paced) <= PACE_TOLERANCE * paced),
        "median": float(np.median(milliseconds)),
        "p95": float(np.percentile(milliseconds, 95)),
        "max": float(milliseconds.max()),
    }


def by_meter(plan: Plan, outcome: Outcome) -> dict[str, float]:
    """Return what the run's own metrics say: the median of the mean tuple of a batch, 95% and maximum of the oldest."""
    lines = zip(outcome.batches, outcome.told["latency"], strict=True)
    counted = [told for (_, end), told in lines if end >= outcome.batches[0][1] + plan.warm_up]
    oldest = [1000 * told["oldest"] for told in counted]
    return {
        "median": float(np.median([500 * (told["oldest"] + told["newest"]) for told in counted])),
        "p95": float(np.percentile(oldest, 95)),
        "max": max(oldest),
    }


def _summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median over repetitions of each figure, with the least and the greatest."""
    figures: dict[str, Any] = {
        name: {
            "middle": middle([line[name] for line in lines]),
            "spread": spread([line[name] for line in lines]),
        }
        for name in ("median", "p95", "max")
    }
    return {
        **figures,
        "meter": {name: middle([line["meter"][name] for line in lines]) for name in figures},
        "results": sum(line["results"] for line in lines),
        "kept_up": all(line["kept_up"] for line in lines),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the result as Markdown."""
    about = result["about"]
    rows = [
        [
            _SINKS[sink],
            *(
                f"{found[f]['middle']:.0f} ms ({_bounds(found[f]['spread'])})"
                for f in ("median", "p95", "max")
            ),
            ", ".join(f"{result['bars'][sink][f]:g}" for f in result["bars"][sink]) + " ms",
            " / ".join(f"{found['meter'][f]:.0f}" for f in ("median", "p95", "max")) + " ms",
            f"{found['results']:,}",
        ]
        for sink, found in result["sinks"].items()
    ]
    head = [f"latency at {about['events_per_s']:,.0f} events/s", "median", "95%", "greatest"]
    head += ["bar", "by Riprap's metrics", "results"]
    behind = [_SINKS[sink] for sink, found in result["sinks"].items() if not found["kept_up"]]
    notes = [f"Answers: the same. Bars {'met' if result['bars_met'] else 'NOT met'}."]
    if behind:
        notes.append(f"The machine did NOT keep up with the pace: {', '.join(behind)}.")
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    notes.append(
        f"{about['date']}; {about['machine']}, {about['cores']} cores, load {about['load_before']} before; "
        f"{about['master']}, seed {about['seed']}, {about['repetitions']} repetitions.{quick}"
    )
    return "\n\n".join([grid(head, rows), *notes])


def _bounds(bounds: Sequence[float]) -> str:
    return f"{bounds[0]:.0f} to {bounds[1]:.0f}"
