"""PostgreSQL by its COPY protocol, through ADBC: tables to Arrow and Arrow to tables, without a row in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from riprap.adapters.casting import cast_table
from riprap.adapters.retrying import Tell
from riprap.errors import ConnectionLost, RunError
from riprap.graph.connectors import BadRecord, Cursor, Fetched, Fetcher, FromPostgres

# A server that says one of these will be back; whatever else it says when it hangs up will not change by waiting.
_PASSING = (
    "starting up",
    "shutting down",
    "terminating",
    "too many",
    "recovery",
    "not yet accepting",
    "closed the",
)
_NO_DRIVER = "PostgreSQL needs its driver: pip install 'riprap[postgres]'"
_LOOK_AGAIN_SECONDS = 0.1
# The code of: a lock could not be had in time.
_LOCKED = "55P03"
_TELL_AFTER = 10.0


class PostgresFetcher(Fetcher):
    """Reads a table in the order of a column.

    A row may become visible after rows with greater values, when its transaction took a value early and commits late.
    So values are read only up to one below which nothing can still appear: the greatest that was visible, once every
    transaction that was writing the table then has ended.
    """

    def __init__(self, connector: FromPostgres, tell: Tell) -> None:
        self._connector = connector
        self._tell = tell
        self._connection: Any = None
        self._table = quoted(connector.table)
        self._by = quoted_name(connector.by)
        self._seen: str | None = None
        self._writers: frozenset[str] = frozenset()
        self._waiting_since = self._last_notice = 0.0

    def fetch(self, after: Cursor) -> Iterator[Fetched | None]:
        while not self._look():
            yield None
            time.sleep(_LOOK_AGAIN_SECONDS)
        upto, self._seen = self._seen, None
        if upto is None or upto == after:
            return
        beyond = "" if after is None else f"{self._by} > {literal(str(after))} and "
        columns = ", ".join(quoted_name(name) for name in self._connector.schema.names)
        query = f"select {columns} from {self._table} where {beyond}{self._by} <= {literal(upto)} order by {self._by}"
        yield from self._read(query)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._seen = None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _read(self, query: str) -> Iterator[Fetched]:
        """Run a query and cut its rows where the value of the column changes: a cursor stands after all equal rows."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            with mapped(f"table {self._connector.table}"):
                cursor.execute(query)
                batches = cursor.fetch_record_batch()
            held: list[pa.RecordBatch] = []
            while True:
                with mapped(f"table {self._connector.table}"), _streamed():
                    batch = next(batches, None)
                if batch is None:
                    break
                if not batch.num_rows:
                    continue
                values = _stored(batch.column(self._connector.by))
                same = pc.equal(values, values[-1])
                whole = batch.num_rows - int(pc.sum(same).as_py())
                if whole:
                    yield self._fetched([*held, batch.slice(0, whole)])
                    held = []
                held.append(batch.slice(whole))
            if held:
                yield self._fetched(held)

    def _fetched(self, batches: Sequence[pa.RecordBatch]) -> Fetched:
        connector = self._connector
        raw = pa.Table.from_batches(batches)
        decoded = cast_table(raw, connector.schema)
        values = raw.column(connector.by)
        bad = [
            BadRecord(
                position={"table": connector.table, connector.by: _text(values[index])},
                reason=reason,
                record=(row := repr(raw.slice(index, 1).to_pylist()[0]).encode()),
                size=len(row),
            )
            for index, reason in decoded.bad
        ]
        return Fetched(table=decoded.table, cursor=_text(values[-1]), bad=bad)

    def _look(self) -> bool:
        """Say whether the table can be read now, up to the value that was the greatest when this began."""
        with mapped(f"table {self._connector.table}"):
            if self._connection is None:
                self._connection = connect(self._connector.url, autocommit=True)
                self._check_column()
            if self._seen is None:
                self._seen = self._one(f"select max({self._by})::text from {self._table}")
                if self._seen is None:
                    return True
                # In this order: whoever has taken a smaller value by now, and may still commit it, holds this lock.
                self._writers = self._who_writes()
                self._waiting_since, self._last_notice = time.monotonic(), 0.0
            elif self._writers:
                self._writers &= self._who_writes()
        if self._writers:
            self._tell_waiting(time.monotonic() - self._waiting_since)
        return not self._writers

    def _tell_waiting(self, waited: float) -> None:
        if waited - self._last_notice > _TELL_AFTER:
            self._last_notice = waited
            self._tell(
                "waiting",
                what=str(self._connector),
                message=f"a transaction that writes the table has been open for {waited:.0f} s: rows wait for it",
            )

    def _who_writes(self) -> frozenset[str]:
        # Partitions are written by themselves too.
        query = (
            f"with recursive tree(oid) as (select {literal(self._table)}::regclass::oid union "
            "select inhrelid from pg_inherits join tree on inhparent = tree.oid) "
            "select distinct virtualtransaction from pg_locks where locktype = 'relation' "
            "and mode = 'RowExclusiveLock' and relation in (select oid from tree) "
            "and pid is distinct from pg_backend_pid() "
            "and database = (select oid from pg_database where datname = current_database())"
        )
        return frozenset(str(row[0]) for row in self._rows(query))

    def _check_column(self) -> None:
        """Warn where rows may be missed that no query could find."""
        described = self._rows(
            "select a.attnotnull, c.relkind::text, t.typcategory::text from pg_attribute a "
            "join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid "
            f"where a.attrelid = {literal(self._table)}::regclass and a.attname = {literal(self._connector.by)}"
        )
        for filled, kind, category in described:
            by = f"column '{self._connector.by}'"
            if not filled and kind in ("r", "p"):
                self._warn(f"{by} may be null; rows where it is are not read")
            if kind not in ("r", "p"):
                self._warn(
                    "it is no table: rows of a transaction that commits late may be missed. Read the table"
                )
            if category == "D":
                self._warn(
                    f"{by} is a time: a transaction that began before others and commits after them may have an "
                    "earlier one, and its rows are missed. Read by an identity column"
                )

    def _warn(self, message: str) -> None:
        self._tell("warning", what=str(self._connector), message=message)

    def _one(self, query: str) -> str | None:
        value = self._rows(query)[0][0]
        return None if value is None else str(value)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(query)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows


