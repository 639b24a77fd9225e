"""What crashes did to the quality of predictions: by how much each lot is off, and how that is spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from riprap_bench.wafer_outage import deviations, root_mean_square
from riprap_bench.wafer_trial import SCENARIOS, Scenario, Trial, Wafers

Errors = list[float]


def errors_of(trial: Trial, wafers: Wafers, golden: Mapping[int, float]) -> Errors:
    """Return by how much each lot is off from the failure on, in lots that both runs have."""
    first = wafers.rows[trial.outage.crash]["lot"]
    return list(deviations(golden, trial.lots, first).values())


def pairs_of(trials: Sequence[Trial]) -> list[tuple[Trial, Trial]]:
    """Return the trials of each point, that with a checkpoint first."""
    found = {(trial.point.number, trial.scenario): trial for trial in trials}
    numbers = sorted({number for number, _ in found})
    return [(found[number, SCENARIOS[0]], found[number, SCENARIOS[1]]) for number in numbers]


def summarise(trials: Sequence[Trial], errors: Sequence[Errors]) -> dict[str, Any]:
    """Sum up the trials of a scenario; each lot of each run counts alike."""
    sizes = [abs(error) for each in errors for error in each]
    ages = [trial.age for trial in trials if trial.age is not None]
    return {
        "runs": len(trials),
        "lots": len(sizes),
        "rmse": root_mean_square(sizes),
        "worst": max(sizes, default=0.0),
        "median": median(sizes) if sizes else 0.0,
        "wafers_lost": _spread([trial.lost for trial in trials]),
        "seconds_down": _spread([trial.seconds for trial in trials]),
        "checkpoint_age_s": _spread(ages) if ages else None,
        "without_checkpoint_yet": sum(t.outage.saved is None for t in trials),
    }


def compare(
    pairs: Sequence[tuple[Trial, Trial]], errors: Mapping[tuple[int, Scenario], Errors]
) -> dict[str, Any]:
    """Say in how many runs the checkpoint helped, and how alike the two crashes of each point were."""
    better = [
        root_mean_square(errors[a.point.number, a.scenario])
        < root_mean_square(errors[b.point.number, b.scenario])
        for a, b in pairs
    ]
    return {
        "points": len(pairs),
        "helped": sum(better),
        "crash_apart_wafers": _spread([abs(a.outage.crash - b.outage.crash) for a, b in pairs]),
        "back_apart_wafers": _spread([abs(a.outage.back - b.outage.back) for a, b in pairs]),
    }


def distribution(errors: Sequence[float], steps: int = 100) -> Errors:
    """Return how large the errors are that no more than 0, 1, ... 100% of all exceed from below.

    >>> distribution([-4.0, 1.0, 2.0, 3.0], steps=4)
    [1.0, 1.0, 2.0, 3.0, 4.0]
    """
    sizes = sorted(abs(error) for error in errors)
    last = len(sizes) - 1
    return (
        [sizes[max(0, -(-step * len(sizes) // steps) - 1)] for step in range(steps + 1)] if last >= 0 else []
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "least": min(values), "greatest": max(values)}
