"""Send each tuple to the outputs that want it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from riprap.arrays import Ints
from riprap.expressions import Expression, Scope, parse_condition, type_name
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Inputs, Streams, has
from riprap.graph.operator import Needed, PassesOn, Traits, passed_on
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk
from riprap.kernels.evaluation import Mask, evaluate_condition, is_true
from riprap.kernels.given import Given, Result
from riprap.protection import Policy

Routes = Mapping[Any, str | Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(PassesOn):
    """Sends each tuple to the outputs that want it: those whose condition is true, or those a table names.

    ``table`` has a row for each value of column ``on``: the value, then for each output whether it goes there.
    ``default`` is the output of values that the table lacks.
    """

    TRAITS: ClassVar[Traits] = Traits(does="routes tuples", punctuation="passes in place, to every output")

    streams: tuple[str, ...]
    conditions: tuple[Expression, ...] = ()
    first: bool = False
    on: str | None = None
    table: pa.RecordBatch | None = None
    default: int | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        tested = frozenset({self.on} if self.on is not None else ()).union(
            *(c.columns for c in self.conditions)
        )
        return (passed_on(self, needed) | tested,)

    def summary(self) -> str:
        names = [stream.rpartition(".")[2] for stream in self.streams]
        if self.table is not None:
            rest = f", others to {names[self.default]}" if self.default is not None else ""
            return f"{', '.join(names)} by {self.on}, a table of {self.table.num_rows}{rest}"
        routes = "; ".join(f"{name}: {c.sql}" for name, c in zip(names, self.conditions, strict=True))
        return ("the first of " if self.first else "") + routes

    def run(self, given: Given) -> Result:
        """Send each tuple to the outputs that want it; punctuations go to all."""
        (chunk,) = given.inputs
        masks = _by_table(self, chunk) if self.table is not None else _by_condition(self, chunk)
        return Result(
            outputs=tuple(
                _picked(chunk, mask, given.needed[stream])
                for stream, mask in zip(self.outputs, masks, strict=True)
            )
        )


def split(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    outputs: Mapping[str, str] | Sequence[str],
    first: bool = False,
    on: str | None = None,
    table: Routes | str | Path | None = None,
    default: str | None = None,
    protect: Policy | None = None,
) -> dict[str, Stream]:
    """Add a split, and return its streams by name, in order.

    ``outputs`` maps the name of each to its condition: a tuple goes to every one whose condition is true, or with
    ``first`` to the first such. Or ``outputs`` lists names, and ``table`` says where each value of column ``on``
    goes: a mapping to one name or several, or a CSV file with columns ``value,output`` that is read now. A value
    that the table lacks goes to ``default``.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> [*app.split("by_price", sales, outputs={"dear": "price > 100", "cheap": "price <= 100"})]
    ['dear', 'cheap']
    """
    here = Here("Split", name, app, stream)
    inputs = here.port(stream)
    names = tuple(outputs)
    streams = here.outputs(names)
    if not isinstance(outputs, Mapping):
        routes = _routing_table(here, inputs, names, first, on, table, default)
    elif on is not None or table is not None or default is not None:
        raise here.error(
            "outputs= has conditions, and on=, table= or default= is given too",
            "Give outputs= as names to route by a table",
        )
    else:
        scope = Scope.of(inputs.schema)
        with here:
            conditions = tuple(parse_condition(c, scope, app.functions) for c in outputs.values())
        routes = {"conditions": conditions, "first": first}
    here.add(
        Split(**here.basics(inputs, protect=protect), schema=inputs.schema, streams=streams, **routes),
    )
    return {n: Stream(s, inputs.schema, app.root) for n, s in zip(names, streams, strict=True)}


def _routing_table(
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
