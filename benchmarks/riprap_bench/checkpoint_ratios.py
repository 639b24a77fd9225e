"""From runs to figures: pairs of neighbours, medians with their confidence interval, bytes against what entered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any, Protocol, TypeVar

import numpy as np

from riprap.errors import RunError
from riprap.intervals import bootstrap
from riprap_bench.checkpoint_runs import Measured, Taken
from riprap_bench.measuring import middle

LEAST = 0.98
# The smallest window every second: most of it is new each time.
LEAST_SMALLEST = 0.95
MOST_BYTES = 1.5
_DRAWS = 4000
_SEED = 1


class Compared(Protocol):
    """A run, protected or not, beside others."""

    @property
    def policy(self) -> Any: ...
    @property
    def answer(self) -> Any: ...
    @property
    def rate(self) -> float: ...
    @property
    def cpu(self) -> float: ...
    @property
    def busy(self) -> float: ...


AnyRun = TypeVar("AnyRun", bound=Compared)


def pair_up(runs: Sequence[AnyRun]) -> list[tuple[AnyRun, list[AnyRun]]]:
    """Put each protected run of a round together with the unprotected ones nearest before and after it.

    The answers must be the same.
    """
    plain = [n for n, run in enumerate(runs) if run.policy is None]
    pairs = []
    for n, run in enumerate(runs):
        near = [
            max((p for p in plain if p < n), default=None),
            min((p for p in plain if p > n), default=None),
        ]
        beside = [runs[p] for p in near if p is not None]
        for other in beside:
            if other.answer != run.answer:
                raise RunError(
                    f"with {run.policy} the run puts out {run.answer}, and without it {other.answer}"
                )
        if run.policy is not None:
            pairs.append((run, beside))
    return pairs


def against(run: Compared, beside: Sequence[Compared]) -> dict[str, float]:
    """Compare a protected run with unprotected ones: 1 is as good, less is worse."""
    return {
        "throughput": run.rate / mean(p.rate for p in beside),
        "cpu": mean(p.cpu for p in beside) / run.cpu,
        "busy": mean(p.busy for p in beside) / run.busy,
    }


def median_of(ratios: Sequence[float]) -> dict[str, Any]:
    """Return the median of some ratios, with its 95% confidence interval by bootstrap.

    >>> median_of([1.0, 1.0, 1.0])
    {'median': 1.0, 'interval': [1.0, 1.0], 'pairs': 3}
    """
    values = np.asarray(ratios, float)
    low, high = bootstrap(values, np.median, resamples=_DRAWS, seed=_SEED)
    return {"median": middle(list(ratios)), "interval": [low, high], "pairs": len(values)}


def bytes_written(checkpoints: Iterable[Taken], tuple_bytes: float) -> float | None:
    """Return what was written for each byte of the tuples that entered, after the first checkpoint of each run.

    The first one saves what filled the window.
    """
    listed = list(checkpoints)
    entered = sum(c.entered for c in listed) * tuple_bytes
    return sum(c.written for c in listed) / entered if entered else None


def line_of(
    measured: Sequence[tuple[Measured, Mapping[str, float]]], *, tuple_bytes: float
) -> dict[str, Any]:
    """Sum up the runs of one configuration, each with how it compares."""
    runs = [run for run, _ in measured]
    later = [c for run in runs for c in run.checkpoints[1:]]
    return {
        **{name: median_of([ratios[name] for _, ratios in measured]) for name in measured[0][1]},
        "tuples_per_s": middle([run.rate for run in runs]),
        "checkpoints": sum(len(run.checkpoints) for run in runs),
        "saving": middle([run.saving / run.cpu for run in runs]),
        "missed": sum(run.missed for run in runs),
        "failed": sum(run.failed for run in runs),
        "seconds_a_checkpoint": middle([c.seconds for c in later]) if later else None,
        "slowest_checkpoint": max((c.seconds for run in runs for c in run.checkpoints), default=None),
        "bytes_a_checkpoint": middle([float(c.written) for c in later]) if later else None,
        "tuples_a_checkpoint": middle([float(c.entered) for c in later]) if later else None,
        "bytes": bytes_written(later, tuple_bytes),
    }


def bars_of(line: Mapping[str, Any], *, least: float, meet_intervals: bool = False) -> dict[str, bool]:
    """Say which bars a configuration meets; what could not be told is not met."""
    met = {
        "throughput": line["throughput"]["median"] >= least,
        "cpu": line["cpu"]["median"] >= least,
        "bytes": line["bytes"] is not None and line["bytes"] <= MOST_BYTES,
    }
    return {**met, **({"intervals": line["missed"] == 0} if meet_intervals else {})}
