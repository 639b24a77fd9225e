"""Put the tuples of each window in order when it closes, with a punctuation after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from riprap.expressions.ordering import Ordering
from riprap.expressions.tree import Column
from riprap.graph.operators import Sort, TopN
from riprap.machine_code import compiled
from riprap.operators.chunk import Ints, Marks
from riprap.operators.collecting import Closed, close_windows
from riprap.operators.extremes import order_of
from riprap.operators.given import Given, Result, hash_part
from riprap.state.windows import ranges


def run_sort(operator: Sort, given: Given) -> Result:
    """Sort the windows that close in a batch, or find the first tuples of each; return also the new state page."""
    (chunk,) = given.inputs
    columns = {name: f"c{i}" for i, name in enumerate(sorted(given.needed[operator.name]))}
    values = {kept: chunk.columns[name] for name, kept in columns.items()}
    keys = []
    for i, each in enumerate(operator.order):
        read = each.expression
        kept = columns.get(read.key) if isinstance(read, Column) else None
        if kept is None:
            kept = f"o{i}"
            values[kept] = read.evaluate(chunk.columns, chunk.rows)
        keys.append(kept)
    closed = close_windows(operator.window, given, values)
    lengths = closed.lengths
    order = _sorted(operator.order, [closed.column(k, closed.rows) for k in keys], lengths)
    if isinstance(operator, TopN):
        starts = np.cumsum(lengths) - lengths
        lengths = np.minimum(lengths, operator.n)
        order = order[ranges(starts, lengths)]
    rows = closed.rows[order]
    made = {name: closed.column(kept, rows) for name, kept in columns.items()}
    event, code = np.repeat(closed.event, lengths), np.repeat(closed.code, lengths)
    output = closed.events.derive(event, code, made, given, operator.depth)
    output = replace(output, marks=_marks(closed, lengths, given, operator.depth))
    return Result(
        outputs=(output,), pages={"0": closed.page} if closed.page is not None else {}, late=closed.late
    )


def _marks(closed: Closed, lengths: Ints, given: Given, depth: int) -> Marks:
    """Put a punctuation after the tuples of every window, numbered on from them."""
    path = tuple(p[closed.event] for p in closed.events.path)
    if depth == 2:
        # Ticks and punctuations close such windows, never a tuple.
        path = (*path, hash_part(given.keys)[closed.code])
    return Marks(np.cumsum(lengths), closed.events.rank[closed.event], closed.code, (*path, lengths))


def _sorted(order: Sequence[Ordering], columns: Sequence[pa.Array], lengths: Ints) -> Ints:
    """Return the rows of windows that follow one another, those of each window in order."""
    keys: list[Ints] = []
    for each, column in zip(order, columns, strict=True):
        numbers = order_of(column)
        if column.null_count:
            null = column.is_null().to_numpy(zero_copy_only=False)
            keys.append((null != each.nulls_first).astype(np.int64))
            numbers = np.where(null, 0, numbers)
        keys.append(~numbers if each.descending else numbers)
    result: Ints = _sort_windows(np.vstack(keys), lengths)
    return result


@compiled(types=("i8[:, ::1], i8[::1]",))
def _sort_windows(keys, lengths):  # type: ignore[no-untyped-def]
    order = np.empty(keys.shape[1], np.int64)
    start = 0
    for length in lengths:
        rows = np.argsort(keys[-1, start : start + length], kind="mergesort")
        # The first key counts most: each sort leaves equal tuples as the ones before it put them.
        for k in range(len(keys) - 2, -1, -1):
            rows = rows[np.argsort(keys[k, start : start + length][rows], kind="mergesort")]
        for i in range(length):
            order[start + i] = start + rows[i]
        start += length
    return order
