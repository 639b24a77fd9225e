"""Recorded input as numbered rows: the durable list of the segments that hold them.

A source is a sequence of rows, numbered from 0 in the order they were first seen. The list of segments is written down,
and synced, before any offset that refers to it is given to Spark, so a restart numbers the rows alike.

``segments.jsonl`` in the source's folder, one object a line:

    {"format": "riprap-segments/2"}
    {"file": "a.parquet", "path": "a.parquet", "kind": "parquet", "start": 0, "rows": 1000000, "bad": 0, "cursor": null}
    {"closed": "a.parquet"}                                   all rows of the file are listed
    {"end": 1000000}                                          the listing was fixed, and this is all of it

Parquet files are read in place. What cannot be read by row number (records in files, rows fetched from a server) is
parsed once into Arrow files beside the list (the *spool*), which tasks then map. ``bad`` counts the records that could
not be read, and are in the quarantine; ``cursor`` says where to go on fetching. Rows of kind "rate" are not stored:
``path`` is the file that says how they are made.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.errors import FormatError
from riprap.graph.connectors import Cursor
from riprap.state.durable_files import COPY_OR_NEW, checking, damage, sync_file

FORMAT = "riprap-segments/2"
_LIST = "segments.jsonl"
# Rows of a spool file, and of each batch in it.
SPOOL_ROWS = 250_000
# More than the longest line: it names two paths.
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSegment:
    """Consecutive rows of a source in one file that can be read by row number."""

    file: str
    path: str
    kind: str
    start: int
    rows: int
    bad: int = 0
    cursor: Cursor = None

    @property
    def spooled(self) -> bool:
        """Whether the rows are in a file of the source's own folder."""
        return self.kind == "arrow"

    @property
    def end(self) -> int:
        return self.start + self.rows


class SegmentLog:
    """The durable list of a source's segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: list[FeedSegment] = []
        self.closed: set[str] = set()
        self.end: int | None = None
        self._path = folder / _LIST
        # Those who fetch ahead add to the list while batches are chosen.
        self._lock = threading.Lock()
        self._unsynced: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._load()
        else:
            self._append({"format": FORMAT})

    @staticmethod
    def end_of(folder: Path) -> int | None:
        """Return how many rows a source has in all, None while that is open.

        The list may be another process's, which is writing it: nothing is repaired.
        """
        path = folder / _LIST
        if not path.exists():
            return None
        with path.open("rb") as file:
            # Looked at again and again, so only the newest lines are read.
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        with checking(path):
            end: int | None = json.loads(lines[-1]).get("end") if lines else None
        return end

    @property
    def rows(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def add(self, segment: FeedSegment) -> None:
        """Write down a segment; only then, and once it is synced, may an offset refer to it."""
        self._append(asdict(segment))
        self.segments.append(segment)
        self.end = None

    def close(self, file: str) -> None:
        """Write down that all rows of a file are listed."""
        self._append({"closed": file})
        self.closed.add(file)

    def finish(self) -> None:
        """Write down that there is no more to come."""
        if self.end is None:
            self.end = self.rows
            self._append({"end": self.end})

    def between(self, start: int, end: int) -> list[FeedSegment]:
        """Return the segments that hold rows [start, end)."""
        return [s for s in self.segments if s.start < end and start < s.end]

    def spool(self, number: int, table: pa.Table) -> Path:
        """Write rows beside the list, whole, and return the file; :meth:`sync` puts it on the disk."""
        path = self.folder / f"spool-{number:08d}.arrow"
        temporary = write_arrow(path.with_suffix(".tmp"), table)
        temporary.rename(path)
        with self._lock:
            self._unsynced.append(path)
        return path

    def sync(self) -> None:
        """Wait until all that is listed is on the disk. Many are synced at once: before an offset refers to them."""
        with self._lock:
            paths, self._unsynced = self._unsynced, []
        for path in dict.fromkeys([*paths, self.folder] if paths else ()):
            # Rows that were read and are not needed any more may have gone meanwhile.
            with contextlib.suppress(FileNotFoundError):
                sync_file(path)

    def _append(self, line: Mapping[str, object]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        with self._lock:
            self._unsynced.append(self._path)

    def _load(self) -> None:
        lines = self._path.read_bytes().splitlines(keepends=True)
        if json.dumps({"format": FORMAT}).encode().startswith(b"".join(lines).rstrip(b"\0")):
            # A crash cut off the very first line.
            self._path.unlink()
            self._append({"format": FORMAT})
            return
        whole = list(takewhile(lambda line: line is not None, map(_parse, lines)))
        if not whole or whole[0] != {"format": FORMAT}:
            raise FormatError(f"{self._path} is not of format {FORMAT}. {COPY_OR_NEW}")
        if any(_parse(line) is not None for line in lines[len(whole) :]):
            raise damage(self._path, f"line {len(whole) + 1} is not JSON, and others follow it")
        good = 1
        for line in whole[1:]:
            with checking(self._path):
                if not self._take(line):
                    break
            good += 1
        if good < len(lines):
            # What a crash cut off or left empty was not synced, so no offset refers to it.
            os.truncate(self._path, sum(map(len, lines[:good])))
        # Whoever wrote the rest may have died before it was synced.
        self._unsynced += [*(Path(s.path) for s in self.segments if s.spooled), self._path]

    def _take(self, line: Any) -> bool:
        """Take in a line of the list, unless it names rows that are not on the disk."""
        if "end" in line:
            self.end = line["end"]
        elif "closed" in line:
            self.closed.add(line["closed"])
        else:
            segment = FeedSegment(**line)
            path = Path(segment.path)
            if segment.spooled and path.exists() and not path.stat().st_size:
                return False
            self.segments.append(segment)
            self.end = None
        return True


def _parse(line: bytes) -> Any:
    """Return what a line says, None if it is cut off or no JSON."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def record_batches(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """Return the batches of an Arrow file."""
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def write_arrow(path: Path, table: pa.Table) -> Path:
    """Write a table as an Arrow file that can be read by row number."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=SPOOL_ROWS)
    return path
