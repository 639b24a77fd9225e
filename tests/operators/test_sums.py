"""Sliding sums are exact: the doubles' sum rounded once, whatever came and went before."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracle import exact_sum

from riprap.operators.sums import slide_double_sums, slide_whole_sums


def slide(values: list[float | None], size: int, old: int = 0) -> list[float | None]:
    """Slide over one key's values, the first ``old`` of which were there before; give the new rows' sums."""
    numbers = np.array([0.0 if v is None else v for v in values], np.float64)
    valid = np.array([v is not None for v in values], bool)
    starts, fresh = np.array([0, len(values)]), np.array([old])
    sums, counts = slide_double_sums(numbers, valid, starts, fresh, size)
    return [float(s) if n else None for s, n in zip(sums[old:], counts[old:], strict=True)]


def wanted(values: list[float | None], size: int, old: int = 0) -> list[float | None]:
    windows = [values[max(0, end - size) : end] for end in range(old + 1, len(values) + 1)]
    there = [[v for v in window if v is not None] for window in windows]
    return [exact_sum(window) if window else None for window in there]


def bits(values: list[float | None]) -> list[bytes | str | None]:
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


@settings(max_examples=300, deadline=None)
@given(values=st.lists(WILD, min_size=1, max_size=60), size=st.integers(1, 200), data=st.data())
@example(values=[1e308, 1e308, -1e308, -1e308], size=3, data=None)
@example(values=[1.0, 2.0**-53, 2.0**-106], size=3, data=None)
@example(values=[2.0**53, 1.0, 1.0, -(2.0**53)], size=4, data=None)
@example(values=[-5e-324, 2.2250738585072014e-308], size=2, data=None)
def test_a_sum_of_doubles_is_rounded_once(values: list[float], size: int, data: st.DataObject | None) -> None:
    old = data.draw(st.integers(0, len(values))) if data else 0

    assert bits(slide(values, size, old)) == bits(wanted(values, size, old))


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(WILD | st.sampled_from([None, math.nan, math.inf, -math.inf]), max_size=40),
    size=st.integers(1, 12),
)
def test_nan_infinities_and_nulls_leave_no_trace_when_they_leave(
    values: list[float | None], size: int
) -> None:
    assert bits(slide(values, size)) == bits(wanted(values, size))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 200))
def test_long_runs_agree_with_fsum(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    values = (random.standard_normal(400) * 10.0 ** random.integers(-300, 300, 400)).tolist()

    sums = slide(values, size)

    assert sums == [math.fsum(values[max(0, end - size) : end]) for end in range(1, 401)]


def test_the_sum_depends_on_the_window_alone() -> None:
    window = [0.1, 0.2, 0.3, 1e-17]

    fresh = slide(window, 4)[-1]
    travelled = slide([1e300, -7.7, math.nan, 3e-310, *window], 4)[-1]

    assert fresh == travelled == math.fsum(window)


def test_keys_do_not_leak_into_each_other() -> None:
    values = np.array([math.nan, 1e308, 1.0, 2.0])

    sums, counts = slide_double_sums(values, np.ones(4, bool), np.array([0, 2, 4]), np.array([0, 2]), 2)

    assert bits(sums.tolist()) == bits([math.nan, math.nan, 1.0, 3.0])
    assert counts.tolist() == [1, 2, 1, 2]


WIDE = st.integers(-(2**127), 2**127 - 1) | st.sampled_from([2**127 - 1, -(2**127), 2**64, -1, 0])


@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.none() | WIDE, max_size=30), size=st.integers(1, 10))
def test_whole_sums_are_exact_in_128_bits_or_flagged(values: list[int | None], size: int) -> None:
    words = [0 if v is None else v % 2**128 for v in values]
    low = np.array([w % 2**64 for w in words], np.uint64)
    high = np.array([w >> 64 for w in words], np.uint64).view(np.int64)
    valid = np.array([v is not None for v in values], bool)

    lows, highs, counts, overflow = slide_whole_sums(
        low, high, valid, np.array([0, len(values)]), np.array([0]), size
    )

    for end in range(len(values)):
        window = [v for v in values[max(0, end + 1 - size) : end + 1] if v is not None]
        assert counts[end] == len(window)
        assert overflow[end] == (not -(2**127) <= sum(window) < 2**127)
        assert (int(highs[end]) << 64 | int(lows[end])) % 2**128 == sum(window) % 2**128


@pytest.mark.parametrize("size", [1, 2, 7, 200])
def test_no_values_make_no_sum(size: int) -> None:
    assert slide([None, None, None], size) == [None, None, None]
    assert slide([], size) == []
