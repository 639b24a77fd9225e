"""Aggregates over the newest tuples of each key.

The state holds the values of the aggregates' arguments, not whole tuples, and results are functions of the window's
contents alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import AggregateCall, EvaluationError, decimals, type_name
from riprap.graph.operators import Aggregate
from riprap.operators.chunk import Chunk, struct_of
from riprap.operators.functor import compute
from riprap.operators.history import History, line_up
from riprap.operators.sums import slide_double_sums, slide_whole_sums
from riprap.state.keys import KeyTable
from riprap.state.windows import gather

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """An argument's values along the history, and the windows to slide over them."""

    values: pa.Array
    history: History
    size: int

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        if self.values.null_count == 0:
            return np.ones(len(self.values), bool)
        valid: npt.NDArray[np.bool_] = self.values.is_valid().to_numpy(zero_copy_only=False)
        return valid


def run_aggregate(
    operator: Aggregate, chunk: Chunk, keys: KeyTable, pages: Sequence[pa.RecordBatch], needed: frozenset[str]
) -> tuple[Chunk, pa.RecordBatch | None]:
    """Aggregate a batch; return its results, and the new state page (None where nothing came in)."""
    size = operator.window.tuples
    arguments = {
        call.argument.sql: call.argument for call in operator.aggregation.calls if call.argument is not None
    }
    new = struct_of(
        {f"a{i}": e.evaluate(chunk.columns, chunk.rows) for i, e in enumerate(arguments.values())}, chunk.rows
    )
    touched = np.flatnonzero(np.bincount(chunk.code, minlength=len(keys)))
    old = gather(pages, keys.take(touched), size, new.type)
    history = line_up(chunk.code, touched, len(keys), old)
    columns = {
        sql: Column(history.line_up(old.tuples.field(i), new.field(i)), history, size)
        for i, sql in enumerate(arguments)
    }
    out = _rows_that_emit(operator, history, chunk)
    at = pa.array(history.place[out])
    slots = {}
    for call in operator.aggregation.calls:
        column = columns[call.argument.sql] if call.argument is not None else None
        slots[call.slot] = _slide(call, column, history, size, out).take(at)
    by = {k: chunk.columns[k].take(pa.array(out)) for k in operator.by}
    results = Chunk({**by, **slots}, chunk.rank[out], chunk.code[out])
    outputs = compute(operator.aggregation.outputs, results, needed)
    kept_keys = {k: c for k, c in by.items() if k in needed}
    return results.with_columns({**kept_keys, **outputs}), history.page(
        keys, new, size
    ) if chunk.rows else None


def _rows_that_emit(operator: Aggregate, history: History, chunk: Chunk) -> Ints:
    """Return the rows of the batch at which an output is due: each n-th tuple of its key."""
    if operator.emit.tuples == 1:
        return np.arange(chunk.rows)
    base = np.zeros(int(chunk.code.max(initial=0)) + 1, np.int64)
    base[history.touched] = history.seen - history.fresh + 1
    return np.flatnonzero((history.place + base[chunk.code]) % operator.emit.tuples == 0)


def _slide(call: AggregateCall, column: Column | None, history: History, size: int, out: Ints) -> pa.Array:
    """Return a function's result at every new row of the history."""
    if column is None:
        return pa.array(_window_lengths(history.starts, len(history.order), size))
    match call.function:
        case "count":
            valid = column.valid
            none = np.zeros(len(valid), np.uint64)
            counts = slide_whole_sums(none, none.view(np.int64), valid, history.starts, history.fresh, size)[
                2
            ]
            return pa.array(counts)
        case "sum" | "avg":
            return _sum_or_mean(call, column, out)
        case "first" | "last":
            rows = np.arange(len(history.order))
            if call.function == "first":
                rows -= _window_lengths(history.starts, len(rows), size) - 1
            return column.values.take(pa.array(rows))
        case "min" | "max":
            order = order_of(column.values)
            rows = slide_greatest(
                order if call.function == "max" else ~order, column.valid, history.starts, size
            )
            return column.values.take(pa.array(rows, mask=rows < 0))
    raise AssertionError(f"unknown aggregate {call.function}")


