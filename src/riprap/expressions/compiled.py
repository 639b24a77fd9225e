"""Run the compiled loop of a set of variables over batches of tuples.

A program is source text and what goes into it, so it pickles and compares like the expressions it was written
from. Each process compiles a source once. Strings enter the loop as codes of one dictionary for the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Bools, Numbers
from riprap.expressions.errors import EvaluationError
from riprap.expressions.source import DTYPES
from riprap.expressions.tree import Column, Columns, Expression
from riprap.expressions.types import BOOLEAN, INT, STRING, normalise

_ENCODED = pa.dictionary(pa.int32(), STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A column computed before the loop. If doubtful, the loop may not need rows for which that raises."""

    expression: Expression
    doubtful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The source of a loop over tuples; `types` are those of the variables it updates."""

    source: str
    inputs: tuple[Input, ...]
    texts: tuple[str, ...]
    ordered: bool
    failures: tuple[tuple[str, str], ...]
    types: tuple[pa.DataType, ...]

    def run(
        self, columns: Columns, code: npt.NDArray[np.int32], before: Sequence[pa.Array]
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the variables after each row, and at last for each key; `code` says which key a row has."""
        rows, keys = len(code), len(before[0])
        if rows and not 0 <= code.min() <= code.max() < keys:
            raise ValueError(f"codes of keys from {code.min()} to {code.max()}, but there are {keys} keys")
        failed = [np.zeros(rows if each.doubtful else 0, np.bool_) for each in self.inputs]
        inputs = [_computed(*each, columns, rows) for each in zip(self.inputs, failed, strict=True)]
        dictionary, (texts, *arrays) = _coded([pa.array(self.texts, STRING), *inputs, *before], self.ordered)
        arguments = [_fixed(code), _fixed(_split(texts)[0])]
        for each, array, flags in zip(self.inputs, arrays, failed, strict=False):
            arguments += [*map(_fixed, _split(array)), *([_fixed(flags)] if each.doubtful else [])]
        # What was before is Arrow's, and may even be writable: the loop gets a copy.
        states = [(values.copy(), valid.copy()) for values, valid in map(_split, arrays[len(inputs) :])]
        outputs = [(np.empty(rows, values.dtype), np.empty(rows, np.bool_)) for values, _ in states]
        for state, output in zip(states, outputs, strict=True):
            arguments += [*state, *output]
        from riprap.expressions.jit import run_loop  # loads Numba

        row, number = run_loop(self.source, arguments)
        if row >= 0:
            raise self._failure(row, number, columns)
        return self._arrays(outputs, dictionary), self._arrays(states, dictionary)

    def _arrays(self, parts: Sequence[tuple[Numbers, Bools]], dictionary: pa.Array) -> list[pa.Array]:
        pairs = zip(parts, self.types, strict=True)
        return [_joined(values, valid, type, dictionary) for (values, valid), type in pairs]

    def _failure(self, row: int, number: int, columns: Columns) -> EvaluationError:
        if number >= 0:
            return EvaluationError(*self.failures[number])
        expression = self.inputs[-number - 1].expression
        try:
            expression.evaluate({name: columns[name][row : row + 1] for name in expression.columns}, 1)
        except EvaluationError as error:
            return error
        return EvaluationError(expression.sql, "it raised, but not when evaluated again")


def _computed(each: Input, failed: Bools, columns: Columns, rows: int) -> pa.Array:
    """Compute an input. Where that raises and the input is doubtful, say so in `failed`."""
    expression = each.expression
    if isinstance(expression, Column) and expression.type == STRING:
        column = columns[expression.key]
        if isinstance(column, pa.DictionaryArray):
            return column  # its codes are half of the work
    if not each.doubtful:
        return expression.evaluate(columns, rows)
    return _salvaged(expression, {name: columns[name] for name in expression.columns}, failed)


def _salvaged(expression: Expression, columns: Columns, failed: Bools) -> pa.Array:
    """Evaluate the rows that have a value, by halving the batch around the others."""
    try:
        return expression.evaluate(columns, len(failed))
    except EvaluationError:
        if len(failed) == 1 or not columns:
            failed[:] = True
            return pa.nulls(len(failed), expression.type)
    middle = len(failed) // 2
    halves = (slice(None, middle), slice(middle, None))
    return pa.concat_arrays(
        [
            _salvaged(expression, {name: column[half] for name, column in columns.items()}, failed[half])
            for half in halves
        ]
    )


def _coded(arrays: Sequence[pa.Array], ordered: bool) -> tuple[pa.Array, list[pa.Array]]:
    """Replace strings by codes of one dictionary for all of them, which comes first in the answer."""
    places = [number for number, array in enumerate(arrays) if _is_text(array.type)]
    encoded = [_encoded(arrays[place]) for place in places]
    unified = pa.chunked_array(encoded, _ENCODED).unify_dictionaries().chunks
    dictionary = unified[0].dictionary
    codes = {place: chunk.indices for place, chunk in zip(places, unified, strict=True)}
    if ordered:
        order = pc.array_sort_indices(dictionary)
        ranks = pc.cast(pc.array_sort_indices(order), INT)
        dictionary = dictionary.take(order)
        codes = {place: ranks.take(each) for place, each in codes.items()}
    return dictionary, [codes.get(number, array) for number, array in enumerate(arrays)]


def _is_text(type: pa.DataType) -> bool:
    return bool(type == STRING or pa.types.is_dictionary(type))


def _encoded(array: pa.Array) -> pa.DictionaryArray:
    plain = pa.types.is_dictionary(array.type) and array.type.value_type == STRING
    if plain and not array.dictionary.null_count:
        return array.cast(_ENCODED)
    return normalise(array).dictionary_encode()


def _split(array: pa.Array) -> tuple[Numbers, Bools]:
    """Take an array apart into numbers and flags that say which are valid."""
    rows = len(array)
    valid = np.ones(rows, np.bool_)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    if array.type == BOOLEAN:
        return pc.fill_null(array, False).to_numpy(zero_copy_only=False), valid
    dtype = DTYPES[array.type]
    if rows == 0:
        return np.empty(0, dtype), valid
    return np.frombuffer(array.buffers()[1], dtype, rows, array.offset * dtype.itemsize), valid


def _joined(values: Numbers, valid: Bools, type: pa.DataType, dictionary: pa.Array) -> pa.Array:
    if type == STRING:
        return dictionary.take(_joined(values, valid, INT, dictionary))
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = np.packbits(values, bitorder="little") if type == BOOLEAN else values
    return pa.Array.from_buffers(type, len(values), [bitmap, pa.py_buffer(data)])


def _fixed(array: Numbers) -> Numbers:
    """Mark an array as read only, so that every array in its place has one type for the compiler."""
    view = np.ascontiguousarray(array)[:]
    view.setflags(write=False)
    return view
