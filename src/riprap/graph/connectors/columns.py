"""Columns of tables that others made: brought into the types that streams have, or refused with a remedy."""

from __future__ import annotations

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, hold, holding, type_name


def remedy(type: pa.DataType) -> str:
    """Say what can be done about a column that does not fit."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_timestamp(type) and type.unit == "ns":
        return "Round it to microseconds before it is written (pandas: .dt.floor('us')), or leave it out of schema="
    if pa.types.is_unsigned_integer(type):
        return "Write it as a signed integer or a double, or leave it out of schema="
    return "Declare it as it is in the file, or leave it out of schema="


def held(table: pa.Table, what: str) -> pa.Table:
    """Return a table in types that streams have."""
    columns, fields = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            fields.append(field.with_type(holding(field.type)))
            columns.append(hold(column, fields[-1].type))
        except ExpressionError:
            raise GraphError(
                f"{what}: column '{field.name}' is {field.type}, which a stream cannot hold. "
                f"{others(table.schema)}"
            ) from None
        except pa.ArrowInvalid as error:
            wanted = type_name(fields[-1].type)
            raise GraphError(
                f"{what}: column '{field.name}' is {field.type}, and does not fit {wanted}: {error}. "
                f"{remedy(field.type)}"
            ) from error
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)) if columns else table


def others(schema: pa.Schema) -> str:
    """Say how to leave out, in schema=, the columns that a stream cannot hold."""
    fit = []
    for field in schema:
        name = field.name if field.name.isidentifier() else f"`{field.name}`"
        try:
            fit.append(f"{name} {type_name(holding(field.type))}")
        except ExpressionError:
            continue
    return f"Leave it out: schema='{', '.join(fit)}'" if fit else "There is no column that it can hold"
