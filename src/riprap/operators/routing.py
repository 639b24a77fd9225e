"""Send tuples on: to the outputs that want them, or with punctuations between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.graph.operators import Punctor, Split
from riprap.operators.chunk import Chunk, Ints, Marks, Path
from riprap.operators.functor import Mask, evaluate_condition, is_true
from riprap.operators.given import Given, Result, index_among


def run_split(operator: Split, given: Given) -> Result:
    """Send each tuple to the outputs that want it; punctuations go to all."""
    (chunk,) = given.inputs
    masks = _by_table(operator, chunk) if operator.table is not None else _by_condition(operator, chunk)
    return Result(
        outputs=tuple(
            _picked(chunk, mask, given.needed[stream])
            for stream, mask in zip(operator.outputs, masks, strict=True)
        )
    )


def _picked(chunk: Chunk, mask: Mask, needed: frozenset[str]) -> Chunk:
    chunk = chunk.with_columns({n: c for n, c in chunk.columns.items() if n in needed})
    return chunk if mask.all() else chunk.take(np.flatnonzero(mask))


def _by_condition(operator: Split, chunk: Chunk) -> Iterator[Mask]:
    free = np.ones(chunk.rows, bool)
    for condition in operator.conditions:
        true = evaluate_condition(condition, chunk.columns, chunk.rows) if chunk.rows else free
        yield true & free
        if operator.first:
            free &= ~true


def _by_table(operator: Split, chunk: Chunk) -> Iterator[Mask]:
    assert operator.table is not None
    assert operator.on is not None
    number = _number_in(operator.table.column(0), chunk.columns[operator.on])
    for output, chosen in enumerate(operator.table.columns[1:]):
        # One answer more than there are values is for those that the table lacks.
        answers = np.append(is_true(chosen), output == operator.default)
        yield answers[number]


def _number_in(values: pa.Array, column: pa.Array) -> Ints:
    """Find each value's place in a table; one that it lacks is at the end."""
    if pa.types.is_dictionary(column.type):
        # Once for each distinct value, and once for null.
        distinct = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        places = _number_in(values, distinct)
        codes = column.indices.cast(pa.int64()).fill_null(len(distinct) - 1)
        by_value: Ints = places[codes.to_numpy(zero_copy_only=False)]
        return by_value
    found = pc.index_in(column, value_set=values).fill_null(len(values))
    number: Ints = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return number


def run_punctor(operator: Punctor, given: Given) -> Result:
    """Put punctuations before or after the tuples that meet the condition."""
    (chunk,), needed = given.inputs, given.needed[operator.name]
    row = np.flatnonzero(evaluate_condition(operator.where, chunk.columns, chunk.rows))
    old, after = chunk.marks, operator.place == "after"
    # A new one is next to its tuple: one after it is before the old ones there, one before it is after them.
    at = np.concatenate([old.at, row + after])
    order = np.lexsort((np.repeat([after, not after], [len(old), len(row)]), at))
    marks = Marks(
        at[order],
        np.concatenate([old.rank, chunk.rank[row]])[order],
        np.concatenate([old.code, chunk.code[row]])[order],
        tuple(np.concatenate([m, p[row]])[order] for m, p in zip(old.path, chunk.path, strict=True)),
    )
    tuple_place = np.arange(chunk.rows) + np.searchsorted(marks.at, np.arange(chunk.rows), "right")
    mark_place = marks.at + np.arange(len(marks))
    among = index_among(
        same_order(
            _both(chunk.rank, marks.rank, tuple_place, mark_place),
            tuple(_both(p, m, tuple_place, mark_place) for p, m in zip(chunk.path, marks.path, strict=True)),
        )
    )
    marks = Marks(marks.at, marks.rank, marks.code, (*marks.path, among[mark_place]))
    columns = {n: c for n, c in chunk.columns.items() if n in needed}
    return Result(outputs=(Chunk(columns, chunk.rank, chunk.code, (*chunk.path, among[tuple_place]), marks),))


def _both(tuples: Ints, marks: Ints, tuple_place: Ints, mark_place: Ints) -> Ints:
    if not len(marks):
        return tuples
    whole = np.empty(len(tuples) + len(marks), np.int64)
    whole[tuple_place], whole[mark_place] = tuples, marks
    return whole


def same_order(rank: Ints, path: Path) -> Ints:
    """Number the places of a sequence so that those of the same rank and path have the same number.

    Where streams that derive from one tuple come together, several tuples have the same order.
    """
    new = np.zeros(len(rank), bool)
    for column in (rank, *path):
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new)
