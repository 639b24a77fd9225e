"""Evaluate the expressions of operators over the tuples of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import Expression, Named
from riprap.expressions.tree import Column, Risk
from riprap.kernels.chunk import Chunk

Mask = npt.NDArray[np.bool_]


def evaluate_condition(condition: Expression, columns: Mapping[str, pa.Array], rows: int) -> Mask:
    """Say where a condition is true, neither false nor null; over one dictionary-encoded column, value by value."""
    if len(condition.columns) == 1 and condition.risk is Risk.NONE:
        (name,) = condition.columns
        column = columns[name]
        if pa.types.is_dictionary(column.type) and len(column.dictionary) < rows:
            # One null more than there are values stands for rows without one.
            values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
            answers = is_true(condition.evaluate({name: values}, len(values)))
            indices = column.indices
            if indices.null_count:
                indices = indices.cast(pa.int32()).fill_null(len(values) - 1)
            by_value: Mask = answers[indices.to_numpy(zero_copy_only=False)]
            return by_value
    return is_true(condition.evaluate(columns, rows))


def is_true(answers: pa.BooleanArray) -> Mask:
    """Say where an answer is true: neither false nor null."""
    true: Mask = pc.fill_null(answers, False).to_numpy(zero_copy_only=False)
    return true


def keep(chunk: Chunk, condition: Mask, columns: frozenset[str]) -> Chunk:
    """Return the tuples a condition is true for, with the columns named."""
    kept = chunk.with_columns({n: c for n, c in chunk.columns.items() if n in columns})
    return kept.take(np.flatnonzero(condition))


def compute(select: Sequence[Named], chunk: Chunk, needed: frozenset[str]) -> dict[str, pa.Array]:
    """Evaluate named expressions over a chunk's columns; a bare column passes as it is, encoded or not."""
    return {
        n.name: chunk.columns[n.expression.key]
        if isinstance(n.expression, Column)
        else n.expression.evaluate(chunk.columns, chunk.rows)
        for n in select
        if n.name in needed
    }
