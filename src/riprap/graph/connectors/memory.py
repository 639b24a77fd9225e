"""Rows held in memory, functions of the user's, and the screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions.cells import converted, not_a, unreadable
from riprap.graph.connectors.checks import pace, schema_of, tuples_a_second, whole_number
from riprap.graph.connectors.columns import held
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Opened, Sink, SinkConnector, SinkOpening, Target

_GIVE = "give dictionaries, or a pandas, Polars or Arrow table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows held in memory."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
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
class Callback(SinkConnector):
    """A Python function called in the driver with each batch's number and rows (a ``pyarrow.Table``)."""

    PROMISE: ClassVar[Promise] = Promise(
        word="repeats",
        call="rr.callback(...)",
        does="calls a function with each batch",
        after_failure="may see the newest batch again: it is told the batch's number",
        why_not="what was handed over cannot be taken back",
    )

    function: Callable[[int, pa.Table], None]

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        return opening.by_calls(self.function)

    def __str__(self) -> str:
        return f"callback {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Sink):
    """Rows kept for ``run.table(name)``: for tests and notebooks."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replaces",
        call="rr.memory()",
        does="keeps the rows for run.table(name)",
        after_failure="holds each batch once; rows of an earlier process are gone",
    )

    def target(self, schema: pa.Schema, run: str) -> Target:
        return MemoryTarget(schema)

    def __str__(self) -> str:
        return "memory"


class MemoryTarget(Target):
    """Keeps every batch's rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: dict[int, pa.Table] = {}

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        # Copied: a table over a mapped page would hold on to its shared memory.
        self._batches[batch] = table.take(pa.array(np.arange(table.num_rows)))

    def read(self) -> pa.Table:
        if not self._batches:
            return self._schema.empty_table()
        return pa.concat_tables([self._batches[b] for b in sorted(self._batches)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Console(SinkConnector):
    """Each batch as a table on the screen, the first rows of it."""

    PROMISE: ClassVar[Promise] = Promise(
        word="repeats",
        call="rr.console()",
        does="shows each batch as a table on the screen",
        after_failure="may show the newest batch again",
        why_not="what was shown cannot be taken back",
    )

    rows: int

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        from riprap.adapters.console import show

        return opening.by_calls(show(opening.name, self.rows))

    def __str__(self) -> str:
        return "screen"


def rows(
    data: Any,
    schema: str | pa.Schema | None = None,
    *,
    rate: float | None = None,
) -> Rows:
    """Hold rows in memory as a source: an Arrow, pandas or Polars table, or dictionaries with a schema.

    A schema picks columns of a table, and casts them; text is read as the cells of CSV files are. A pandas index is
    left out.

    >>> print(rr.rows([{"word": "a", "n": 1}], "word string, n bigint"))
    1 rows in memory
    """
    pace = tuples_a_second(rate)
    table = _as_table(data)
    dictionaries = _dictionaries(data) if table is None else []
    if schema is None:
        if table is None:
            raise GraphError("rows(...) of dictionaries needs schema=, such as 'word string, n bigint'")
        _check_once(table, table.column_names)
        return Rows(table=held(table, "rows(...)"), rate=pace)
    wanted = schema_of(schema)
    try:
        if table is None:
            return Rows(table=_from_dictionaries(dictionaries, wanted), rate=pace)
        lacking = [name for name in wanted.names if name not in table.column_names]
        if lacking:
            has = ", ".join(table.column_names)
            raise GraphError(
                f"rows(...) have no column '{lacking[0]}', which schema= names. They have: {has}"
            )
        _check_once(table, wanted.names)
        return Rows(table=_cast(held(table.select(wanted.names), "rows(...)"), wanted), rate=pace)
    except GraphError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise GraphError(f"rows(...) do not fit the schema {schema}: {error}") from error


def _as_table(data: Any) -> pa.Table | None:
    """Return what is a table already; others than pandas hand theirs over by Arrow's own protocol."""
    if isinstance(data, pa.Table):
        return data
    # Whoever has a DataFrame has imported it.
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(data, pandas.DataFrame):
            return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata()
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return pa.table(data).replace_schema_metadata()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise GraphError(
            f"rows(...) of a {type(data).__name__} cannot be made an Arrow table: {error}"
        ) from error
    return None


def _check_once(table: pa.Table, names: Iterable[str]) -> None:
    """Refuse two columns of one name."""
    for name in names:
        if table.column_names.count(name) > 1:
            raise GraphError(
                f"rows(...) have more than one column '{name}': rename one, or leave it out of schema="
            )


def _cast(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Cast columns, those of text as the cells of CSV files are read."""
    columns = []
    for field, column in zip(wanted, table.columns, strict=True):
        text = pa.types.is_string(column.type) and not pa.types.is_nested(field.type)
        try:
            columns.append(converted(column, field.type) if text else column.cast(field.type))
        except pa.ArrowInvalid:
            if not text:
                raise
            row = unreadable(column.combine_chunks().cast(pa.binary()), field.type)[0]
            raise pa.ArrowInvalid(
                f"row {row}, {not_a(field.name, column[row].as_py(), field.type)}"
            ) from None
    # Only a cast of the whole table minds nulls where there must be none.
    return pa.table(columns, names=wanted.names).cast(wanted)


def _dictionaries(data: Any) -> list[Mapping[str, object]]:
    if isinstance(data, str | Mapping) or not isinstance(data, Iterable):
        raise GraphError(f"rows(...) got a {type(data).__name__}: {_GIVE}")
    dictionaries = list(data)
    for number, row in enumerate(dictionaries):
        if not isinstance(row, Mapping):
            raise GraphError(f"rows(...): row {number} is a {type(row).__name__}: {_GIVE}")
    return dictionaries


def _from_dictionaries(rows: Iterable[Mapping[str, object]], wanted: pa.Schema) -> pa.Table:
    copies = [dict(row) for row in rows]
    for number, row in enumerate(copies):
        unknown = [key for key in row if key not in wanted.names]
        if unknown:
            raise GraphError(
                f"rows(...): row {number} has '{unknown[0]}', which is not in the schema: {', '.join(wanted.names)}"
            )
    return pa.Table.from_pylist(copies, schema=wanted)


def callback(function: Callable[[int, pa.Table], None]) -> Callback:
    """Call ``function(batch, table)`` in the driver after each batch is recorded.

    >>> def show(batch, table):
    ...     print(batch, table.num_rows)
    >>> print(rr.callback(show))
    callback show
    """
    if not callable(function):
        raise GraphError(f"callback(...) takes a function of (batch, table), got {function!r}")
    return Callback(function=function)


def memory() -> Memory:
    """Keep the rows for ``run.table(name)``.

    >>> app = rr.Application("demo")
    >>> app.sink("out", app.source("words", rr.rows([], "word string")), rr.memory())
    """
    return Memory()


def console(*, rows: int = 20) -> Console:
    """Show the first ``rows`` rows of each batch that has any as a table on the screen.

    >>> print(rr.console(rows=5))
    screen
    """
    return Console(rows=whole_number("console(rows=...)", rows))
