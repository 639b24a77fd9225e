"""The least and greatest values of windows, and how values of any type are put in order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.machine_code import compiled

_LONG_DIGITS = 18  # a decimal of this many digits fits 64 bits


def order_of(values: pa.Array) -> Ints:
    """Map values to integers that compare alike: NaN is greatest, -0.0 equals 0.0, nulls are anywhere."""
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.int64)
        floats: Ints = np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
        return floats
    if pa.types.is_decimal(kind) and kind.precision <= _LONG_DIGITS:
        return decimal_words(values)[0].view(np.int64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        ints = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        ints = values.cast(pa.int32()).cast(pa.int64())
    else:
        ints = pc.rank(values, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    order: Ints = ints.fill_null(0).to_numpy(zero_copy_only=False)
    return order


def decimal_words(values: pa.Array) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return decimals as the low and high 64 bits of their unscaled integers."""
    words = np.frombuffer(values.buffers()[1], np.uint64)
    words = words[2 * values.offset : 2 * (values.offset + len(values))]
    return words[::2].copy(), words[1::2].copy().view(np.int64)


@compiled(
    types=(
        "i8[::1], b1[::1], i8[::1], i8[::1]",
        "Array(i8, 1, 'C', True), b1[::1], i8[::1], i8[::1]",
    )
)
def greatest_rows(order, valid, low, high):  # type: ignore[no-untyped-def]
    """Return the row of each window's greatest valid value, the first of equal ones; -1 where there is none.

    The queue holds the rows that may still become the greatest: each one's value exceeds all that came after it.
    """
    result = np.empty(len(low), np.int64)
    queue = np.empty(len(order), np.int64)
    front = back = right = 0
    for i in range(len(low)):
        for row in range(max(low[i], right), high[i]):
            if valid[row]:
                while back > front and order[queue[back - 1]] < order[row]:
                    back -= 1
                queue[back] = row
                back += 1
        right = high[i]
        while back > front and queue[front] < low[i]:
            front += 1
        result[i] = queue[front] if back > front else -1
    return result
