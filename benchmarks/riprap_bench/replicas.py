"""What replicas are worth and what they cost: how soon another is read, what a second one takes, how good results stay.

Bargain Discovery with its trades, sums and averages in a group of two, or all of it twice. Replicas are really killed
and stopped. Results are kept as they come, so one can stop, use what there is, and measure the other parts later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap_bench.answers import MEANING
from riprap_bench.checkpoint_plan import Track
from riprap_bench.measuring import Report, about, rounded
from riprap_bench.replicas_cost import measure_cost
from riprap_bench.replicas_doubles import measure_values
from riprap_bench.replicas_model import measure_model
from riprap_bench.replicas_plan import PARTS, SLICE, Part, Plan, Stretch
from riprap_bench.replicas_quality import measure_quality
from riprap_bench.replicas_switch import measure_switching
from riprap_bench.replicas_table import table as table

FORMAT = "riprap-bench-replicas/1"
FULL = Plan()
# Each part within some two minutes: a smoke test.
QUICK = Plan(
    kills=2,
    hangs=1,
    rounds=1,
    events=1_500_000,
    cases=("unprotected", "exact"),
    stretches=(Stretch(name="generated", events=50_000, rate=1_000.0, section=1_000, offset=20_500),),
    outage=4.0,
    doubles=Stretch(name="generated", events=20_000, rate=1_000.0, section=1_000, offset=8_000),
    intervals=(2_000,),
    replications=50,
)

Keep = Callable[[dict[str, Any]], None]


def run(
    quick: bool,
    report: Report,
    *,
    only: Sequence[Part] = (),
    repetitions: int | None = None,
    rate: float | None = None,
    feed: Path | None = None,
    earlier: Mapping[str, Any] | None = None,
    keep: Keep = lambda result: None,
    show: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Run the experiments, or ``only`` some; other parts of an ``earlier`` result stay.

    ``repetitions`` is how often replicas are killed or stopped, and how many rounds there are; ``feed`` is the file of
    real trades and quotes. ``keep`` hears of the result so far, ``show`` of the share that is done.
    """
    plan = QUICK if quick else FULL
    unknown = [part for part in only if part not in PARTS]
    if unknown:
        raise RunError(f"there is no part '{unknown[0]}'; there are: {', '.join(PARTS)}")
    plan = replace(plan, only=tuple(only) or plan.only, rate=rate or plan.rate)
    if repetitions is not None:
        plan = replace(plan, kills=repetitions, hangs=repetitions, rounds=repetitions)
    if feed is not None:
        real = replace(SLICE, source=feed)
        plan = replace(plan, stretches=(*(s for s in plan.stretches if s.source is None), real))
    return run_plan(plan, report, earlier=earlier, keep=keep, show=show, quick=quick)


def run_plan(
    plan: Plan,
    report: Report,
    *,
    earlier: Mapping[str, Any] | None = None,
    keep: Keep = lambda result: None,
    show: Callable[[float], None] = lambda share: None,
    quick: bool = False,
) -> dict[str, Any]:
    """Run a plan in a temporary folder, one part after the other."""
    if earlier is not None and earlier.get("format") != FORMAT:
        raise RunError(f"the result that is there is not of format {FORMAT!r}: move it away")
    parts: dict[str, Any] = dict((earlier or {}).get("parts", {}))
    estimate = plan.estimate()
    track = Track(sum(estimate.values()), report, show)
    shown = ", ".join(f"{part} {seconds / 60:.0f}" for part, seconds in estimate.items())
    report(f"this takes about {track.total / 60:.0f} minutes: {shown}")

    def put(part: Part, sitting: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        parts[part] = rounded({**found, "about": sitting})
        keep({"format": FORMAT, "parts": dict(parts)})

    failed: list[str] = []
    for part in (part for part in PARTS if part in plan.only):
        report(f"{part}, about {estimate[part] / 60:.0f} minutes")
        hear = partial(put, part, about(seed=plan.seed, quick=quick, same_answer_means=MEANING))
        with tempfile.TemporaryDirectory(prefix="riprap-bench-") as name:
            try:
                hear(_measure(part, plan, Path(name), track, hear, parts))
            except RunError as error:
                # What other parts have found, and this one so far, stays.
                report(f"{part} failed: {error}")
                failed.append(f"{part}: {error}")
    show(1.0)
    if failed:
        raise RunError("; ".join(failed))
    return {"format": FORMAT, "parts": parts}


def _measure(
    part: Part, plan: Plan, folder: Path, track: Track, keep: Keep, parts: Mapping[str, Any]
) -> dict[str, Any]:
    match part:
        case "switch" | "hang" | "ahead":
            return measure_switching(part, plan, folder, track)
        case "cost":
            return measure_cost(plan, folder, track, keep)
        case "quality":
            return measure_quality(plan, folder, track, keep)
        case "values":
            return measure_values(plan, folder, track, keep)
    return measure_model(plan, track, parts)