def connect(url: str, *, autocommit: bool) -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise RunError(_NO_DRIVER) from error
    return dbapi.connect(url, autocommit=autocommit)


@contextlib.contextmanager
def _streamed() -> Iterator[None]:
    """Turn what goes wrong within a stream into the driver's errors: Arrow raises its own there."""
    import adbc_driver_manager as adbc

    try:
        yield
    except OSError as error:
        raise adbc.OperationalError(str(error), status_code=adbc.AdbcStatusCode.IO) from error
    except pa.ArrowException as error:
        raise adbc.DataError(str(error), status_code=adbc.AdbcStatusCode.INVALID_DATA) from error


@contextlib.contextmanager
def mapped(what: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        import adbc_driver_manager as adbc
    except ImportError as error:
        raise RunError(_NO_DRIVER) from error
    try:
        yield
    except adbc.Error as error:
        text = " ".join(str(error).split())
        lost = isinstance(error, adbc.OperationalError) and error.status_code == adbc.AdbcStatusCode.IO
        if error.sqlstate == _LOCKED:
            raise ConnectionLost(text) from error
        if lost and ("FATAL" not in text or any(sign in text for sign in _PASSING)):
            raise ConnectionLost(text) from error
        raise RunError(f"{what}: {text}") from error


def _stored(column: pa.Array) -> pa.Array:
    """Show numeric and the like, which Arrow cannot compare, as the text they come as."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _text(value: pa.Scalar) -> str:
    """Write a value as PostgreSQL reads it back."""
    storage = value.value if isinstance(value, pa.ExtensionScalar) else value
    return str(storage.cast(pa.string()).as_py())


def literal(text: str) -> str:
    if "\0" in text:
        raise RunError(f"PostgreSQL cannot hold the zero byte in {text!r}")
    return "'" + text.replace("'", "''") + "'"


def quoted(table: str) -> str:
    return ".".join(quoted_name(part) for part in table.split("."))


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
