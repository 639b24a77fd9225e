"""SQLite, by Python's own module."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from riprap.adapters.casting import cast_table
from riprap.adapters.json_lines import plain_text
from riprap.adapters.postgres import quoted_name
from riprap.adapters.sql_tables import BATCH, BATCHES, whole
from riprap.errors import ConnectionLost, RunError
from riprap.graph.connectors import Target, ToSqlite

# How long SQLite itself waits for a lock. Beyond that it is for Riprap to try again, and to show.
_BUSY_SECONDS = 1.0


class SqliteTarget(Target):
    """Writes batches to a table: each is one transaction, and rows of a repeated batch go first."""

    def __init__(self, connector: ToSqlite, schema: pa.Schema, run: str) -> None:
        self._connector = connector
        self._schema = schema
        self._run = run
        self._connection: sqlite3.Connection | None = None
        self._table = quoted_name(connector.table)

    def open(self, *, resume: bool) -> None:
        with self._transaction() as connection:
            columns = [f"{quoted_name(f.name)} {_type(f)}" for f in self._schema]
            connection.execute(
                f"create table if not exists {self._table} ({', '.join(columns)}, {BATCH} integer)"
            )
            connection.execute(
                f"create table if not exists {BATCHES} (id integer primary key autoincrement, sink text, run text, "
                "batch integer, unique (sink, run, batch))"
            )
            present = [str(row[1]) for row in connection.execute(f"pragma table_info({self._table})")]
            lacking = [name for name in (*self._schema.names, BATCH) if name not in present]
            if lacking:
                raise RunError(
                    f"table {self._connector.table} in {self._connector.path} has no column {', '.join(lacking)}; it "
                    f"has {', '.join(present)}. Add what is missing, or name a table that does not exist: it is made"
                )
            if self._connector.overwrite and not resume:
                connection.execute(f"delete from {self._table}")
                connection.execute(f"delete from {BATCHES} where sink = ?", (self._connector.table,))

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        if not table.num_rows and not again:
            return
        names = ", ".join((*(quoted_name(name) for name in table.column_names), BATCH))
        marks = ", ".join("?" * table.num_columns)
        with self._transaction() as connection:
            number = self._number(connection, batch)
            if again:
                connection.execute(f"delete from {self._table} where {BATCH} = {number}")
            insert = f"insert into {self._table} ({names}) values ({marks}, {number})"
            connection.executemany(insert, zip(*(_values(c) for c in table.columns), strict=True))

    def read(self) -> pa.Table:
        columns = ", ".join(f"t.{quoted_name(name)}" for name in self._schema.names)
        query = (
            f"select {columns} from {self._table} t join {BATCHES} b on b.id = t.{BATCH} "
            "where b.sink = ? and b.run = ? order by b.batch, t.rowid"
        )
        with self._transaction() as connection:
            rows = connection.execute(query, (self._connector.table, self._run)).fetchall()
        read = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays = [_array(values, field.type) for values, field in zip(read, self._schema, strict=True)]
        return whole(cast_table(pa.table(arrays, names=self._schema.names), self._schema), self._connector)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _number(self, connection: sqlite3.Connection, batch: int) -> int:
        """Return the number that stands for a batch of this run, the one it has if it came before."""
        newest = connection.execute(
            f"insert into {BATCHES} (sink, run, batch) values (?, ?, ?) "
            "on conflict (sink, run, batch) do update set run = excluded.run returning id",
            (self._connector.table, self._run, batch),
        ).fetchone()
        return int(newest[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._connection is None:
                # Published from the query's thread, read from the user's, never at once.
                self._connection = sqlite3.connect(
                    self._connector.path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
                )
            self._connection.execute("begin immediate")
            yield self._connection
            self._connection.execute("commit")
        except sqlite3.OperationalError as error:
            self.close()
            if "locked" in str(error) or "busy" in str(error):
                raise ConnectionLost(f"{self._connector.path}: {error}") from error
            raise RunError(f"SQLite file {self._connector.path}: {error}") from error
        except sqlite3.Error as error:
            self.close()
            raise RunError(f"SQLite file {self._connector.path}: {error}") from error
        except BaseException:
            self.close()
            raise


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as SQLite takes them: times and decimals as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = pa.chunked_array([plain_text(chunk) for chunk in column.chunks], pa.large_string())
    elif pa.types.is_date(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind):
        column = column.cast(pa.string())
    elif (pa.types.is_floating(kind) or pa.types.is_integer(kind)) and not column.null_count:
        return list(column.to_numpy().tolist())
    return list(column.to_pylist())


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], pa.bool_())
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_binary(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.string())


def _type(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_binary(kind):
        return "blob"
    if pa.types.is_nested(kind):
        raise RunError(f"column '{field.name}' is {kind}, which an SQLite table cannot hold")
    return "text"
