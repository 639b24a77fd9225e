"""The four metrics of an operator, from scores of golden and faulty outputs.

Offsets are numbered i, outage durations j, repetitions of a faulty run k, golden runs l, sections of the output t:

    F[i, j, k]   score of a faulty run over the affected tuples of offset i    G[i, l]  the golden runs' over the same
    L[i, k, t]   local score of a faulty run in section t, at one duration     H[l, t]  the golden runs'

    (1)  mean of F over repetitions
    (2)  quality score      Q[i, j] = mean of F[i, j] / mean of G[i]
    (3)  outage impact      C = mean over offsets of Spearman's correlation of durations and Q[i]
    (4)  data dependency    D = standard deviation of Q[i, j*] over offsets; ANOVA of F[i, j*, k] / mean of G[i]
    (5)  local error        E[i, u] = |mean of L[i, t] - mean of H[t]| / mean of H[t], u = t - begin[i]
    (6)  errors so far      N[i, u] = how many of E[i, 1 .. u] exceed the threshold
    (7)  recovery           R[i] = least u with N[i, u] >= p N[i, last];  R the worst over offsets
    (8)  quality impact     I[i] = sum up to R[i] of the squares of errors above the threshold;  I the worst
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from riprap.arrays import Floats

ALPHA = 0.05
THRESHOLD = 0.03
COVERED = 0.9


@dataclass(frozen=True, slots=True)
class Anova:
    """Whether offsets matter: the null hypothesis that they do not is accepted or rejected.

    "constant" is where offsets differ, and repetitions of each come to the very same: there is nothing random to test
    against. Where offsets come to the very same too it is accepted.
    """

    outcome: Literal["accept", "reject", "constant"]
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Dependency:
    """How much the quality depends on which data a fault hits."""

    deviation: float
    anova: Anova


def repeated_quality(faulty: Floats, golden: Floats) -> Floats:
    """Return the quality of every repetition (equations 1 and 2: Q is its mean) of one offset and duration.

    It is unknown where golden runs score 0 and a faulty one does not. Where both score 0, as they do over no tuples at
    all, nothing is lost: it is 1.

    >>> repeated_quality(np.array([1.0, 3.0]), np.array([2.0, 6.0]))
    array([0.25, 0.75])
    """
    right = float(golden.mean()) if len(golden) else math.nan
    return faulty / right if right != 0.0 else np.where(faulty == 0.0, 1.0, math.nan)


def outage_impact(durations: Sequence[float], quality: Floats) -> tuple[float, tuple[float, ...]]:
    """Return C and the correlation of each offset (equation 3).

    Where the quality does not change with the duration at all, the correlation is 0: a longer outage changes nothing.
    An offset whose quality is unknown counts for nothing.

    >>> outage_impact([1, 2, 4], np.array([[0.9, 0.8, 0.3], [1.0, 1.2, 1.1]]))
    (-0.25, (-1.0, 0.5))
    """
    correlations = []
    for scores in quality:
        if np.isnan(scores).any():
            correlations.append(math.nan)
            continue
        constant = bool(np.all(scores == scores[0])) or len(durations) < 2
        correlations.append(0.0 if constant else float(stats.spearmanr(durations, scores).statistic))
    defined = [c for c in correlations if not math.isnan(c)]
    return (float(np.mean(defined)) if defined else math.nan), tuple(correlations)


def data_dependency(quality: Sequence[Floats]) -> Dependency:
    """Return D (equation 4) of the quality of every repetition, offset by offset, at one duration.

    The deviation is that of a sample: of offsets that could have been others. An offset whose quality is unknown counts
    for nothing.
    """
    complete = [each for each in quality if len(each) and not np.isnan(each).any()]
    if not complete:
        return Dependency(math.nan, Anova("constant"))
    deviation = float(np.std([each.mean() for each in complete], ddof=1)) if len(complete) > 1 else 0.0
    return Dependency(deviation, _anova(complete))


def _anova(groups: Sequence[Floats]) -> Anova:
    if len(groups) < 2:
        return Anova("constant")
    if float(np.ptp(np.concatenate(groups))) == 0.0:
        return Anova("accept", 1.0)
    if not any(np.ptp(group) > 0 for group in groups):
        return Anova("constant")
    p = float(stats.f_oneway(*groups).pvalue)
    return Anova("reject" if p < ALPHA else "accept", p)


def local_errors(faulty: Floats, golden: Floats, *, signed: bool = False) -> Floats:
    """Return the error of each section (equation 5); both have sections last, of repetitions or runs.

    A section in which golden runs score nothing has no error if the faulty ones score nothing either, else all of it.
    """
    wrong, right = faulty.mean(axis=0), golden.mean(axis=0)
    error: Floats = np.divide(wrong - right, right, out=np.sign(wrong - right), where=right != 0)
    return error if signed else np.abs(error)


def recover(errors: Floats, *, threshold: float = THRESHOLD, covered: float = COVERED) -> tuple[int, float]:
    """Return the recovery time in sections, and the quality impact, of errors after a fault (equations 6 to 8).

    >>> recover(np.array([0.0, 0.5, 0.0, 0.2, 0.01]))
    (4, 0.29)
    """
    above = np.abs(errors) > threshold
    so_far = np.cumsum(above)
    if not above.any():
        return 0, 0.0
    section = int(np.argmax(so_far >= covered * so_far[-1])) + 1
    squares = np.where(above, errors, 0.0)[:section] ** 2
    return section, round(float(squares.sum()), 12)


def notices(faulty: Floats, golden: Floats) -> bool:
    """Say whether a score notices faults: two-sample Kolmogorov-Smirnov tests, a section each, of which any rejects.

    So few runs that no test could reject are asked whether any section differs at all.
    """
    few, many = sorted((len(faulty), len(golden)))
    if 2 / math.comb(few + many, few) >= ALPHA:
        return bool((faulty != golden[:1]).any())
    return any(
        float(stats.ks_2samp(faulty[:, t], golden[:, t]).pvalue) < ALPHA for t in range(faulty.shape[1])
    )


@dataclass(frozen=True, slots=True)
class QualityLine:
    """Quality as a straight line of the outage in tuples, by least squares; ``share`` of its variance is told by it."""

    start: float
    slope: float
    share: float

    def __str__(self) -> str:
        return f"QS = {self.start:.3g} {'-' if self.slope < 0 else '+'} {abs(self.slope):.3g} x"


def fit_line(lengths: Sequence[float], quality: Floats, *, least: float = 0.8) -> QualityLine | None:
    """Fit a line where outage and quality correlate by at least so much (Spearman), else none.

    >>> str(fit_line([1, 2, 4], np.array([0.9, 0.8, 0.6])))
    'QS = 1 - 0.1 x'
    """
    correlation, _ = outage_impact(lengths, quality[np.newaxis])
    if not abs(correlation) >= least:
        return None
    fit = stats.linregress(lengths, quality)
    return QualityLine(float(fit.intercept), float(fit.slope), float(fit.rvalue) ** 2)
