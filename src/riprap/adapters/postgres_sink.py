"""Batches into a PostgreSQL table, by COPY: each is one transaction, and replaces itself when it comes again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from riprap.adapters.casting import cast_table
from riprap.adapters.postgres import connect, literal, mapped, quoted, quoted_name
from riprap.adapters.sql_tables import BATCH, BATCHES, whole
from riprap.errors import RunError
from riprap.graph.connectors import Target, ToPostgres

_LOCK_SECONDS = 5
_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}


class PostgresTarget(Target):
    """Writes batches to a table; rows of a repeated batch replace the earlier ones."""

    def __init__(self, connector: ToPostgres, schema: pa.Schema, run: str) -> None:
        self._connector = connector
        self._schema = schema
        self._run = run
        self._connection: Any = None
        *where, self._name = connector.table.split(".")
        self._where = {"db_schema_name": where[0]} if where else {}
        self._table = quoted(connector.table)
        self._batches = quoted(".".join([*where, BATCHES]))

    def open(self, *, resume: bool) -> None:
        columns = [f"{quoted_name(f.name)} {_type(f)}" for f in self._schema]
        with self._transaction() as cursor:
            # Whoever reads the table holds up its truncation: better a try that fails, and is seen.
            cursor.execute(f"set local lock_timeout = '{_LOCK_SECONDS}s'")
            cursor.execute(f"create table if not exists {self._table} ({', '.join(columns)}, {BATCH} bigint)")
            cursor.execute(
                f"create table if not exists {self._batches} (id bigint generated always as identity primary key, "
                "sink text, run text, batch bigint, unique (sink, run, batch))"
            )
            cursor.execute(f"select * from {self._table} limit 0")
            present = cursor.fetch_arrow_table().schema.names
            lacking = [name for name in (*self._schema.names, BATCH) if name not in present]
            if lacking:
                raise RunError(
                    f"table {self._connector.table} has no column {', '.join(lacking)}; it has {', '.join(present)}. "
                    "Add what is missing, or name a table that does not exist: it is made"
                )
            if self._connector.overwrite and not resume:
                cursor.execute(f"truncate table {self._table}")
                cursor.execute(f"delete from {self._batches} where sink = {literal(self._connector.table)}")

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        if not table.num_rows and not again:
            return
        with self._transaction() as cursor:
            number = self._number(cursor, batch)
            if again:
                cursor.execute(f"delete from {self._table} where {BATCH} = {number}")
            if table.num_rows:
                numbers = pa.repeat(pa.scalar(number, pa.int64()), table.num_rows)
                marked = table.append_column(BATCH, numbers)
                cursor.adbc_ingest(self._name, marked, mode="append", **self._where)

    def read(self) -> pa.Table:
        columns = ", ".join(f"t.{quoted_name(name)}" for name in self._schema.names)
        with self._transaction() as cursor:
            cursor.execute(
                f"select {columns} from {self._table} t join {self._batches} b on b.id = t.{BATCH} where "
                f"b.sink = {literal(self._connector.table)} and b.run = {literal(self._run)} order by b.batch, t.ctid"
            )
            return whole(cast_table(cursor.fetch_arrow_table(), self._schema), self._connector)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _number(self, cursor: Any, batch: int) -> int:
        """Return the number that stands for a batch of this run, the one it has if it came before.

        Waits for a transaction that a lost connection left behind: the server may still be committing it.
        """
        cursor.execute(f"set local lock_timeout = '{_LOCK_SECONDS}s'")
        cursor.execute(
            f"insert into {self._batches} (sink, run, batch) "
            f"values ({literal(self._connector.table)}, {literal(self._run)}, {batch}) "
            "on conflict (sink, run, batch) do update set run = excluded.run returning id"
        )
        number = int(cursor.fetchone()[0])
        cursor.execute("set local lock_timeout to default")
        return number

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        with mapped(f"table {self._connector.table}"):
            try:
                if self._connection is None:
                    self._connection = connect(self._connector.url, autocommit=False)
                with contextlib.closing(self._connection.cursor()) as cursor:
                    yield cursor
                self._connection.commit()
            except BaseException:
                # What is left of the transaction goes with the connection.
                self.close()
                raise


def _type(field: pa.Field) -> str:
    """Say which PostgreSQL type a column gets."""
    kind = field.type
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return _type(kind.value_field) + "[]"
    raise RunError(f"column '{field.name}' is {kind}, which a PostgreSQL table cannot hold")
