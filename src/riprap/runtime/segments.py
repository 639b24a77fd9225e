"""Recorded input as numbered rows: the durable list of the segments that hold them.

A source is a sequence of rows, numbered from 0 in the order they were first seen. The list of segments is written down
before any offset that refers to it is given to Spark, so a restart numbers the rows alike.

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

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from riprap.adapters.fetching import Cursor
from riprap.errors import FormatError

FORMAT = "riprap-segments/2"
_LIST = "segments.jsonl"
# Rows of a spool file, and of each batch in it.
SPOOL_ROWS = 250_000
# More than the longest line: it names two paths.
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
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
        self.segments: list[Segment] = []
        self.closed: set[str] = set()
        self.end: int | None = None
        self._path = folder / _LIST
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
        end: int | None = json.loads(lines[-1]).get("end") if lines else None
        return end

    @property
    def rows(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def add(self, segment: Segment) -> None:
        """Write down a segment; only then may an offset refer to it."""
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

    def between(self, start: int, end: int) -> list[Segment]:
        """Return the segments that hold rows [start, end)."""
        return [s for s in self.segments if s.start < end and start < s.end]

    def _append(self, line: Mapping[str, object]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _load(self) -> None:
        lines = self._path.read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        if not whole and json.dumps({"format": FORMAT}).startswith("".join(lines)):
            # A crash cut off the very first line.
            self._path.unlink()
            self._append({"format": FORMAT})
            return
        if not whole or whole[0] != {"format": FORMAT}:
            raise FormatError(f"{self._path} is not of format {FORMAT}")
        for line in whole[1:]:
            if "end" in line:
                self.end = line["end"]
            elif "closed" in line:
                self.closed.add(line["closed"])
            else:
                self.segments.append(Segment(**line))
                self.end = None
        if len(whole) < len(lines):
            # The last line was cut off by a crash, so no offset refers to it.
            os.truncate(self._path, sum(len(line.encode()) for line in lines[: len(whole)]))


def record_batches(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """Return the batches of an Arrow file."""
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def write_spool(path: Path, table: pa.Table) -> None:
    """Write a spool file; it appears whole."""
    temporary = path.with_suffix(".tmp")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=SPOOL_ROWS)
    temporary.rename(path)
