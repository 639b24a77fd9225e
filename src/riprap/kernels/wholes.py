"""Sums and means of integers and decimals over windows, in 128 bits, compiled.

A number is two words: the low 64 bits, and the high ones with the sign. Windows are as in `sums`.
"""

from __future__ import annotations

import numpy as np

from riprap.machine_code import compiled

_LOW = 0xFFFFFFFF


@compiled(types=("Array(u8, 1, 'C', True), i8[::1], b1[::1], i8[::1], i8[::1]",))
def whole_sums(low_words, high_words, valid, low, high):  # type: ignore[no-untyped-def]
    """Return the words of each window's 128-bit sum, its count, and whether it overflowed."""
    windows = len(low)
    low_sums = np.zeros(windows, np.uint64)
    high_sums = np.zeros(windows, np.int64)
    counts = np.zeros(windows, np.int64)
    overflow = np.zeros(windows, np.bool_)
    a = b = c = d = count = np.int64(0)
    left = right = 0
    for i in range(windows):
        if low[i] >= right:
            a = b = c = d = count = np.int64(0)
            left = right = low[i]
        for end in range(2):
            sign = 1 - 2 * end
            start, stop = (right, high[i]) if end == 0 else (left, low[i])
            for row in range(start, stop):
                if not valid[row]:
                    continue
                count += sign
                a += sign * np.int64(low_words[row] & np.uint64(_LOW))
                b += sign * np.int64(low_words[row] >> np.uint64(32))
                c += sign * (high_words[row] & _LOW)
                d += sign * (high_words[row] >> 32)
        left, right = low[i], high[i]
        counts[i] = count
        second = b + (a >> 32)
        third = c + (second >> 32)
        fourth = d + (third >> 32)
        overflow[i] = fourth < -(1 << 31) or fourth >= (1 << 31)
        low_sums[i] = np.uint64(a & _LOW) | (np.uint64(second & _LOW) << np.uint64(32))
        high_sums[i] = (third & _LOW) | (fourth << 32)
    return low_sums, high_sums, counts, overflow


@compiled
def whole_means(low_words, high_words, counts, factor):  # type: ignore[no-untyped-def]
    """Return the words of 128-bit sums, times a factor, by their counts, rounded half up; and where that overflows.

    Factor and counts are below 2**32, so that a schoolbook division by limbs will do.
    """
    low_means = np.zeros(len(counts), np.uint64)
    high_means = np.zeros(len(counts), np.int64)
    overflow = np.zeros(len(counts), np.bool_)
    limbs = np.zeros(5, np.uint64)
    half, mask = np.uint64(32), np.uint64(_LOW)
    for i in range(len(counts)):
        if counts[i] == 0:
            continue
        low, high = low_words[i], np.uint64(high_words[i])
        if high_words[i] < 0:
            low, high = _negative(low, high)
        limbs[0], limbs[1], limbs[2], limbs[3] = low & mask, low >> half, high & mask, high >> half
        carry = np.uint64(0)
        for j in range(5):
            product = (limbs[j] if j < 4 else np.uint64(0)) * np.uint64(factor) + carry
            limbs[j], carry = product & mask, product >> half
        count = np.uint64(counts[i])
        rest = np.uint64(0)
        for j in range(4, -1, -1):
            dividend = (rest << half) | limbs[j]
            limbs[j], rest = dividend // count, dividend % count
        carry = np.uint64(1 if rest + rest >= count else 0)
        for j in range(5):
            limbs[j] += carry
            limbs[j], carry = limbs[j] & mask, limbs[j] >> half
        low, high = limbs[0] | (limbs[1] << half), limbs[2] | (limbs[3] << half)
        overflow[i] = limbs[4] != 0 or limbs[3] >> np.uint64(31) != 0
        if high_words[i] < 0:
            low, high = _negative(low, high)
        low_means[i], high_means[i] = low, np.int64(high)
    return low_means, high_means, overflow


@compiled(inline="always")
def _negative(low, high):  # type: ignore[no-untyped-def]
    low = ~low + np.uint64(1)
    return low, ~high + np.uint64(1 if low == 0 else 0)
