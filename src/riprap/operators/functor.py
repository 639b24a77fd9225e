"""Filter, project and compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import Expression, Named, Variables
from riprap.expressions.tree import Column, Risk
from riprap.graph.operators import Functor
from riprap.operators.chunk import Chunk, struct_of
from riprap.operators.given import Given, Result
from riprap.state.windows import Contents, gather, make_page

Mask = npt.NDArray[np.bool_]


def run_functor(operator: Functor, given: Given) -> Result:
    """Apply a functor, computing only the columns someone downstream needs."""
    (chunk,), needed = given.inputs, given.needed[operator.name]
    pages: dict[str, pa.RecordBatch] = {}
    if operator.variables is not None and chunk.rows:
        chunk, pages["0"] = _update(operator, operator.variables, chunk, given)
    elif operator.variables is not None:
        nothing = {f.name: pa.array([], f.type) for f in operator.variables.schema}
        chunk = chunk.with_columns({**chunk.columns, **nothing})
    if operator.where is not None and chunk.rows:
        kept = evaluate_condition(operator.where, chunk.columns, chunk.rows)
        select_columns = {c for n in operator.select if n.name in needed for c in n.expression.columns}
        chunk = keep(chunk, kept, frozenset(select_columns))
    return Result(outputs=(chunk.with_columns(compute(operator.select, chunk, needed)),), pages=pages)


def _update(
    operator: Functor, variables: Variables, chunk: Chunk, given: Given
) -> tuple[Chunk, pa.RecordBatch]:
    """Let every tuple update the variables of its key; give it what they are then, and make the page of what is left.

    A key's state is one tuple, the variables; a key that is not there yet has none, and starts from the initial values.
    """
    touched = np.flatnonzero(np.bincount(chunk.code, minlength=len(given.keys)))
    keys = given.keys.take(touched)
    layout = pa.struct(list(variables.schema))
    old = gather(given.pages.get("0", ()), keys, layout)
    initial = variables.initial(1)
    row = np.where(old.lengths > 0, old.offsets[:-1], len(old.tuples))
    before = {
        n: pa.concat_arrays([old.tuples.field(n), initial[n]]).take(pa.array(row))
        for n in variables.schema.names
    }
    code = np.searchsorted(touched, chunk.code).astype(np.int32)
    after, last = variables.run(chunk.columns, code, before)
    contents = Contents(
        np.arange(len(keys) + 1), struct_of(last, len(keys)), np.zeros((len(keys), 1), np.int64)
    )
    return chunk.with_columns({**chunk.columns, **after}), make_page(keys, contents)


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
