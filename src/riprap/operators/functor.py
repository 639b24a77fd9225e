"""Filter, project and compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import Expression, Named
from riprap.expressions.tree import Column, Risk
from riprap.graph.operators import Functor
from riprap.operators.chunk import Chunk


def run_functor(operator: Functor, chunk: Chunk, needed: frozenset[str]) -> Chunk:
    """Apply a functor, computing only the columns someone downstream needs."""
    if operator.where is not None and chunk.rows:
        kept = evaluate_condition(operator.where, chunk.columns, chunk.rows)
        select_columns = {c for n in operator.select if n.name in needed for c in n.expression.columns}
        chunk = keep(chunk, kept, frozenset(select_columns))
    return chunk.with_columns(compute(operator.select, chunk, needed))


def evaluate_condition(condition: Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    """Evaluate a condition; over one dictionary-encoded column, once for each distinct value."""
    if len(condition.columns) == 1 and condition.risk is Risk.NONE:
        (column,) = (columns[c] for c in condition.columns)
        if pa.types.is_dictionary(column.type) and len(column.dictionary) < rows:
            # One null more than there are values stands for rows without one.
            values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
            (name,) = condition.columns
            answers = condition.evaluate({name: values}, len(values))
            return answers.take(column.indices.cast(pa.int32()).fill_null(len(values) - 1))
    return condition.evaluate(columns, rows)


def keep(chunk: Chunk, condition: pa.BooleanArray, columns: frozenset[str]) -> Chunk:
    """Return the tuples a condition is true for (neither false nor null), with the columns named."""
    rows = np.flatnonzero(pc.fill_null(condition, False).to_numpy(zero_copy_only=False))
    return chunk.with_columns({n: c for n, c in chunk.columns.items() if n in columns}).take(rows)


def compute(select: Sequence[Named], chunk: Chunk, needed: frozenset[str]) -> dict[str, pa.Array]:
    """Evaluate named expressions over a chunk's columns; a bare column passes as it is, encoded or not."""
    return {
        n.name: chunk.columns[n.expression.key]
        if isinstance(n.expression, Column)
        else n.expression.evaluate(chunk.columns, chunk.rows)
        for n in select
        if n.name in needed
    }
