"""Exact sums over sliding windows, compiled.

A window's sum must be a function of its contents only, so that a recovered window gives the same answer to the last
bit, and a running total of doubles is not: it drifts. Doubles are therefore added into a wide fixed-point number, from
which a tuple that leaves is taken away again without a trace; the sum is that number rounded once, as ``math.fsum``
does. The cost of a tuple does not depend on the window's size. Integers and decimals are added as 128 bits.
"""

from __future__ import annotations

import math

import numba
import numpy as np

# A double is an integer of 53 bits times a power of two from 2**-1074 up: 66 limbs of 32 bits hold any, and two more
# take the carries. Limbs are int64, so 2**31 tuples can be added before a limb could overflow.
_LIMBS = 68
_LOW = 0xFFFFFFFF


@numba.njit(cache=True)
def slide_double_sums(values, valid, starts, fresh, size):  # type: ignore[no-untyped-def]
    """Return, at each new row, the exact sum of the window that ends there, and how many values it has."""
    sums = np.zeros(len(values), np.float64)
    counts = np.zeros(len(values), np.int64)
    limbs = np.zeros(_LIMBS, np.int64)
    scratch = np.zeros(_LIMBS, np.int64)
    for key in range(len(starts) - 1):
        limbs[:] = 0
        low, high = _LIMBS, 0
        nans = infinite = minus_infinite = count = 0
        for row in range(starts[key], starts[key + 1]):
            for step in range(2):
                # First the new tuple comes in, then the one that no longer fits goes.
                at = row if step == 0 else row - size
                sign = 1 if step == 0 else -1
                if at < starts[key] or not valid[at]:
                    continue
                value = values[at]
                count += sign
                if np.isnan(value):
                    nans += sign
                elif np.isinf(value):
                    if value > 0:
                        infinite += sign
                    else:
                        minus_infinite += sign
                else:
                    limb = _add(limbs, value, sign)
                    low, high = min(low, limb), max(high, limb + 2)
            counts[row] = count
            if row < fresh[key]:
                continue
            if nans > 0 or (infinite > 0 and minus_infinite > 0):
                sums[row] = np.nan
            elif infinite > 0:
                sums[row] = np.inf
            elif minus_infinite > 0:
                sums[row] = -np.inf
            elif low < _LIMBS:
                sums[row] = _round(limbs, scratch, low, min(high + 1, _LIMBS - 1))
    return sums, counts


@numba.njit(cache=True, inline="always")
def _add(limbs, value, sign):  # type: ignore[no-untyped-def]
    """Add (or take away) a finite double; return the lowest limb it touched."""
    mantissa, exponent = math.frexp(abs(value))
    position = exponent - 53 + 1074
    whole = np.uint64(mantissa * 9007199254740992.0)
    if position < 0:
        # A subnormal: its low bits are zero, so nothing is lost.
        whole >>= np.uint64(-position)
        position = 0
    limb = position >> 5
    shift = np.uint64(position & 31)
    if value < 0:
        sign = -sign
    limbs[limb] += sign * np.int64((whole << shift) & np.uint64(_LOW))
    limbs[limb + 1] += sign * np.int64((whole >> (np.uint64(32) - shift)) & np.uint64(_LOW))
    if shift > 11:
        limbs[limb + 2] += sign * np.int64(whole >> (np.uint64(64) - shift))
    return limb


@numba.njit(cache=True)
def _round(limbs, scratch, low, high):  # type: ignore[no-untyped-def]
    """Round the fixed-point number to the nearest double, half to even."""
    carry = np.int64(0)
    for i in range(low, high + 1):
        total = limbs[i] + carry
        scratch[i] = total & _LOW
        carry = total >> 32
    negative = carry < 0
    if negative:
        carry = np.int64(0)
        for i in range(low, high + 1):
            total = -limbs[i] + carry
            scratch[i] = total & _LOW
            carry = total >> 32
    top = high
    while top >= low and scratch[top] == 0:
        top -= 1
    if top < low:
        return 0.0
    first = np.uint64(scratch[top])
    second = np.uint64(scratch[top - 1]) if top - 1 >= low else np.uint64(0)
    third = np.uint64(scratch[top - 2]) if top - 2 >= low else np.uint64(0)
    zeros = np.uint64(0)
    while (first << zeros) & np.uint64(0x80000000) == 0:
        zeros += np.uint64(1)
    word = (first << np.uint64(32)) | second
    word = (word << zeros) | (third >> (np.uint64(32) - zeros))
    rest = (third << zeros) & np.uint64(_LOW)
    i = top - 3
    while rest == 0 and i >= low:
        rest = np.uint64(scratch[i])
        i -= 1
    kept = word >> np.uint64(11)
    cut = word & np.uint64(0x7FF)
    if cut > 0x400 or (cut == 0x400 and (rest != 0 or (kept & np.uint64(1)) == 1)):
        kept += np.uint64(1)
    result = math.ldexp(np.float64(kept), 32 * top + 31 - np.int64(zeros) - 52 - 1074)
    return -result if negative else result


@numba.njit(cache=True)
def slide_whole_sums(low_words, high_words, valid, starts, fresh, size):  # type: ignore[no-untyped-def]
    """Return, at each new row, the 128-bit sum of the window that ends there, its count, and where it overflowed."""
    rows = len(low_words)
    low_sums = np.zeros(rows, np.uint64)
    high_sums = np.zeros(rows, np.int64)
    counts = np.zeros(rows, np.int64)
    overflow = np.zeros(rows, np.bool_)
    for key in range(len(starts) - 1):
        a = b = c = d = count = np.int64(0)
        for row in range(starts[key], starts[key + 1]):
            for step in range(2):
                at = row if step == 0 else row - size
                sign = 1 if step == 0 else -1
                if at < starts[key] or not valid[at]:
                    continue
                count += sign
                a += sign * np.int64(low_words[at] & np.uint64(_LOW))
                b += sign * np.int64(low_words[at] >> np.uint64(32))
                c += sign * (high_words[at] & _LOW)
                d += sign * (high_words[at] >> 32)
            counts[row] = count
            if row < fresh[key]:
                continue
            second = b + (a >> 32)
            third = c + (second >> 32)
            fourth = d + (third >> 32)
            overflow[row] = fourth < -(1 << 31) or fourth >= (1 << 31)
            low_sums[row] = np.uint64(a & _LOW) | (np.uint64(second & _LOW) << np.uint64(32))
            high_sums[row] = (third & _LOW) | (fourth << 32)
    return low_sums, high_sums, counts, overflow
