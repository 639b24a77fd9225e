"""Exact sums over windows, compiled.

A window's sum must be a function of its contents only, so that a recovered window gives the same answer to the last
bit, and a running total of doubles is not: it drifts. Doubles are therefore added into a wide fixed-point number, from
which a tuple that leaves is taken away again without a trace; the sum is that number rounded once, as ``math.fsum``
does. The squares of doubles are added in the same way, so that a variance has no cancellation to fear: the difference
of the sums is taken before it is rounded.

Window ``i`` is rows ``low[i]`` to ``high[i]`` (exclusive), and neither ever moves back: rows come in at one end and go
at the other, once each, so the cost of a tuple does not depend on the window's size.
"""

from __future__ import annotations

import math

import numpy as np

from riprap.machine_code import compiled

# A double is an integer of 53 bits times a power of two from 2**-1074 up: 66 limbs of 32 bits hold any, and two more
# take the carries. Limbs are int64, so 2**31 tuples can be added before a limb could overflow.
_LIMBS = 68
# The same for squares, from 2**-2148 up: limb 2 i holds the square of what limb i of a sum holds.
_SQUARE_LIMBS = 2 * _LIMBS + 2
_LOW = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
_SPECIAL = 0x7FF
# What is counted beside the finite values.
_COUNT, _NAN, _PLUS, _MINUS = 0, 1, 2, 3


@compiled(types=("Array(i8, 1, 'C', True), b1[::1], i8[::1], i8[::1]",))
def double_sums(bits, valid, low, high):  # type: ignore[no-untyped-def]
    """Return each window's exact sum, rounded once, and how many values it has; ``bits`` are those of doubles."""
    sums = np.zeros(len(low), np.float64)
    counts = np.zeros(len(low), np.int64)
    limbs = np.zeros(_LIMBS, np.int64)
    scratch = np.zeros(_LIMBS, np.int64)
    tally = np.zeros(4, np.int64)
    first, last = _LIMBS, -1
    left = right = 0
    for i in range(len(low)):
        if low[i] >= right:
            limbs[first : last + 1] = 0
            tally[:] = 0
            first, last = _LIMBS, -1
            left = right = low[i]
        first, last = _pour(limbs, tally, bits, valid, right, high[i], 1, first, last)
        _pour(limbs, tally, bits, valid, left, low[i], -1, first, last)
        left, right = low[i], high[i]
        counts[i] = tally[_COUNT]
        if tally[_NAN] > 0 or (tally[_PLUS] > 0 and tally[_MINUS] > 0):
            sums[i] = np.nan
        elif tally[_PLUS] > 0:
            sums[i] = np.inf
        elif tally[_MINUS] > 0:
            sums[i] = -np.inf
        elif last >= 0:
            negative = _carry(limbs, scratch, first, last)
            whole, exponent = _leading(scratch, first, last)
            total = math.ldexp(whole, exponent - 1074)
            sums[i] = -total if negative else total
    return sums, counts


@compiled
def central_squares(bits, valid, low, high):  # type: ignore[no-untyped-def]
    """Return what each window's variance is made of: n * sum(x * x) - sum(x) ** 2, exact and rounded once, and n.

    The number is ``whole * 2.0**exponent``, which may be beyond the range of doubles. It is NaN where a value is not
    finite.
    """
    wholes = np.zeros(len(low), np.float64)
    exponents = np.zeros(len(low), np.int64)
    counts = np.zeros(len(low), np.int64)
    limbs = np.zeros(_LIMBS, np.int64)
    scratch = np.zeros(_LIMBS, np.int64)
    squares = np.zeros(_SQUARE_LIMBS, np.int64)
    carried = np.zeros(_SQUARE_LIMBS, np.int64)
    tally = np.zeros(4, np.int64)
    first, last = _LIMBS, -1
    left = right = 0
    for i in range(len(low)):
        if low[i] >= right:
            limbs[first : last + 1] = 0
            squares[2 * first : 2 * last + 2] = 0
            tally[:] = 0
            first, last = _LIMBS, -1
            left = right = low[i]
        first, last = _pour(limbs, tally, bits, valid, right, high[i], 1, first, last)
        _pour(limbs, tally, bits, valid, left, low[i], -1, first, last)
        _pour_squares(squares, bits, valid, right, high[i], 1)
        _pour_squares(squares, bits, valid, left, low[i], -1)
        left, right = low[i], high[i]
        counts[i] = tally[_COUNT]
        if tally[_NAN] + tally[_PLUS] + tally[_MINUS] > 0:
            wholes[i] = np.nan
        elif last >= 0:
            _carry(limbs, scratch, first, last)
            _carry(squares, carried, 2 * first, 2 * last + 1)
            _spread(scratch, carried, tally[_COUNT], first, last)
            wholes[i], exponents[i] = _leading(carried, 2 * first, 2 * last + 1)
            exponents[i] -= 2148
    return wholes, exponents, counts


