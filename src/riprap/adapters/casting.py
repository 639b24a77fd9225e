"""Bring columns into the declared types, and find the rows that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.cells import failing, not_a


@dataclass(frozen=True, slots=True)
class CastRows:
    """The rows that fit, and the numbers of the others with what is wrong."""

    table: pa.Table
    bad: list[tuple[int, str]]


def cast_table(table: pa.Table, schema: pa.Schema) -> CastRows:
    """Cast a table's columns to a schema, by name.

    >>> cast_table(pa.table({"n": ["1", "x"]}), pa.schema([("n", pa.int64())])).bad
    [(1, "column 'n': 'x' is not a bigint")]
    """
    columns: list[pa.ChunkedArray | pa.Array] = []
    wrong: dict[int, str] = {}
    for field in schema:
        column = _plain(table.column(field.name))
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            if isinstance(error, pa.ArrowNotImplementedError):
                # No value of the one type is one of the other.
                misfits = np.flatnonzero(whole.is_valid()).tolist()
                columns.append(pa.nulls(len(whole), field.type))
            else:
                misfits = failing(whole, partial(_cast, field.type))
                fits = np.ones(len(whole), bool)
                fits[misfits] = False
                # Null where nothing fits: these rows go in any case.
                columns.append(pc.if_else(pa.array(fits), whole, None).cast(field.type))
            for index in misfits:
                wrong.setdefault(index, not_a(field.name, whole[index].as_py(), field.type))
    fitting = pa.table(columns, schema=schema)
    if wrong:
        keep = np.ones(table.num_rows, bool)
        keep[list(wrong)] = False
        fitting = fitting.filter(pa.array(keep))
    return CastRows(fitting, sorted(wrong.items()))


def _cast(kind: pa.DataType, column: pa.Array) -> pa.Array:
    return column.cast(kind)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Show an extension column as what it is stored as."""
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column
