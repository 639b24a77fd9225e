"""The aggregate functions over windows of any kind.

A *history* is the tuples of many keys, key by key in consecutive rows. Window ``i`` is its rows ``low[i]`` to
``high[i]`` (exclusive), never none; neither bound ever moves back. A result depends on its window's contents alone, to
the last bit, whatever came before and wherever the window stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Bools, Ints, Words
from riprap.expressions import AggregateCall, EvaluationError, decimals, type_name
from riprap.kernels.extremes import decimal_words, greatest_rows, order_of
from riprap.kernels.quantiles import distinct_counts, percentiles
from riprap.kernels.sums import central_squares, double_sums
from riprap.kernels.wholes import whole_means, whole_sums
from riprap.state.windows import ranges

_LISTED_AT_ONCE = 4_000_000
_LONGEST = 2**31 - 1  # the offsets of a list array are of 32 bits
_DIGITS = 38


def compute_call(call: AggregateCall, values: Sequence[pa.Array], low: Ints, high: Ints) -> pa.Array:
    """Return an aggregate's result for each window, from the history of each of its arguments.

    >>> from riprap.expressions import Scope, parse_aggregates
    >>> made = parse_aggregates("max(x) as top", Scope.of(pa.schema({"x": pa.int64()})))
    >>> compute_call(made.calls[0], [pa.array([3, 1, 2])], np.array([0, 1]), np.array([2, 3])).to_pylist()
    [3, 2]
    """
    if len(low) == 0:
        return pa.array([], call.type)
    if call.user is not None:
        return _by_user(call, values, low, high)
    if not values:
        return pa.array(high - low)
    (column,) = values
    match call.function:
        case "count":
            return _count(call, column, low, high)
        case "sum" | "avg":
            return _sum_or_mean(call, column, low, high)
        case "first":
            return column.take(pa.array(low))
        case "last":
            return column.take(pa.array(high - 1))
        case "min" | "max":
            order = order_of(column)
            rows = greatest_rows(order if call.function == "max" else ~order, _valid(column), low, high)
            return column.take(pa.array(rows, mask=rows < 0))
        case "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop":
            return _spread(call, column, low, high)
        case "percentile":
            numbers, valid = _doubles(column), _valid(column)
            results, counts = percentiles(order_of(column), numbers, valid, low, high, call.fraction)
            return pa.array(results, mask=counts == 0)
        case "collect_list":
            return _collect(call, column, low, high)
    raise AssertionError(f"unknown aggregate {call.function}")


def _count(call: AggregateCall, column: pa.Array, low: Ints, high: Ints) -> pa.Array:
    if not call.distinct:
        if column.null_count == 0:
            return pa.array(high - low)
        seen = _seen(column)
        return pa.array(seen[high] - seen[low])
    # Arrow tells NaNs of different bits apart, and -0.0 from 0.0.
    floating = pa.types.is_floating(column.type)
    encoded = (pa.array(order_of(column)) if floating else column).dictionary_encode()
    codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    if floating and column.null_count:
        codes = np.where(_valid(column), codes, -1)
    return pa.array(distinct_counts(codes, len(encoded.dictionary), low, high))


def _sum_or_mean(call: AggregateCall, column: pa.Array, low: Ints, high: Ints) -> pa.Array:
    valid = _valid(column)
    whole = pa.types.is_integer(column.type)
    if pa.types.is_floating(column.type) or (whole and call.function == "avg"):
        sums, counts = double_sums(_doubles(column).view(np.int64), valid, low, high)
        if call.function == "avg":
            sums = sums / np.maximum(counts, 1)
        return pa.array(sums, mask=counts == 0)
    if whole:
        numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        lower, upper, counts, overflow = whole_sums(numbers.view(np.uint64), numbers >> 63, valid, low, high)
        sums = lower.view(np.int64)
        _refuse(call, overflow | (upper != sums >> 63))
        return pa.array(sums, mask=counts == 0)
    lower, upper, counts, overflow = whole_sums(*decimal_words(column), valid, low, high)
    if call.function == "avg":
        _refuse(call, overflow | _longer_than(_DIGITS, lower, upper))
        factor = 10 ** (call.type.scale - column.type.scale)
        lower, upper, overflow = whole_means(lower, upper, counts, factor)
    _refuse(call, overflow | _longer_than(call.type.precision, lower, upper))
    words = np.column_stack([lower, upper.view(np.uint64)]).ravel()
    present = pa.array(counts > 0).buffers()[1]
    return pa.Array.from_buffers(call.type, len(low), [present, pa.py_buffer(words)])


def _longer_than(digits: int, lower: Words, upper: Ints) -> Bools:
    """Say which integers of two words have more decimal digits than that."""
    most = 10**digits - 1
    above, below = ((bound >> 64, np.uint64(bound & (2**64 - 1))) for bound in (most, -most))
    over: Bools = (upper > above[0]) | ((upper == above[0]) & (lower > above[1]))
    under: Bools = (upper < below[0]) | ((upper == below[0]) & (lower < below[1]))
    return over | under


def _refuse(call: AggregateCall, overflow: Bools) -> None:
    if overflow.any():
        raise EvaluationError(call.sql, f"{type_name(call.type)} overflow")


def _spread(call: AggregateCall, column: pa.Array, low: Ints, high: Ints) -> pa.Array:
    """Compute a variance or a standard deviation: of a sample, it needs two values."""
    wholes, exponents, counts = central_squares(_doubles(column).view(np.int64), _valid(column), low, high)
    sample = call.function.endswith("samp")
    divisor = counts.astype(np.float64) * (counts - 1 if sample else counts)
    with np.errstate(over="ignore", under="ignore"):
        squares = wholes / np.maximum(divisor, 1)
        if call.function.startswith("var"):
            results = np.ldexp(squares, exponents)
        else:
            # The root is taken before the exponent is applied: it may be in range where the square is not.
            results = np.ldexp(np.sqrt(np.ldexp(squares, exponents & 1)), exponents >> 1)
    return pa.array(results, mask=counts < (2 if sample else 1))


def _collect(call: AggregateCall, column: pa.Array, low: Ints, high: Ints) -> pa.Array:
    if column.null_count:
        seen = _seen(column)
        column, low, high = column.drop_null(), seen[low], seen[high]
    if int((high - low).sum()) > _LONGEST:
        raise EvaluationError(call.sql, f"the lists of one batch have more than {_LONGEST} values")
    return _lists(column, low, high)


def _by_user(call: AggregateCall, values: Sequence[pa.Array], low: Ints, high: Ints) -> pa.Array:
    assert call.user is not None
    parts = []
    for start, stop in _portions(high - low):
        windows = [_lists(column, low[start:stop], high[start:stop]) for column in values]
        parts.append(call.user.apply(call.sql, windows))
    return pa.concat_arrays(parts)


def _portions(lengths: Ints) -> Iterator[tuple[int, int]]:
    """Cut windows into runs that hold a bounded number of values together, or are a single window."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        limit = ends[start] - lengths[start] + _LISTED_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
        yield start, stop
        start = stop


def _lists(column: pa.Array, low: Ints, high: Ints) -> pa.ListArray:
    """Write out the values of every window, as a list."""
    lengths = high - low
    offsets = np.zeros(len(low) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if np.array_equal(high[:-1], low[1:]):
        items = column.slice(low[0], offsets[-1])
    else:
        items = column.take(pa.array(ranges(low, lengths)))
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _seen(column: pa.Array) -> Ints:
    """Return how many values that are not null stand before each row, and before the end."""
    seen = np.zeros(len(column) + 1, np.int64)
    np.cumsum(_valid(column), out=seen[1:])
    return seen


def _valid(column: pa.Array) -> Bools:
    if column.null_count == 0:
        return np.ones(len(column), bool)
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers as doubles, and nulls as zeros."""
    if pa.types.is_decimal(column.type):
        column = decimals.to_double(column)
    doubles = column.cast(pa.float64(), safe=False).fill_null(0.0)
    numbers: npt.NDArray[np.float64] = doubles.to_numpy(zero_copy_only=False)
    return numbers
