"""Check the tables that a split routes by and a lookup looks into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, holding, type_name
from riprap.graph.checks import Here, Inputs, has
from riprap.graph.connectors import Files, Rows, files, rows

Routes = Mapping[Any, str | Sequence[str]]


def routing_table(
    here: Here,
    inputs: Inputs,
    names: Sequence[str],
    first: bool,
    on: str | None,
    table: Routes | str | Path | None,
    default: str | None,
) -> dict[str, Any]:
    """Check how a split routes by a table, and return its fields that say so."""
    if on is None or table is None:
        raise here.error(
            "outputs= has no conditions, and on= or table= is missing",
            "Map each output to its condition, or give both to route by a table",
        )
    if first:
        raise here.error("first= is for conditions", "Let the table name one output for a value")
    if on not in inputs.schema.names:
        raise here.error(f"on= names column '{on}', which does not exist", has(inputs.schema))
    kind = inputs.schema.field(on).type
    if pa.types.is_list(kind) or pa.types.is_floating(kind):
        raise here.error(
            f"on= names '{on}', which is {type_name(kind)}", "A table finds text and exact numbers"
        )
    if default is not None and default not in names:
        raise here.error(f"default= is {default!r}", f"Its outputs are: {', '.join(names)}")
    routes = _read_routes(here, table, kind) if isinstance(table, str | Path) else _listed(here, table, kind)
    values: dict[Any, set[str]] = {}
    for value, chosen in routes:
        strange = [output for output in chosen if output not in names]
        if strange:
            raise here.error(
                f"its table sends {value!r} to {strange[0]!r}", f"Its outputs are: {', '.join(names)}"
            )
        values.setdefault(value, set()).update(chosen)
    columns = [pa.array([name in chosen for chosen in values.values()], pa.bool_()) for name in names]
    found = pa.RecordBatch.from_arrays([pa.array(list(values), kind), *columns], ["value", *names])
    return {"on": on, "table": found, "default": None if default is None else names.index(default)}


def _listed(here: Here, table: Routes, kind: pa.DataType) -> list[tuple[Any, tuple[str, ...]]]:
    """List the values of a mapping, as the column has them, and their outputs."""
    try:
        values = pa.array(list(table), kind).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
        raise here.error(
            f"a value of its table is not {type_name(kind)}: {error}", "Write it as the column has it"
        ) from None
    outputs = [(chosen,) if isinstance(chosen, str) else tuple(chosen) for chosen in table.values()]
    return list(zip(values, outputs, strict=True))


def _read_routes(here: Here, path: str | Path, kind: pa.DataType) -> list[tuple[Any, tuple[str, ...]]]:
    # Null is not written in such a file: nothing is the empty text.
    options = pa.csv.ConvertOptions(
        column_types={"value": kind, "output": pa.string()}, null_values=[], strings_can_be_null=False
    )
    try:
        table = pa.csv.read_csv(str(path), convert_options=options)
    except (OSError, pa.ArrowInvalid) as error:
        raise here.error(
            f"its table {path} cannot be read: {error}", "It is CSV with columns value,output"
        ) from None
    if table.column_names != ["value", "output"]:
        raise here.error(
            f"the first line of its table {path} is '{','.join(table.column_names)}'",
            "It must be 'value,output'",
        )
    return [(row["value"], (row["output"],)) for row in table.to_pylist()]


def lookup_table(here: Here, table: object) -> tuple[Files | Rows, pa.Schema]:
    """Return where a lookup's table comes from, and its schema."""
    try:
        if isinstance(table, str | Path):
            table = files(table)
        elif hasattr(table, "__arrow_c_stream__"):
            table = rows(table)
    except GraphError as error:
        raise here.error(f"its table: {error}", "Write rr.files(path, schema=...) to say more") from None
    if not isinstance(table, Files | Rows):
        raise here.error(f"table= is {table!r}", "Give it a path, rr.files(...) or an Arrow table")
    if table.rate is not None:
        raise here.error("its table has a rate=", "A table is read as a whole: leave it out")
    try:
        return table, pa.schema([pa.field(f.name, holding(f.type, f.name)) for f in table.schema])
    except ExpressionError as error:
        raise here.error(
            f"its table: {error}", "Leave the column out with rr.files(path, schema=...)"
        ) from None


def lookup_key(
    here: Here, by: str | Sequence[str] | Mapping[str, str], mine: pa.Schema, its: pa.Schema
) -> tuple[tuple[str, str], ...]:
    """Check a lookup's key: columns of the stream, each with one of the table."""
    if isinstance(by, Mapping):
        pairs = tuple(by.items())
    else:
        pairs = tuple((c, c) for c in ((by,) if isinstance(by, str) else by))
    if not pairs:
        raise here.error("a lookup needs a key", "Give it by=, a column that stream and table have")
    for side, schema, what in ((0, mine, "stream"), (1, its, "table")):
        columns = [pair[side] for pair in pairs]
        if len(set(columns)) < len(columns):
            raise here.error(f"by={by!r} names a column twice", "Name each once")
        lacking = [c for c in columns if c not in schema.names]
        if lacking:
            raise here.error(f"by= names column '{lacking[0]}', which its {what} lacks", has(schema))
    for left, right in pairs:
        kinds = mine.field(left).type, its.field(right).type
        if any(pa.types.is_list(k) for k in kinds):
            raise here.error(
                f"the key '{left}' is {type_name(kinds[0])}", "A key's columns are single values"
            )
        if kinds[0] != kinds[1]:
            raise here.error(
                f"the key '{left}' is {type_name(kinds[0])}, and '{right}' of the table {type_name(kinds[1])}",
                "Cast the stream's with a functor, or read the table with rr.files(..., schema=...)",
            )
    return pairs
