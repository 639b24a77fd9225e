"""Filter, project and compute."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import Named
from riprap.expressions.tree import Column
from riprap.graph.operators import Functor
from riprap.operators.chunk import Chunk


def run_functor(operator: Functor, chunk: Chunk, needed: frozenset[str]) -> Chunk:
    """Apply a functor, computing only the columns someone downstream needs."""
    if operator.where is not None and chunk.rows:
        kept = operator.where.evaluate(chunk.columns, chunk.rows)
        select_columns = {c for n in operator.select if n.name in needed for c in n.expression.columns}
        chunk = keep(chunk, kept, frozenset(select_columns))
    return chunk.with_columns(compute(operator.select, chunk, needed))


def keep(chunk: Chunk, condition: pa.BooleanArray, columns: frozenset[str]) -> Chunk:
    """Return the tuples a condition is true for (neither false nor null), with the columns named."""
    mask = pc.fill_null(condition, False)
    rows = mask.to_numpy(zero_copy_only=False)
    kept = {n: c.filter(mask) for n, c in chunk.columns.items() if n in columns}
    return Chunk(kept, chunk.rank[rows], chunk.code[rows])


def compute(select: Sequence[Named], chunk: Chunk, needed: frozenset[str]) -> dict[str, pa.Array]:
    """Evaluate named expressions over a chunk's columns; a bare column passes as it is, encoded or not."""
    return {
        n.name: chunk.columns[n.expression.key]
        if isinstance(n.expression, Column)
        else n.expression.evaluate(chunk.columns, chunk.rows)
        for n in select
        if n.name in needed
    }
