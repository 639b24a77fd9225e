"""Sums of windows are exact: the doubles' sum rounded once, whatever came and went before."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracle import exact_sum

from riprap.kernels.sums import central_squares, double_sums
from riprap.kernels.wholes import whole_means, whole_sums

Extents = list[tuple[int, int]]


@st.composite
def extents(draw: st.DrawFn, rows: int) -> Extents:
    """Draw windows over rows: sliding, side by side, or any whose ends only move forward."""
    if rows == 0:
        return []
    match draw(st.sampled_from(["sliding", "tumbling", "any"])):
        case "sliding":
            return sliding(rows, draw(st.integers(1, rows)))
        case "tumbling":
            size = draw(st.integers(1, rows))
            return [(low, min(low + size, rows)) for low in range(0, rows, size)]
    row = st.integers(0, rows - 1)
    pairs = draw(st.lists(st.tuples(row, row), min_size=rows // 2, max_size=2 * rows))
    lows, highs = (sorted(side) for side in zip(*pairs, strict=True)) if pairs else ([], [])
    return [(low, max(low, high) + 1) for low, high in zip(lows, highs, strict=True)]


def sliding(rows: int, size: int) -> Extents:
    """The newest rows at each row."""
    return [(max(0, end - size), end) for end in range(1, rows + 1)]


def ends(windows: Extents) -> tuple[np.ndarray, np.ndarray]:
    low, high = zip(*windows, strict=True) if windows else ((), ())
    return np.array(low, np.int64), np.array(high, np.int64)


def columns(values: Sequence[float | None]) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.array([0.0 if v is None else v for v in values], np.float64)
    return numbers.view(np.int64), np.array([v is not None for v in values], bool)


def sums(values: Sequence[float | None], windows: Extents) -> list[float | None]:
    totals, counts = double_sums(*columns(values), *ends(windows))
    return [float(s) if n else None for s, n in zip(totals, counts, strict=True)]


def there(values: Sequence[Any], windows: Extents) -> list[list[Any]]:
    return [[v for v in values[low:high] if v is not None] for low, high in windows]


def wanted(values: Sequence[float | None], windows: Extents) -> list[float | None]:
    return [exact_sum(window) if window else None for window in there(values, windows)]


def bits(values: Sequence[float | None]) -> list[bytes | str | None]:
    """Compare to the last bit, but for the sign of NaN and of nought."""
    return [None if v is None else "NaN" if math.isnan(v) else struct.pack(">d", v + 0.0) for v in values]


def from_bits(pattern: int) -> float:
    value: float = struct.unpack(">d", pattern.to_bytes(8))[0]
    return value


ANY_FINITE = st.integers(0, 2**64 - 1).map(from_bits).filter(math.isfinite)
CANCELLING = st.sampled_from(
    [1e308, -1e308, 1.7976931348623157e308, 2.0**1023, -(2.0**1023), 1.0, -1.0, 1e-300]
)
TIES = st.sampled_from([1.0, 2.0**-53, 2.0**-54, 2.0**-106, -(2.0**-53), -(2.0**-54), 2.0**53, -1.0, 3.0])
SUBNORMAL = st.integers(-(2**54), 2**54).map(lambda n: n * 5e-324)
WILD = ANY_FINITE | CANCELLING | TIES | SUBNORMAL
ODD = st.sampled_from([None, math.nan, math.inf, -math.inf])


@settings(max_examples=300, deadline=None)
@given(values=st.lists(WILD, min_size=20, max_size=60) | st.lists(WILD), data=st.data())
@example(values=[1e308, 1e308, -1e308, -1e308], data=None)
@example(values=[1.0, 2.0**-53, 2.0**-106], data=None)
@example(values=[2.0**53, 1.0, 1.0, -(2.0**53)], data=None)
@example(values=[-5e-324, 2.2250738585072014e-308], data=None)
def test_a_sum_of_doubles_is_rounded_once(values: list[float], data: st.DataObject | None) -> None:
    windows = data.draw(extents(len(values))) if data else sliding(len(values), 4)

    assert bits(sums(values, windows)) == bits(wanted(values, windows))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), values=st.lists(WILD | ODD, min_size=10, max_size=40))
def test_nan_infinities_and_nulls_leave_no_trace_when_they_leave(
    data: st.DataObject, values: list[float | None]
) -> None:
    windows = data.draw(extents(len(values)))

    assert bits(sums(values, windows)) == bits(wanted(values, windows))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 200))
def test_long_runs_agree_with_fsum(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    values = (random.standard_normal(400) * 10.0 ** random.integers(-300, 300, 400)).tolist()
    windows = sliding(400, size)

    assert sums(values, windows) == [math.fsum(values[low:high]) for low, high in windows]


def test_the_sum_depends_on_the_window_alone() -> None:
    window = [0.1, 0.2, 0.3, 1e-17]

    fresh = sums(window, [(0, 4)])[-1]
    travelled = sums([1e300, -7.7, math.nan, 3e-310, *window], sliding(8, 4))[-1]

    assert fresh == travelled == math.fsum(window)


def test_keys_do_not_leak_into_each_other() -> None:
    values = [math.nan, 1e308, 1.0, 2.0]

    assert bits(sums(values, [(0, 1), (0, 2), (2, 3), (2, 4)])) == bits([math.nan, math.nan, 1.0, 3.0])


@pytest.mark.parametrize("size", [1, 2, 7, 200])
def test_no_values_make_no_sum(size: int) -> None:
    assert sums([None, None, None], sliding(3, size)) == [None, None, None]
    assert sums([], []) == []


def rounded(number: Fraction) -> Fraction:
    """Round a number to 53 binary digits, half to even, whatever its exponent."""
    if number == 0:
        return number
    shift = number.numerator.bit_length() - number.denominator.bit_length() - 53
    unit = Fraction(2) ** shift
    while number / unit >= 2**53:
        unit *= 2
    while number / unit < 2**52:
        unit /= 2
    return round(number / unit) * unit


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    values=st.sampled_from(
        [WILD, WILD | ODD, st.floats(1e8, 1e8 + 1), st.sampled_from([1e16, 1e16 + 2, -1e16])]
    ).flatmap(lambda some: st.lists(some, min_size=5, max_size=25)),
)
def test_the_squares_about_the_mean_are_rounded_once(data: st.DataObject, values: list[float | None]) -> None:
    windows = data.draw(extents(len(values)))

    wholes, exponents, counts = central_squares(*columns(values), *ends(windows))

    for i, window in enumerate(there(values, windows)):
        assert counts[i] == len(window)
        if all(map(math.isfinite, window)):
            x = [Fraction(v) for v in window]
            exact = len(x) * sum(v * v for v in x) - sum(x) ** 2
            assert Fraction(float(wholes[i])) * Fraction(2) ** int(exponents[i]) == rounded(Fraction(exact))
        else:
            assert math.isnan(wholes[i])


WIDE = st.integers(-(2**127), 2**127 - 1) | st.sampled_from([2**127 - 1, -(2**127), 2**64, -1, 0])


def words(values: Sequence[int | None]) -> tuple[np.ndarray, np.ndarray]:
    halves = [divmod(0 if v is None else v % 2**128, 2**64) for v in values]
    low = np.array([half for _, half in halves], np.uint64)
    return low, np.array([half for half, _ in halves], np.uint64).view(np.int64)


def whole(low: Any, high: Any) -> int:
    return int(high) << 64 | int(low)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), values=st.lists(st.none() | WIDE, min_size=5, max_size=30))
def test_whole_sums_are_exact_in_128_bits_or_flagged(data: st.DataObject, values: list[int | None]) -> None:
    windows = data.draw(extents(len(values)))
    valid = np.array([v is not None for v in values], bool)

    lows, highs, counts, overflow = whole_sums(*words(values), valid, *ends(windows))

    for i, window in enumerate(there(values, windows)):
        assert counts[i] == len(window)
        assert overflow[i] == (not -(2**127) <= sum(window) < 2**127)
        assert whole(lows[i], highs[i]) % 2**128 == sum(window) % 2**128


@settings(max_examples=200, deadline=None)
@given(
    totals=st.lists(WIDE | st.integers(-(10**6), 10**6)),
    data=st.data(),
    factor=st.sampled_from([1, 10, 10_000]),
)
def test_whole_means_round_half_away_from_nought(totals: list[int], data: st.DataObject, factor: int) -> None:
    number = st.integers(1, 2**32 - 1) | st.integers(1, 1000)
    counts = data.draw(st.lists(number, min_size=len(totals), max_size=len(totals)))

    lows, highs, overflow = whole_means(*words(totals), np.array(counts, np.int64), factor)

    for i, (total, count) in enumerate(zip(totals, counts, strict=True)):
        size = (2 * abs(total) * factor + count) // (2 * count)
        mean = -size if total < 0 else size
        assert overflow[i] == (size >= 2**127)
        assert overflow[i] or whole(lows[i], highs[i]) == mean


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shift", [0, 10, 11, 12, 31, 32, 2**10 - 53])
def test_carries_of_many_large_values_have_room(shift: int, sign: int) -> None:
    rows = 20_000
    values = np.full(rows, sign * math.ldexp(2**53 - 1, shift - 53))
    values[::2] *= -1
    low, high = np.array([0, 0]), np.array([1, rows])
    patterns, valid = values.view(np.int64), np.ones(rows, bool)

    total, _ = double_sums(np.abs(values).view(np.int64), valid, low, high)
    wholes, exponents, _ = central_squares(patterns, valid, low, high)

    size = Fraction(2**53 - 1) * Fraction(2) ** (shift - 53)
    assert total[1] == exact_sum([float(size)] * rows)
    assert Fraction(float(wholes[1])) * Fraction(2) ** int(exponents[1]) == rounded(rows * rows * size**2)
