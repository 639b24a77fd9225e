"""Values in RocksDB: a database of this host's, written by one process at a time.

    h:<entry>:<key>                 head
    c:<entry>:<key>:<stamp>:<n>     a chunk
    u:<token>                       JSON list: the chunks of a put() that takes several batches and is not finished

A put() that is too large for one batch writes the list of its chunks, the chunks, and at last a batch with the heads
that takes the list away and is synced. The log is written in order, so the heads are on the disk only if their chunks
are. A list that is there when the database is opened for writing is a dead writer's, and its chunks go.

A reader follows the writer as RocksDB's "secondary". Values stay in the tables, not in blob files: a secondary that
meets a blob file it has not seen when it was opened ends the process (RocksDB in rocksdict 0.3.29). The library writes
its own settings into the folder even for a reader, so there is no reading from a read-only disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError, StoreError
from riprap.state.stores.base import Buffer, Store, check_entry, check_keys
from riprap.state.stores.chunks import Head, read_value

DEFAULT_CHUNK = 4 << 20
_BATCH = 32 << 20

T = TypeVar("T")


class RocksStore(Store):
    """A store in a RocksDB database. It is opened again after an error, which RocksDB itself would never forget."""

    def __init__(
        self, url: str, where: str, path: str, *, chunk: int = DEFAULT_CHUNK, readonly: bool = False
    ) -> None:
        self.url = url
        self._where = where
        self._path = path
        self._chunk = chunk
        self._readonly = readonly
        self._library = _library(where)
        self._lock = threading.RLock()
        self._db: Any = None
        self._notes: tempfile.TemporaryDirectory[str] | None = None
        self._use("opening", lambda db: None)

    def put(self, entry: str, values: Mapping[str, Buffer]) -> None:
        check_entry(entry)
        keys = check_keys(values)
        if not values:
            return
        heads = {key: Head.of(value, self._chunk) for key, value in values.items()}

        def write(db: Any) -> None:
            batch = self._library.WriteBatch(raw_mode=True)
            chunks = [_chunk_name(entry, name) for key, head in heads.items() for name in head.names(key)]
            unfinished = _unfinished_name(uuid.uuid4().hex)
            batch.put(unfinished, json.dumps([name.decode() for name in chunks]).encode())
            parts = (part for key, head in heads.items() for part in head.cut(values[key]))
            for chunk, part in zip(chunks, parts, strict=True):
                batch.put(chunk, bytes(part))
                if batch.size_in_bytes() >= _BATCH:
                    db.write(batch)
                    batch = self._library.WriteBatch(raw_mode=True)
            batch.delete(unfinished)
            for replaced in self._chunks_of(db, entry, keys):
                batch.delete(replaced)
            for key, head in heads.items():
                batch.put(_head_name(entry, key), head.encode())
            db.write(batch, self._synced())

        self._use("writing", write)

    def get(self, entry: str, key: str) -> pa.Buffer:
        check_entry(entry)
        check_keys([key])
        where = f"store {self._where}: '{key}' of entry '{entry}'"

        def chunks(db: Any, names: list[str]) -> Sequence[bytes | None]:
            return [db.get(_chunk_name(entry, name)) for name in names]

        def read(db: Any) -> pa.Buffer:
            return read_value(
                key, where, lambda: db.get(_head_name(entry, key)), lambda names: chunks(db, names)
            )

        return self._use("reading", read)

    def keys(self, entry: str) -> list[str]:
        check_entry(entry)
        prefix = _head_name(entry, "")
        return self._use("reading", lambda db: [name[len(prefix) :].decode() for name in _names(db, prefix)])

    def damage(self, entry: str) -> list[str]:
        # A key is there whatever became of its value.
        return []

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        check_entry(entry)
        unwanted = check_keys(keys)

        def write(db: Any) -> None:
            batch = self._library.WriteBatch(raw_mode=True)
            for name in self._chunks_of(db, entry, unwanted):
                batch.delete(name)
            for key in unwanted:
                batch.delete(_head_name(entry, key))
            db.write(batch, self._synced())

        if unwanted:
            self._use("deleting", write)

    def entries(self) -> list[str]:
        def read(db: Any) -> list[str]:
            return sorted({name.split(b":")[1].decode() for name in _names(db, b"h:")})

        return self._use("reading", read)

    def drop(self, entry: str) -> None:
        check_entry(entry)

        def write(db: Any) -> None:
            batch = self._library.WriteBatch(raw_mode=True)
            for names in (_head_name(entry, ""), _chunk_name(entry, "")):
                # By name and not by head: those whose head is damaged go too. After ":" comes ";".
                batch.delete_range(names, names[:-1] + b";")
            db.write(batch, self._synced())

        self._use("deleting", write)

    def close(self) -> None:
        with self._lock, contextlib.suppress(Exception):
            db, self._db = self._db, None
            if db is not None:
                db.close()
        if self._notes is not None:
            self._notes.cleanup()
            self._notes = None

    def _use(self, doing: str, what: Callable[[Any], T]) -> T:
        """Do something with the database, opened if need be, and turn its errors into ours."""
        with self._lock:
            try:
                if self._db is None:
                    self._db = self._open()
                elif self._readonly:
                    self._db.try_catch_up_with_primary()
                return what(self._db)
            except (KeyError, CorruptValueError, FormatError):
                raise
            # RocksDB's errors have no class of their own.
            except Exception as error:
                self.close()
                if "Corruption" in str(error) and doing == "reading":
                    raise CorruptValueError(f"store {self._where}: {error}") from error
                raise StoreError(
                    f"store {self._where}: {doing} failed: {error}. {_hint(str(error))}"
                ) from error

    def _open(self) -> Any:
        options = self._library.Options(raw_mode=True)
        options.set_compression_type(self._library.DBCompressionType.none())
        options.set_keep_log_file_num(5)
        if self._readonly:
            os.stat(self._path)
            self._notes = tempfile.TemporaryDirectory(prefix="riprap-rocksdb-", ignore_cleanup_errors=True)
            return self._library.Rdict(
                self._path, options, access_type=self._library.AccessType.secondary(self._notes.name)
            )
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        db = self._library.Rdict(self._path, options)
        _remove_unfinished(db)
        return db

    def _synced(self) -> Any:
        options = self._library.WriteOptions()
        options.sync = True
        return options

    def _chunks_of(self, db: Any, entry: str, keys: Sequence[str]) -> Iterator[bytes]:
        """Yield the names of the chunks that are there under some keys."""
        for key in keys:
            data = db.get(_head_name(entry, key))
            # Of a head that cannot be read the chunks are not known; it can be replaced all the same.
            with contextlib.suppress(CorruptValueError, FormatError):
                if data is not None:
                    yield from (_chunk_name(entry, name) for name in Head.decode(data, key).names(key))


def _head_name(entry: str, key: str) -> bytes:
    return f"h:{entry}:{key}".encode()


def _chunk_name(entry: str, name: str) -> bytes:
    return f"c:{entry}:{name}".encode()


def _unfinished_name(token: str) -> bytes:
    return f"u:{token}".encode()


def _names(db: Any, prefix: bytes) -> Iterator[bytes]:
    """Yield the names that begin with a prefix, in order."""
    iterator = db.iter()
    iterator.seek(prefix)
    while iterator.valid() and (name := iterator.key()).startswith(prefix):
        yield name
        iterator.next()


def _remove_unfinished(db: Any) -> None:
    for name in list(_names(db, _unfinished_name(""))):
        for chunk in json.loads(db.get(name)):
            db.delete(chunk.encode())
        db.delete(name)


def _hint(text: str) -> str:
    if re.search(r"\block", text, re.IGNORECASE):
        return "Another process has it open: one at a time may write; open_store(url, readonly=True) reads beside it"
    if "No space" in text:
        return "Free some space, or name a store with more"
    if "Read-only" in text or "Permission" in text:
        return "Give this user the right to write there, or name another store"
    if "No such file" in text:
        return "Is its disk mounted? For reading, a database must be there"
    return "See the file LOG in its folder"


def _library(where: str) -> Any:
    try:
        import rocksdict
    except ImportError as error:
        raise StoreError(
            f"store {where}: RocksDB needs its library: pip install 'riprap[rocksdb]'"
        ) from error
    return rocksdict
