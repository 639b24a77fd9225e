"""Rows held in memory, functions of the user's, and the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riprap.errors import GraphError
from riprap.graph.connectors.checks import pace, schema_of, tuples_a_second, whole_number
from riprap.graph.connectors.promise import Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows held in memory."""

    PROMISE: ClassVar[Promise] = Promise(
        call="rr.rows(...)",
        does="reads rows held in memory",
        after_failure="reads on: the rows were written to the run's folder first",
    )

    table: pa.Table
    rate: float | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def __str__(self) -> str:
        return f"{self.table.num_rows} rows in memory" + pace(self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A Python function called in the driver with each batch's number and rows (a ``pyarrow.Table``)."""

    PROMISE: ClassVar[Promise] = Promise(
        call="rr.callback(...)",
        does="calls a function with each batch",
        after_failure="may see the newest batch again: it is told the batch's number",
        why_not="what was handed over cannot be taken back",
    )

    function: Callable[[int, pa.Table], None]

    def __str__(self) -> str:
        return f"callback {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Rows kept for ``run.table(name)``: for tests and notebooks."""

    PROMISE: ClassVar[Promise] = Promise(
        call="rr.memory()",
        does="keeps the rows for run.table(name)",
        after_failure="holds each batch once; rows of an earlier process are gone",
    )

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Each batch as a table on the screen, the first rows of it."""

    PROMISE: ClassVar[Promise] = Promise(
        call="rr.console()",
        does="shows each batch as a table on the screen",
        after_failure="may show the newest batch again",
        why_not="what was shown cannot be taken back",
    )

    rows: int

    def __str__(self) -> str:
        return "screen"


def rows(
    data: pa.Table | Iterable[Mapping[str, object]],
    schema: str | pa.Schema | None = None,
    *,
    rate: float | None = None,
) -> Rows:
    """Hold rows in memory as a source: an Arrow table, or dictionaries with a schema.

    >>> rows([{"word": "a", "n": 1}], "word string, n bigint").table.num_rows
    1
    """
    if schema is None:
        if not isinstance(data, pa.Table):
            raise GraphError("rows(...) of dictionaries needs schema=, such as 'word string, n bigint'")
        return Rows(table=data, rate=tuples_a_second(rate))
    wanted = schema_of(schema)
    try:
        if isinstance(data, pa.Table):
            table = data.cast(wanted)
        else:
            table = pa.Table.from_pylist([dict(row) for row in data], schema=wanted)
    except (ValueError, TypeError, OverflowError) as error:
        raise GraphError(f"rows(...) do not fit the schema {schema}: {error}") from error
    return Rows(table=table, rate=tuples_a_second(rate))


def callback(function: Callable[[int, pa.Table], None]) -> Callback:
    """Call ``function(batch, table)`` in the driver after each batch is recorded."""
    if not callable(function):
        raise GraphError(f"callback(...) takes a function of (batch, table), got {function!r}")
    return Callback(function=function)


def memory() -> Memory:
    """Keep the rows for ``run.table(name)``."""
    return Memory()


def console(*, rows: int = 20) -> Console:
    """Show the first ``rows`` rows of each batch that has any as a table on the screen."""
    return Console(rows=whole_number("console(rows=...)", rows))
