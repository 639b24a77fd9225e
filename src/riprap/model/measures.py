"""What is predicted, as figures, tables and words speak of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from riprap.model.number_words import shown
from riprap.model.prediction import Estimate, Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Something that is predicted. ``most`` is the largest value it can have, ``up`` says that more is better."""

    name: str
    note: str
    label: str
    of: Callable[[Prediction], Estimate]
    up: bool = False
    most: float = math.inf
    percent: bool = False

    def bounds(self, estimate: Estimate) -> tuple[float, float] | None:
        """Return the interval without what is impossible, or None if one replication says nothing about it."""
        if not math.isfinite(estimate.high):
            return None
        return max(0.0, estimate.low), min(self.most, estimate.high)

    def words(self, estimate: Estimate) -> str:
        return shown(estimate, percent=self.percent)


MEASURES = (
    Measure(
        name="Availability",
        note="of the time, how much every operator is up and its results are good",
        label="availability",
        of=lambda p: p.availability,
        up=True,
        most=1.0,
    ),
    Measure(
        name="Tainted tuples",
        note="tuples at the sinks that faults have changed, or may have",
        label="tainted tuples",
        of=lambda p: p.tainted_tuples,
    ),
    Measure(
        name="Tainted share",
        note="tainted tuples, of the output of a run without faults",
        label="% of the output",
        of=lambda p: p.share,
        percent=True,
    ),
)