@compiled
def _pour(limbs, tally, bits, valid, start, stop, sign, first, last):  # type: ignore[no-untyped-def]
    """Add rows (or take them away); return the lowest and the highest limb that may differ from zero."""
    for row in range(start, stop):
        if not valid[row]:
            continue
        tally[_COUNT] += sign
        pattern = bits[row]
        exponent = (pattern >> 52) & _SPECIAL
        if exponent == _SPECIAL:
            if pattern & _FRACTION != 0:
                tally[_NAN] += sign
            else:
                tally[_PLUS if pattern > 0 else _MINUS] += sign
            continue
        whole, position = _parts(pattern, exponent)
        limb = position >> 5
        shift = np.uint64(position & 31)
        step = sign if pattern >= 0 else -sign
        limbs[limb] += step * np.int64((whole << shift) & np.uint64(_LOW))
        limbs[limb + 1] += step * np.int64((whole >> (np.uint64(32) - shift)) & np.uint64(_LOW))
        if shift > 11:
            limbs[limb + 2] += step * np.int64(whole >> (np.uint64(64) - shift))
        first = min(first, limb)
        # One limb above those that it touched takes the carries.
        last = max(last, limb + 3)
    return first, last


@compiled
def _pour_squares(squares, bits, valid, start, stop, sign):  # type: ignore[no-untyped-def]
    """Add the squares of the finite values of rows, or take them away."""
    for row in range(start, stop):
        exponent = (bits[row] >> 52) & _SPECIAL
        if not valid[row] or exponent == _SPECIAL:
            continue
        whole, position = _parts(bits[row], exponent)
        upper, lower = whole >> np.uint64(32), whole & np.uint64(_LOW)
        # The square, of 106 bits, in pieces of 32; the highest one is short.
        piece = lower * lower
        first = piece & np.uint64(_LOW)
        piece = (piece >> np.uint64(32)) + np.uint64(2) * upper * lower
        second = piece & np.uint64(_LOW)
        piece = (piece >> np.uint64(32)) + upper * upper
        third, fourth = piece & np.uint64(_LOW), piece >> np.uint64(32)
        limb = position >> 4
        shift = np.uint64((2 * position) & 31)
        back = np.uint64(32) - shift
        squares[limb] += sign * np.int64((first << shift) & np.uint64(_LOW))
        squares[limb + 1] += sign * np.int64(((second << shift) & np.uint64(_LOW)) | (first >> back))
        squares[limb + 2] += sign * np.int64(((third << shift) & np.uint64(_LOW)) | (second >> back))
        squares[limb + 3] += sign * np.int64(((fourth << shift) & np.uint64(_LOW)) | (third >> back))
        squares[limb + 4] += sign * np.int64(fourth >> back)


@compiled(inline="always")
def _parts(pattern, exponent):  # type: ignore[no-untyped-def]
    """Take a finite double apart: its size is ``whole * 2.0**(position - 1074)``."""
    whole = np.uint64(pattern & _FRACTION)
    if exponent == 0:
        return whole, exponent
    return whole | np.uint64(1 << 52), exponent - 1


@compiled
def _carry(limbs, scratch, first, last):  # type: ignore[no-untyped-def]
    """Write the size of a fixed-point number as limbs of 32 bits; return whether it is negative."""
    carry = np.int64(0)
    for i in range(first, last + 1):
        total = limbs[i] + carry
        scratch[i] = total & _LOW
        carry = total >> 32
    if carry >= 0:
        return False
    carry = np.int64(0)
    for i in range(first, last + 1):
        total = carry - limbs[i]
        scratch[i] = total & _LOW
        carry = total >> 32
    return True


@compiled
def _leading(scratch, first, last):  # type: ignore[no-untyped-def]
    """Round a carried number to 53 bits, half to even: return it as ``whole * 2.0**exponent``."""
    top = last
    while top >= first and scratch[top] == 0:
        top -= 1
    if top < first:
        return 0.0, 0
    head = np.uint64(scratch[top])
    second = np.uint64(scratch[top - 1]) if top - 1 >= first else np.uint64(0)
    third = np.uint64(scratch[top - 2]) if top - 2 >= first else np.uint64(0)
    zeros = np.uint64(0)
    while (head << zeros) & np.uint64(0x80000000) == 0:
        zeros += np.uint64(1)
    word = (head << np.uint64(32)) | second
    word = (word << zeros) | (third >> (np.uint64(32) - zeros))
    rest = (third << zeros) & np.uint64(_LOW)
    i = top - 3
    while rest == 0 and i >= first:
        rest = np.uint64(scratch[i])
        i -= 1
    kept = word >> np.uint64(11)
    cut = word & np.uint64(0x7FF)
    if cut > 0x400 or (cut == 0x400 and (rest != 0 or (kept & np.uint64(1)) == 1)):
        kept += np.uint64(1)
    return np.float64(kept), 32 * top + 31 - np.int64(zeros) - 52


@compiled
def _spread(total, squares, count, first, last):  # type: ignore[no-untyped-def]
    """Turn ``squares`` into count * squares - total * total, which is never negative; all are carried."""
    carry = np.int64(0)
    for i in range(2 * first, 2 * last + 2):
        # A limb of 32 bits times a count below 2**31, and a carry of as much, stay below 2**63.
        product = squares[i] * count + carry
        squares[i] = product & _LOW
        carry = product >> 32
    # What once passed may have left limbs of zeros at either end.
    while last >= first and total[last] == 0:
        last -= 1
    while first <= last and total[first] == 0:
        first += 1
    for i in range(first, last + 1):
        factor = np.uint64(total[i])
        carry = np.int64(0)
        for j in range(first, last + 1):
            product64 = factor * np.uint64(total[j])
            difference = squares[i + j] - np.int64(product64 & np.uint64(_LOW)) + carry
            squares[i + j] = difference & _LOW
            carry = (difference >> 32) - np.int64(product64 >> np.uint64(32))
        j = i + last + 1
        while carry != 0:
            difference = squares[j] + carry
            squares[j] = difference & _LOW
            carry = difference >> 32
            j += 1
