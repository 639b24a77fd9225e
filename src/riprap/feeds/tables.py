"""The tables of lookups: which version of each counts for which batch.

A table is read when the run starts and again when its files change, always before a batch is computed. What was read is
a snapshot that never changes, sorted as lookups want it. A batch names its snapshots in a file of its own, so a batch
that is repeated sees the same versions.

<tables>/
    <lookup>-<k>.arrow          the k-th version of a table
    <batch>.json                {"format": "riprap-tables/1", "tables": {"prices": {"snapshot": "prices-2.arrow",
                                 "version": [["/data/prices.parquet", 18211, 1731667200000000000, 4711]]}}}

``version`` is what the table was read from: path, size, time of change (ns) and inode of every file, or for a table in
memory a hash of its contents. Files are written under a temporary name, which starts with a dot, and renamed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.adapters.parsing import parse_file
from riprap.errors import RunError
from riprap.feeds.segments import record_batches
from riprap.graph.connectors import Files, Rows
from riprap.graph.graph import Graph
from riprap.operators.lookup import Lookup, index_table
from riprap.state.durable_files import checking, load_json, put_in_place, save_json, sync_in_place

FORMAT = "riprap-tables/1"
_REMEDY = "Put it back from a copy; or remove it, and its batch sees the tables as they are now"

Version = list[list[Any]]


class Tables:
    """The tables of a graph's lookups, as the driver keeps them. ``warn`` is told of files that cannot be read."""

    def __init__(self, folder: Path, graph: Graph, warn: Callable[[str], None] = lambda text: None) -> None:
        self._folder = folder
        self._warn = warn
        self._lookups = {lookup.name: lookup for lookup in graph.of_kind(Lookup)}
        self._warned: dict[str, str] = {}
        self._newest: dict[str, dict[str, Any]] = {}
        if not self._lookups:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.iterdir():
            # Half-written, or left empty by a power cut: what may be computed again was synced, all others look again.
            if path.name.startswith(".") or not path.stat().st_size:
                path.unlink()
        # A batch is settled while those before it are handed over, and forgotten, by another thread.
        self._changing = threading.Lock()
        batches = _batches(folder)
        if batches:
            tables = _named(folder, batches[-1])
            self._newest = {name: table for name, table in tables.items() if name in self._lookups}

    def settle(self, batch: int) -> None:
        """Say which version of every table counts for a batch, unless that was said before."""
        if not self._lookups or _path(self._folder, batch).exists():
            return
        with self._changing:
            for lookup in self._lookups.values():
                self._refresh(lookup)
            named = {"format": FORMAT, "tables": self._newest}
            save_json(_path(self._folder, batch), named, synced=False)

    def sync(self, batch: int) -> None:
        """Wait until it is on the disk which versions count for a batch: it may have to be computed again."""
        if self._lookups:
            sync_in_place(_path(self._folder, batch))

    def forget(self, before: int) -> None:
        """Remove what only batches before one needed."""
        if not self._lookups:
            return
        with self._changing:
            batches = _batches(self._folder)
            # The newest stays in any case: it says what the tables were read from.
            for batch in batches[:-1]:
                if batch < before:
                    _path(self._folder, batch).unlink()
            left = [_named(self._folder, batch) for batch in _batches(self._folder)]
            wanted = {table["snapshot"] for tables in (*left, self._newest) for table in tables.values()}
            for path in self._folder.glob("*.arrow"):
                if path.name not in wanted:
                    path.unlink()

    def _refresh(self, lookup: Lookup) -> None:
        newest = self._newest.get(lookup.name)
        try:
            version = _version(lookup)
            if newest is not None and newest["version"] == version:
                return
            table = _read(lookup)
            if _version(lookup) != version:
                raise RunError(f"{lookup.table} changed while it was read")
            indexed = index_table(lookup, table)
        except (RunError, OSError, pa.ArrowException) as error:
            self._keep_old(lookup, error)
            return
        number = 1 + max((n for n, _ in _snapshots(self._folder, lookup.name)), default=0)
        snapshot = f"{lookup.name}-{number}.arrow"
        temporary = self._folder / f".{snapshot}"
        temporary.write_bytes(_as_file(indexed))
        put_in_place(temporary, self._folder / snapshot)
        self._newest[lookup.name] = {"snapshot": snapshot, "version": version}
        self._warned.pop(lookup.name, None)

    def _keep_old(self, lookup: Lookup, error: Exception) -> None:
        problem = str(error) if str(lookup) in str(error) else f"{lookup}: its table cannot be read: {error}"
        if lookup.name not in self._newest:
            raise RunError(
                f"{problem}. Put it there whole before the run starts: write it under a name that begins with '.', "
                "and rename it"
            ) from error
        if self._warned.get(lookup.name) != problem:
            self._warned[lookup.name] = problem
            self._warn(f"{problem}. The last version that could be read goes on counting")


