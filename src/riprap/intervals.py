"""Confidence intervals: by Student's distribution where nothing is known of the values, else by bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from riprap.arrays import Floats


def half_width(values: Floats, confidence: float = 0.95) -> Floats:
    """Return half the confidence interval of the mean of each column, by Student's distribution; of one row, infinity.

    >>> float(half_width(np.array([1.0, 2.0, 3.0])).round(2))
    2.48
    """
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], math.inf)
    quantile = float(stats.t.ppf((1 + confidence) / 2, count - 1))
    return np.asarray(np.std(values, axis=0, ddof=1) / math.sqrt(count) * quantile)


def interval_of(values: Floats) -> tuple[float, float]:
    """Return the confidence interval of a mean, by Student's distribution; of one value, the value itself."""
    middle = float(np.mean(values))
    half = 0.0 if len(values) < 2 or np.ptp(values) == 0.0 else float(half_width(values))
    return middle - half, middle + half


def bootstrap(
    values: Floats,
    of: Callable[..., Any] = np.mean,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the confidence interval of a mean, or of another statistic, by percentiles of a bootstrap.

    It keeps to the bounds that the values have, unlike Student's. Of few values it is narrower than it should be.

    >>> low, high = bootstrap(np.array([0.9, 1.0, 1.0, 1.0]))
    >>> 0.9 < low < high <= 1.0
    True
    """
    drawn = np.random.default_rng(seed).choice(values, (resamples, len(values)))
    low, high = np.quantile(of(drawn, axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    # A mean of the same numbers over and over is rounded.
    return max(float(low), float(values.min())), min(float(high), float(values.max()))
