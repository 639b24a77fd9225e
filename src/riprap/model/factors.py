"""The factors of Z = min(alpha S + beta L, S) that are closest to what was observed, and how close that is."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from riprap.arrays import Floats


def fit_factors(lost: Floats, observed: Floats, state: float) -> tuple[float, float]:
    """Find the alpha and beta, neither below zero, for which min(alpha S + beta L, S) is closest to what was observed.

    >>> lost = np.array([100.0, 200.0, 400.0, 800.0])
    >>> fit_factors(lost, np.minimum(0.1 * 1000 + 1.5 * lost, 1000), 1000)
    (0.1, 1.5)
    """
    if state <= 0:
        return 0.0, 0.0
    share, part = observed / state, lost / state

    def away(factors: Floats) -> Floats:
        distances: Floats = np.minimum(factors[0] + factors[1] * part, 1.0) - share
        return distances

    # Beyond the cap nothing tells the slope: begin with one that reaches it late.
    slope = float(np.median(share[part > 0] / part[part > 0])) if (part > 0).any() else 0.0
    fit = least_squares(
        away, x0=[0.01, max(slope, 1e-6)], bounds=([0, 0], [1, np.inf]), xtol=1e-14, ftol=1e-14
    )
    alpha, beta = (float(f"{value:.4g}") if value > 1e-9 else 0.0 for value in fit.x)
    return alpha, beta


def explained(observed: Floats, fitted: Floats) -> float:
    """Return the share of the variance of what was observed that is explained (R squared)."""
    spread = float(((observed - observed.mean()) ** 2).sum())
    left = float(((observed - fitted) ** 2).sum())
    if spread <= 1e-12 * max(1.0, float((observed**2).sum())):
        return 1.0 if left <= 1e-6 * max(1.0, float((observed**2).sum())) else 0.0
    return 1.0 - left / spread
