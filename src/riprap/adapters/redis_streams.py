"""Redis Streams: an entry is a tuple, its fields are the columns."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.adapters.bad_records import kept
from riprap.adapters.casting import cast_table
from riprap.adapters.resp import xadd_commands
from riprap.adapters.retrying import Tell
from riprap.errors import ConnectionLost, RunError
from riprap.graph.connectors import BadRecord, Cursor, Fetched, Fetcher, FromRedis, Target, ToRedis

_READ_ENTRIES = 10_000
_WRITE_ENTRIES = 10_000
_WRITE_BYTES = 16 << 20

StreamEntry = tuple[bytes, dict[bytes, bytes] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """A stream at one moment: the entries asked for, and what Redis keeps account of (of ``added``, from 7 on)."""

    entries: Sequence[StreamEntry]
    last: str
    first: str
    length: int
    deleted: str
    added: int | None


class RedisFetcher(Fetcher):
    """Reads a stream from its first entry on.

    A cursor is the ``id`` of the last entry; ``added``, how many were ever added up to it, -1 where that is not known;
    and ``deleted``, the newest entry that had been deleted one by one when the run began. By the last two it is found
    out that entries were removed unread: Redis counts all that it adds, and trims from the beginning.
    """

    def __init__(self, connector: FromRedis, tell: Tell) -> None:
        self._connector = connector
        self._tell = tell
        self._gone = False
        self._client: Any = None

    def fetch(self, after: Cursor) -> Iterator[Fetched]:
        assert after is None or isinstance(after, dict)
        upto: str | None = None
        while True:
            with _mapped(f"stream {self._connector.stream}"):
                if self._client is None:
                    self._client = _connect(self._connector.url)
                stream = self._read("-" if after is None else f"({after['id']}")
            if after is not None:
                self._check_there(after, stream)
            if stream is None:
                return
            if after is not None:
                self._check(after, stream)
            upto = upto or stream.last
            if not stream.entries:
                return
            after = _moved(after, stream)
            yield self._fetched(stream.entries, after)
            if _order(str(after["id"])) >= _order(upto):
                return

    def close(self) -> None:
        _close(self._client)
        self._client = None

    def _read(self, start: str) -> _Stream | None:
        """Return the next entries and what there is to know of the stream, all at one moment."""
        stream = self._connector.stream
        pipe = self._client.pipeline(transaction=True)
        pipe.exists(stream)
        pipe.xrange(stream, start, "+", count=_READ_ENTRIES)
        pipe.xinfo_stream(stream)
        exists, entries, about = pipe.execute(raise_on_error=False)
        if not exists:
            return None
        for answer in (entries, about):
            if isinstance(answer, Exception):
                raise answer
        return _Stream(
            entries=entries,
            last=_str(about["last-generated-id"]),
            first=_str(about.get("recorded-first-entry-id", b"0-0")),
            length=int(about["length"]),
            deleted=_str(about.get("max-deleted-entry-id", b"0-0")),
            added=about.get("entries-added"),
        )

    def _check_there(self, after: Mapping[str, str | int], stream: _Stream | None) -> None:
        """Warn if the whole stream was removed, with what had not been read: nobody can tell what that was."""
        gone = stream is None or (stream.added is not None and stream.added < int(after["added"]))
        if gone and not self._gone:
            self._tell(
                "warning",
                what=str(self._connector),
                message=f"the stream was removed; entries after {after['id']} that were in it are lost",
            )
        self._gone = gone

    def _check(self, after: Mapping[str, str | int], stream: _Stream) -> None:
        """Raise if entries were removed that had not been read."""
        last = str(after["id"])
        gone = ""
        if _order(stream.deleted) > _order(last) and stream.deleted != after["deleted"]:
            gone = f"entry {stream.deleted} was"
        elif stream.added is not None and after["added"] != -1:
            missing = stream.added - int(after["added"]) - stream.length
            if missing > 0 and not stream.length:
                gone = f"{missing:,} entries up to {stream.last} were"
            elif missing > 0 and _order(stream.first) > _order(last):
                gone = f"{missing:,} entries before {stream.first} were"
        if gone:
            raise RunError(
                f"Redis stream {self._connector.stream}: {gone} removed before the run had read them (the last it "
                f"read is {last}). Keep more of them: raise MAXLEN, or trim by MINID behind the run. A new run begins "
                "at the first entry there is"
            )

    def _fetched(self, entries: Sequence[StreamEntry], cursor: Cursor) -> Fetched:
        connector = self._connector
        fields = [fields or {} for _, fields in entries]
        raw = {name: [f.get(name.encode()) for f in fields] for name in connector.schema.names}
        columns = {name: pa.array(values, pa.binary()) for name, values in raw.items()}
        table = pa.table(columns)
        wrong = dict(self._too_large(columns, len(entries)))
        # Text first: a number is written as text, and text must be UTF-8.
        text = cast_table(
            table, pa.schema([(n, _first_type(connector.schema.field(n).type)) for n in columns])
        )
        cast = cast_table(text.table, connector.schema)
        kept = np.delete(np.arange(len(entries)), [index for index, _ in text.bad])
        for index, reason in (*text.bad, *((int(kept[i]), reason) for i, reason in cast.bad)):
            wrong.setdefault(index, reason)
        good = cast.table
        if len(wrong) > len(text.bad) + len(cast.bad):
            stay = np.delete(kept, [i for i, _ in cast.bad])
            good = good.filter(pa.array(~np.isin(stay, list(wrong))))
        bad = [self._bad(entries[index], wrong[index]) for index in sorted(wrong)]
        return Fetched(table=good, cursor=cursor, bad=bad)

    def _too_large(self, columns: dict[str, pa.Array], rows: int) -> Iterator[tuple[int, str]]:
        limit = self._connector.max_record_bytes
        if sum(column.nbytes for column in columns.values()) <= limit:
            return
        sizes = np.zeros(rows, np.int64)
        for column in columns.values():
            sizes += pa.compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(sizes > limit):
            yield (
                int(index),
                f"{sizes[index]:,} bytes, more than the {limit:,} allowed: raise max_record_bytes=",
            )

    def _bad(self, entry: StreamEntry, reason: str) -> BadRecord:
        shown = {_readable(k): _readable(v) for k, v in (entry[1] or {}).items()}
        record = json.dumps(shown).encode()
        position = {"stream": self._connector.stream, "id": entry[0].decode()}
        return BadRecord(
            position=position,
            reason=reason,
            record=kept(record, self._connector.max_record_bytes),
            size=len(record),
        )


class RedisTarget(Target):
    """Adds entries to a stream, and says in a hash beside it how far each run has come: in one transaction."""

    def __init__(self, connector: ToRedis, schema: pa.Schema, run: str) -> None:
        self._connector = connector
        self._schema = schema
        self._run = run
        self._client: Any = None
        self._progress = f"{connector.stream}:riprap"

    def open(self, *, resume: bool) -> None:
        with self._connected() as client:
            kind = _str(client.type(self._connector.stream))
            if kind not in ("none", "stream"):
                raise RunError(f"Redis key {self._connector.stream} is a {kind}, not a stream: name another")
            if self._connector.overwrite and not resume:
                client.delete(self._connector.stream, self._progress)

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        # A transaction is one piece in memory, here and there.
        most = max(1, min(_WRITE_ENTRIES, _WRITE_BYTES * table.num_rows // max(table.nbytes, 1)))
        with self._connected() as client:
            pool = client.connection_pool
            connection = pool.get_connection()
            try:
                while (start := self._written(connection, batch)) < table.num_rows:
                    part = table.slice(start, most)
                    self._add(connection, part, f"{batch} {start + part.num_rows}")
                connection.send_command("UNWATCH")
                connection.read_response()
            except BaseException:
                # There may be answers left that nobody is going to read.
                connection.disconnect()
                raise
            finally:
                pool.release(connection)

    def read(self) -> pa.Table:
        raise RunError(f"rows in {self._connector} cannot be told from those of others: read the stream")

    def close(self) -> None:
        _close(self._client)
        self._client = None

    def _written(self, connection: Any, batch: int) -> int:
        """Say how many rows of a batch are there, and watch that from now on.

        A transaction that a lost connection left in the network may still arrive: of it and ours one is carried out.
        """
        connection.send_packed_command(
            [
                *connection.pack_command("WATCH", self._progress),
                *connection.pack_command("HGET", self._progress, self._run),
            ]
        )
        connection.read_response()
        newest, rows = (int(n) for n in (connection.read_response() or b"-1 0").split())
        return sys.maxsize if newest > batch else rows if newest == batch else 0

    def _add(self, connection: Any, part: pa.Table, progress: str) -> None:
        """Send a transaction in one piece: its entries, and how far that is."""
        connection.send_packed_command(
            [
                *connection.pack_command("MULTI"),
                xadd_commands(self._connector.stream, part),
                *connection.pack_command("HSET", self._progress, self._run, progress),
                *connection.pack_command("EXEC"),
            ]
        )
        for _ in range(part.num_rows + 2):
            connection.read_response()
        # None if what we watch was changed meanwhile: nothing was done, and the next look tells what is left to do.
        answers = connection.read_response() or ()
        failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if failed is not None:
            raise failed

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        with _mapped(f"stream {self._connector.stream}"):
            if self._client is None:
                self._client = _connect(self._connector.url)
            yield self._client


def _connect(url: str) -> Any:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise RunError("Redis needs its client: pip install 'riprap[redis]'") from error
    # Retrying is ours to do, and to show.
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=30, socket_connect_timeout=5)


def _close(client: Any) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            client.close()


@contextlib.contextmanager
def _mapped(what: str) -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        import redis.exceptions as theirs
    except ImportError as error:
        raise RunError("Redis needs its client: pip install 'riprap[redis]'") from error
    try:
        yield
    except theirs.AuthenticationError as error:
        raise RunError(f"Redis {what}: {error}") from error
    except (theirs.ConnectionError, theirs.TimeoutError, theirs.ReadOnlyError) as error:
        raise ConnectionLost(str(error)) from error
    except theirs.RedisError as error:
        raise RunError(f"Redis {what}: {error}") from error


def _moved(after: Mapping[str, str | int] | None, stream: _Stream) -> dict[str, str | int]:
    """Return the cursor behind entries that were read after another."""
    entries, added = len(stream.entries), -1
    deleted = _order(stream.deleted)
    if stream.added is not None and entries < _READ_ENTRIES:
        added = stream.added
    elif stream.added is not None and after is None:
        # What was removed lies before the first entry, unless entries were deleted one by one.
        added = stream.added - stream.length + entries if deleted < _order(stream.first) else -1
    elif after is not None and after["added"] != -1 and deleted < _order(str(after["id"])):
        added = int(after["added"]) + entries
    begun = stream.deleted if after is None else after["deleted"]
    return {"id": stream.entries[-1][0].decode(), "added": added, "deleted": begun}


def _order(identity: str) -> tuple[int, int]:
    milliseconds, _, number = identity.partition("-")
    return int(milliseconds), int(number or 0)


def _first_type(kind: pa.DataType) -> pa.DataType:
    return pa.binary() if pa.types.is_binary(kind) else pa.string()


def _str(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _readable(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
