"""Numbers in words: estimates with as many digits as they are good for, times and rates in units that people use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from riprap.model.prediction import Estimate
from riprap.model.sweep import Combination

_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86_400.0), ("years", 31_557_600.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Something that settings may differ in: what it is called, its value, a value in words."""

    name: str
    value: Callable[[Combination], float]
    words: Callable[[float], str]
    unit: str = ""
    rate: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}: one in" if self.rate else f"{self.name}, {self.unit}"

    def tick(self, value: float) -> str:
        """Write a value as a scale has it."""
        return self.words(value).removeprefix("one in ") if self.rate else f"{value:,.6g}"


def duration(seconds: float) -> str:
    """Write a time in the largest unit of which there are two or more.

    >>> duration(5400), duration(3.5), duration(7200)
    ('90 min', '3.5 s', '2 h')
    """
    unit, size = next(((u, s) for u, s in reversed(_UNITS) if seconds >= 1.995 * s), _UNITS[0])
    return f"{seconds / size:.3g} {unit}"


def _one_in(rate: float) -> str:
    return f"one in {duration(1 / rate)}" if rate else "none"


AXES = (
    Axis(
        name="input rate", unit="tuples a second", value=lambda s: s.rate, words=lambda v: f"{v:,.6g} tuples/s"
    ),
    Axis(
        name="crashes of each operator", value=lambda s: s.faults.crash_rate, words=_one_in, rate=True
    ),
    Axis(
        name="corruptions of each operator", value=lambda s: s.faults.corruption_rate, words=_one_in, rate=True
    ),
    Axis(name="recovery", unit="seconds", value=lambda s: s.faults.recovery, words=duration),
    Axis(name="time simulated", unit="seconds", value=lambda s: s.horizon, words=duration),
)  # fmt: skip


def shown(estimate: Estimate, *, percent: bool = False) -> str:
    """Write a mean and half its interval, with two digits of the latter.

    >>> shown(Estimate(0.97929, 0.97566, 0.98292)), shown(Estimate(0.0, 0.0, 0.0))
    ('0.9793 ± 0.0036', '0')
    """
    by, unit = (100.0, " %") if percent else (1.0, "")
    half = (estimate.high - estimate.mean) * by
    digits = digits_of(half)
    mean = number(estimate.mean * by, digits)
    if half == 0:
        return f"{mean}{unit}"
    return f"{mean} ± {f'{half:,.{digits}f}' if digits is not None else '?'}{unit}"


def digits_of(half: float) -> int | None:
    """Return to how many decimals a mean is known, or None if nothing says so."""
    if not math.isfinite(half) or half <= 0:
        return None
    return min(9, max(0, 1 - math.floor(math.log10(half))))


def number(value: float, digits: int | None = None) -> str:
    """Write a number, to so many decimals."""
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def bytes_a_second(value: float | None) -> str:
    """Write what checkpoints take; unknown where the profile does not say how large a tuple is."""
    if not value:
        return "?" if value is None else "none"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}/s"
    return f"{value:.3g} B/s"


def copies(count: int) -> str:
    """Write how many copies of operators there are beyond the first."""
    return f"{count} more {'copy' if count == 1 else 'copies'} of operators" if count else "no more copies"