def _sum_or_mean(call: AggregateCall, column: Column, out: Ints) -> pa.Array:
    kind, history = column.values.type, column.history
    mean_of_whole = call.function == "avg" and pa.types.is_integer(kind)
    if pa.types.is_floating(kind) or mean_of_whole:
        values = column.values.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        sums, counts = slide_double_sums(values, column.valid, history.starts, history.fresh, column.size)
        if call.function == "avg":
            sums = sums / np.maximum(counts, 1)
        return pa.array(sums, mask=counts == 0)
    low, high = _words(column.values)
    low, high, counts, overflow = slide_whole_sums(
        low, high, column.valid, history.starts, history.fresh, column.size
    )
    total = pa.decimal128(38, kind.scale if pa.types.is_decimal(kind) else 0)
    words = np.column_stack([low, high.view(np.uint64)]).ravel()
    mask = pa.array(counts > 0)
    sums = pa.Array.from_buffers(total, len(low), [mask.buffers()[1], pa.py_buffer(words)])
    bound = call.type if call.function == "sum" else None
    digits = 38 if bound is None or not pa.types.is_decimal(bound) else bound.precision
    bad = _check_digits(call, sums, overflow, history, out, digits, bound)
    # What does not fit is not put out: leave it out before the cast.
    sums = pc.if_else(pa.array(bad), None, sums)
    if call.function == "sum":
        return sums.cast(call.type)
    number = pa.array(np.maximum(counts, 1)).cast(pa.decimal128(19, 0))
    return decimals.divide(sums, number, type=call.type)


def _check_digits(
    call: AggregateCall,
    sums: pa.Array,
    overflow: npt.NDArray[np.bool_],
    history: History,
    out: Ints,
    digits: int,
    bound: pa.DataType | None,
) -> npt.NDArray[np.bool_]:
    """Return where a sum does not fit its type; raise if one of those is put out."""
    if bound is not None and pa.types.is_integer(bound):
        wide = pa.decimal128(38, 0)
        low, high = (pa.scalar(v).cast(wide) for v in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
        outside = pc.or_(pc.less(sums, low), pc.greater(sums, high))
    else:
        limit = pa.scalar(10**digits - 1, pa.decimal256(39, 0)).cast(pa.decimal256(76, 0))
        size = pc.abs(_unscaled(sums).cast(pa.decimal256(76, 0)))
        outside = pc.greater(size, limit)
    bad: npt.NDArray[np.bool_] = overflow | outside.fill_null(False).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(bad[history.place[out]])
    if len(rows):
        assert call.argument is not None
        raise EvaluationError(f"{call.function}({call.argument.sql})", f"{type_name(call.type)} overflow")
    return bad


def _unscaled(decimals: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        pa.decimal128(38, 0), len(decimals), decimals.buffers(), offset=decimals.offset
    )


def _words(values: pa.Array) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return integers or decimals as the low and high 64 bits of 128."""
    if pa.types.is_decimal(values.type):
        words = np.frombuffer(values.buffers()[1], np.uint64)[
            2 * values.offset : 2 * (values.offset + len(values))
        ]
        return words[::2].copy(), words[1::2].copy().view(np.int64)
    low = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return low.view(np.uint64), low >> 63


def order_of(values: pa.Array) -> Ints:
    """Map values to integers that compare alike: NaN is greatest, -0.0 equals 0.0, nulls are anywhere."""
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.int64)
        floats: Ints = np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
        return floats
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        ints = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        ints = values.cast(pa.int32()).cast(pa.int64())
    else:
        ints = pc.rank(values, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    order: Ints = ints.fill_null(0).to_numpy(zero_copy_only=False)
    return order


@numba.njit(cache=True)
def _window_lengths(starts, rows, size):  # type: ignore[no-untyped-def]
    lengths = np.empty(rows, np.int64)
    for key in range(len(starts) - 1):
        for row in range(starts[key], starts[key + 1]):
            lengths[row] = min(row - starts[key] + 1, size)
    return lengths


@numba.njit(cache=True)
def slide_greatest(rank, valid, starts, size):  # type: ignore[no-untyped-def]
    """Return the row of the greatest valid value in the window that ends at each row, -1 where there is none."""
    result = np.empty(len(rank), np.int64)
    queue = np.empty(len(rank), np.int64)
    for key in range(len(starts) - 1):
        front = back = starts[key]
        for row in range(starts[key], starts[key + 1]):
            if back > front and queue[front] <= row - size:
                front += 1
            if valid[row]:
                while back > front and rank[queue[back - 1]] < rank[row]:
                    back -= 1
                queue[back] = row
                back += 1
            result[row] = queue[front] if back > front else -1
    return result