def tables_of(graph: Graph, folder: str, batch: int) -> dict[str, pa.Table]:
    """Return the tables of a graph's lookups, in the version that counts for a batch."""
    return load_tables(Path(folder), batch) if graph.of_kind(Lookup) else {}


def load_tables(folder: Path, batch: int) -> dict[str, pa.Table]:
    """Return the tables that count for a batch, by lookup; none where the application has no lookups."""
    if not folder.exists():
        return {}
    tables = {}
    for name, version in _named(folder, batch).items():
        path = folder / version["snapshot"]
        try:
            status = path.stat()
            tables[name] = _open(str(path), status.st_ino, status.st_mtime_ns)
        except (OSError, pa.ArrowInvalid) as error:
            raise RunError(f"the table of '{name}' for batch {batch} cannot be read: {error}") from error
    return tables


@functools.lru_cache(maxsize=16)
def _open(path: str, inode: int, changed: int) -> pa.Table:
    """Map a snapshot; a worker does so once, and tells it from another of the same name."""
    with pa.memory_map(path) as mapped:
        reader = pa.ipc.open_file(mapped)
        return pa.Table.from_batches(list(record_batches(reader)), reader.schema)


def _version(lookup: Lookup) -> Version:
    """Say what a table would be read from now."""
    if isinstance(lookup.table, Rows):
        return [["memory", hashlib.sha256(_as_file(lookup.table.table)).hexdigest()]]
    files = [(file, os.stat(file)) for file in lookup.table.listing()]
    if not files:
        raise RunError(f"no file matches {', '.join(lookup.table.patterns)}")
    return [[file, status.st_size, status.st_mtime_ns, status.st_ino] for file, status in files]


def _read(lookup: Lookup) -> pa.Table:
    """Read a whole table in the schema it was announced with."""
    wanted = lookup.table_schema
    if isinstance(lookup.table, Rows):
        return lookup.table.table.cast(wanted)
    tables: list[pa.Table] = []
    for file in lookup.table.listing():
        if lookup.table.format == "parquet":
            tables.append(_read_parquet(file, wanted))
        else:
            tables += _read_records(lookup.table, file, wanted)
    return pa.concat_tables(tables) if tables else wanted.empty_table()


def _read_records(files: Files, file: str, wanted: pa.Schema) -> Iterator[pa.Table]:
    """Read a file of records. A table that lacks some of them would give wrong answers, so none may be bad."""
    pieces = parse_file(
        file,
        files.format,
        files.schema,
        max_record_bytes=files.max_record_bytes,
        notation=files.notation,
    )
    for piece in pieces:
        if piece.bad:
            place = ", ".join(f"{name} {value}" for name, value in piece.bad[0].position.items())
            raise RunError(f"at {place}, {piece.bad[0].reason}")
        yield piece.table.cast(wanted)


def _read_parquet(file: str, wanted: pa.Schema) -> pa.Table:
    try:
        with pq.ParquetFile(file) as parquet:
            lacking = [name for name in wanted.names if name not in parquet.schema_arrow.names]
            if lacking:
                raise RunError(f"{file} has no column '{lacking[0]}'")
            return parquet.read(wanted.names).select(wanted.names).cast(wanted)
    except pa.ArrowException as error:
        raise RunError(f"{file}: {error}") from error


def _as_file(table: pa.Table) -> bytes:
    """Write a table as an Arrow file of one batch, so that its columns are each in one piece when mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def _path(folder: Path, batch: int) -> Path:
    return folder / f"{batch}.json"


def _batches(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.json"))


def _snapshots(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("*.arrow"):
        lookup, _, number = path.stem.rpartition("-")
        if lookup == name:
            yield int(number), path


def _named(folder: Path, batch: int) -> dict[str, dict[str, Any]]:
    path = _path(folder, batch)
    data = load_json(path, FORMAT, {"tables": dict}, remedy=_REMEDY)
    if data is None:
        raise RunError(f"{path} does not exist: nobody said which tables count for batch {batch}")
    tables: dict[str, dict[str, Any]] = data["tables"]
    with checking(path, _REMEDY):
        return {name: {"snapshot": t["snapshot"], "version": t["version"]} for name, t in tables.items()}
