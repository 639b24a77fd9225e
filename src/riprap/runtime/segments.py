"""Recorded input as numbered rows: the durable list of the segments that hold them.

A source of files is a sequence of rows, numbered from 0 in the order its files were first seen. The list of segments
is written down before any offset that refers to it is given to Spark, so a restart numbers the rows alike.

``segments.jsonl`` in the source's folder, one object a line:

    {"format": "riprap-segments/1"}
    {"file": "a.parquet", "path": "a.parquet", "kind": "parquet", "start": 0, "rows": 1000000}
    {"closed": "a.parquet"}                                   all rows of the file are listed
    {"end": 1000000}                                          the listing was fixed, and this is all of it

Parquet files are read in place. CSV and JSON files, whose rows cannot be found by number, are parsed once into Arrow
files beside the list (the *spool*), which tasks then map.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from riprap.errors import FormatError, RunError
from riprap.expressions import normalise
from riprap.graph.connectors import Files, Rows
from riprap.graph.operators import Source
from riprap.runtime.json_lines import readable

FORMAT = "riprap-segments/1"
MEMORY = "memory"
_LIST = "segments.jsonl"
_SPOOL_ROWS = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive rows of a source in one file that can be read by row number."""

    file: str
    path: str
    kind: str
    start: int
    rows: int

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
        end = None
        if (folder / _LIST).exists():
            for line in (folder / _LIST).read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    end = json.loads(line).get("end")
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
            self._path.write_text("".join(lines[: len(whole)]))


class Feed:
    """The rows of a source of files or memory, found as they are asked for."""

    def __init__(self, source: Source, folder: Path, *, finite: bool) -> None:
        self.log = SegmentLog(folder)
        self._connector = source.connector
        self._finite = finite
        self._listing: list[str] | None = None
        self._released = 0
        self._file: str | None = None
        self._pending: Iterator[Segment] = iter(())

    def upto(self, wanted: int) -> int:
        """Find rows until there are ``wanted`` of them; return how many there are, at most ``wanted``."""
        while self.log.rows < wanted and not (self._finite and self.log.end is not None):
            segment = next(self._pending, None)
            if segment is not None:
                self.log.add(segment)
            elif self._file is not None:
                self.log.close(self._file)
                self._file = None
            elif not self._open_next():
                if self._finite:
                    self.log.finish()
                break
        return min(self.log.rows, wanted)

    def release(self, offset: int) -> None:
        """Remove spooled rows before an offset: Spark will not ask for them again."""
        segments = self.log.segments
        while self._released < len(segments) and segments[self._released].end <= offset:
            segment = segments[self._released]
            if segment.path != segment.file and segment.file != MEMORY:
                Path(segment.path).unlink(missing_ok=True)
            self._released += 1

    def fix(self) -> None:
        """Take no file into account that is not there now."""
        self._finite = True
        if self._listing is None:
            self._listing = self._list()

    def _open_next(self) -> bool:
        files = self._listing if self._listing is not None else self._list()
        if self._finite:
            self._listing = files
        for file in files:
            if file not in self.log.closed:
                known = sum(s.file == file for s in self.log.segments)
                self._file, self._pending = file, _segments(self._connector, file, self.log, skip=known)
                return True
        return False

    def _list(self) -> list[str]:
        if not isinstance(self._connector, Files):
            return [MEMORY]
        # Absolute: executors do not start in the driver's folder.
        return [str(Path(file).absolute()) for file in self._connector.listing()]


def spool_rows(source: Source, folder: Path) -> None:
    """Write a source's rows in memory to its folder, where tasks find them."""
    if isinstance(source.connector, Rows):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "memory.arrow"
        if not path.exists():
            table = source.connector.table
            plain = {f.name: normalise(table.column(f.name)) for f in table.schema}
            _write_spool(path, pa.table(plain) if plain else table)


def _segments(connector: object, file: str, log: SegmentLog, *, skip: int) -> Iterator[Segment]:
    """List the segments of a file, but for the first ``skip``."""
    start = log.rows
    if not isinstance(connector, Files):
        path = log.folder / "memory.arrow"
        with pa.memory_map(str(path)) as mapped:
            rows = sum(b.num_rows for b in record_batches(pa.ipc.open_file(mapped)))
        if rows and not skip:
            yield Segment(file=file, path=str(path), kind="arrow", start=start, rows=rows)
    elif connector.format == "parquet":
        rows = _parquet_rows(file)
        if rows and not skip:
            yield Segment(file=file, path=file, kind="parquet", start=start, rows=rows)
    else:
        number = len(log.segments) - skip
        for place, table in enumerate(parse_file(connector, file)):
            if place >= skip:
                path = log.folder / f"spool-{number + place:06d}.arrow"
                _write_spool(path, table)
                yield Segment(file=file, path=str(path), kind="arrow", start=start, rows=table.num_rows)
                start += table.num_rows


def record_batches(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """Return the batches of an Arrow file."""
    return (reader.get_batch(i) for i in range(reader.num_record_batches))


def _parquet_rows(file: str) -> int:
    try:
        rows: int = pq.read_metadata(file).num_rows
        return rows
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(
            f"{file} is not a readable Parquet file: {error}. Move half-written files in under a name that starts "
            "with '_' or '.', and rename them when they are whole"
        ) from error


def parse_file(connector: Files, file: str) -> Iterator[pa.Table]:
    """Parse a CSV or JSON file piece by piece, in the declared schema."""
    wanted = connector.schema
    try:
        with pa.input_stream(file, compression="detect") as stream:
            if not stream.read(1):
                return  # no bytes are no rows; Arrow would call them an error
        with pa.input_stream(file, compression="detect") as stream:
            if connector.format == "csv":
                reader = pa.csv.open_csv(
                    stream,
                    convert_options=pa.csv.ConvertOptions(
                        column_types=wanted,
                        include_columns=wanted.names,
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                        null_values=[""],
                    ),
                    parse_options=pa.csv.ParseOptions(newlines_in_values=True),
                )
            else:
                reader = pa.json.open_json(
                    stream,
                    parse_options=pa.json.ParseOptions(
                        explicit_schema=readable(wanted), unexpected_field_behavior="ignore"
                    ),
                )
            held: list[pa.RecordBatch] = []
            for batch in reader:
                held.append(batch)
                if sum(b.num_rows for b in held) >= _SPOOL_ROWS:
                    yield pa.Table.from_batches(held).select(wanted.names).cast(wanted)
                    held = []
            if held:
                yield pa.Table.from_batches(held).select(wanted.names).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise RunError(
            f"{connector.format} file {file} cannot be read as {_shown(wanted)}: {error}"
        ) from error


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _write_spool(path: Path, table: pa.Table) -> None:
    temporary = path.with_suffix(".tmp")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_SPOOL_ROWS)
    temporary.rename(path)
