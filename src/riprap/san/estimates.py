"""What a simulation comes to: means with confidence intervals, and when these are narrow enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from riprap.arrays import Floats
from riprap.intervals import half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How narrow confidence intervals are to be: half of one, relative to its mean, or at least ``absolute``."""

    relative: float = 0.01
    absolute: float = 0.0
    confidence: float = 0.95
    least: int = 100
    most: int = 1_000_000

    def wants(self, values: Floats) -> int:
        """Return how many replications it will take, to judge by those there are; their number if they are enough."""
        count = len(values)
        middle, half = values.mean(axis=0), half_width(values, self.confidence)
        allowed = np.maximum(self.relative * np.abs(middle), self.absolute)
        if (half <= allowed).all():
            return count
        with np.errstate(divide="ignore"):
            factor = float(np.max(np.where(half <= allowed, 0.0, half / allowed))) ** 2
        # Never many more than there are: a first guess of the deviation may be far off.
        return min(self.most, math.ceil(count * min(max(factor * 1.05, 1.1), 8.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEstimate:
    """A reward's mean over replications, with its confidence interval; ``values`` has each replication's."""

    mean: float
    low: float
    high: float
    deviation: float
    confidence: float
    values: Floats = field(repr=False, compare=False)

    @classmethod
    def of(cls, values: Floats, confidence: float = 0.95) -> RewardEstimate:
        """Estimate from the values of replications.

        >>> found = RewardEstimate.of(np.array([1.0, 2.0, 3.0]))
        >>> round(found.mean, 2), round(found.low, 2), round(found.high, 2)
        (2.0, -0.48, 4.48)
        """
        mean = float(values.mean())
        half = float(half_width(values, confidence))
        deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        return cls(
            mean=mean,
            low=mean - half,
            high=mean + half,
            deviation=deviation,
            confidence=confidence,
            values=values,
        )

    def minus(self, other: RewardEstimate) -> RewardEstimate:
        """Estimate the difference to a variant of the net that was simulated with the same seed.

        Both see the same draws, so the interval is narrower than those of the two suggest.
        """
        return RewardEstimate.of(self.values - other.values, self.confidence)

    def __str__(self) -> str:
        return f"{self.mean:.6g} ({self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The outcome of a simulation: an estimate for every reward by name, and what it took."""

    estimates: Mapping[str, RewardEstimate]
    replications: int
    completions: int
    seconds: float
    seed: int

    def __getitem__(self, reward: str) -> RewardEstimate:
        return self.estimates[reward]
