"""Number the rows of what can be listed: files, rows in memory, a generator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.adapters.parsing import parse_file
from riprap.adapters.retrying import Tell
from riprap.errors import RunError
from riprap.expressions import normalise
from riprap.feeds.pacing import PACE
from riprap.feeds.quarantine import set_aside
from riprap.feeds.segments import SPOOL_ROWS, FeedSegment, SegmentLog, record_batches, write_arrow
from riprap.graph.connectors import Files, Generated, Rows
from riprap.operators.source import Source
from riprap.state.durable_files import put_in_place

MEMORY = "memory"
# What stands for the file of a line that is in none; files have absolute paths.
_LAST_LINE = "last line"
# A generated source has no last row of its own.
_ENDLESS = 2**60


class ListedFeed:
    """The rows of files, of memory, or of a generator: each file is looked at when its turn comes."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        quarantine: Path,
        *,
        finite: bool,
        by_file: bool = False,
        tell: Tell | None = None,
    ) -> None:
        self.log = SegmentLog(folder)
        self._tell = tell
        self._source = source
        self._connector = source.connector
        self._quarantine = quarantine
        self._finite = finite
        self._by_file = by_file or (isinstance(self._connector, Files) and self._connector.scan)
        self._left: deque[str] | None = None
        self._released = 0
        self._file: str | None = None
        self._pending: Iterator[FeedSegment] = iter(())
        last = self.log.segments[-1].file if self.log.segments else None
        if last is not None and last not in self.log.closed:
            # An earlier process was in the middle of it: other files come after it, whatever their names.
            listed = [segment for segment in self.log.segments if segment.file == last]
            self._file, self._pending = last, self._segments(last, listed)

    def upto(self, start: int, rows: int) -> int:
        self.find(start + rows)
        end = min(self.log.rows, start + rows)
        return min(end, self._end_of_file(start)) if self._by_file else end

    def find(self, end: int) -> None:
        while self.log.rows < end and not (self._finite and self.log.end is not None):
            if not self._list_more() and not self._open_next():
                if self._finite:
                    self.log.finish()
                break

    def ends_file(self, end: int) -> bool:
        # Of a file that is being read more may follow, or nothing that counts.
        while self.log.rows == end and self._file is not None:
            self._list_more()
        return end > 0 and self._end_of_file(end - 1) == end

    def _list_more(self) -> bool:
        """List the next segment of the file that is being read, or that it has no more; False if none is being read."""
        segment = self._next()
        if segment is not None:
            self.log.add(segment)
        elif self._file is not None:
            self.log.close(self._file)
            self._file = None
        else:
            return False
        return True

    def _next(self) -> FeedSegment | None:
        try:
            return next(self._pending, None)
        except BaseException:
            if self._file is not None:
                # A file that failed has not ended: whoever asks again is told again.
                listed = [segment for segment in self.log.segments if segment.file == self._file]
                self._pending = self._segments(self._file, listed)
            raise

    def release(self, offset: int) -> None:
        segments = self.log.segments
        # The row before the offset stays: the next one's position must not be smaller.
        while self._released < len(segments) and segments[self._released].end < offset:
            segment = segments[self._released]
            if segment.spooled and segment.file != MEMORY:
                Path(segment.path).unlink(missing_ok=True)
            self._released += 1

    def close(self) -> None: ...

    @property
    def over(self) -> bool:
        return self.ended

    @property
    def ended(self) -> bool:
        return self._finite and self.log.end is not None

    def fix(self) -> None:
        self._finite = True
        if self._left is None:
            self._left = self._list()

    def _end_of_file(self, row: int) -> int:
        """Return where the file that holds a row ends, as far as it is known."""
        after = [s for s in self.log.segments if s.end > row]
        same = [s.end for s in after if s.file == after[0].file]
        return max(same, default=row)

    def _open_next(self) -> bool:
        if self._finite and self.log.segments and self.log.segments[-1].file == _LAST_LINE:
            # An earlier process came to the end: files that have appeared since are not of this run.
            return False
        left = self._left if self._left is not None else self._list()
        if self._finite:
            self._left = left
        while left:
            file = left.popleft()
            if file not in self.log.closed:
                self._file, self._pending = file, self._segments(file)
                return True
        if self._finite and self._has_last_line and _LAST_LINE not in self.log.closed:
            self._file, self._pending = _LAST_LINE, self._segments(_LAST_LINE)
            return True
        return False

    @property
    def _has_last_line(self) -> bool:
        return isinstance(self._connector, Files) and self._connector.last_line is not None

    def _list(self) -> deque[str]:
        if not isinstance(self._connector, Files):
            return deque([MEMORY])
        files = self._connector.listing()
        if not files and not self._finite and self._tell is not None and not self.log.segments:
            what = f"source '{self._source.name}' ({self._source.location})"
            self._tell(
                "waiting", what=what, message=f"no file matches {', '.join(self._connector.patterns)} yet"
            )
            # Once is enough.
            self._tell = None
        # Absolute: executors do not start in the driver's folder.
        return deque(str(Path(file).absolute()) for file in files)

    def _segments(self, file: str, listed: Sequence[FeedSegment] = ()) -> Iterator[FeedSegment]:
        """List the segments of a file, but for those that are listed already."""
        if file == _LAST_LINE:
            if not listed:
                yield self._last_line()
        elif isinstance(self._connector, Files) and self._connector.format != "parquet":
            yield from self._parsed(self._connector, file, listed)
        elif not listed:
            yield from self._whole(file)

    def _last_line(self) -> FeedSegment:
        """Spool the line that follows the last file."""
        assert isinstance(self._connector, Files)
        row = dict.fromkeys(self._connector.schema.names) | {"line": self._connector.last_line}
        path = self.log.spool(len(self.log.segments), pa.Table.from_pylist([row], self._connector.schema))
        return FeedSegment(file=_LAST_LINE, path=str(path), kind="arrow", start=self.log.rows, rows=1)

    def _whole(self, file: str) -> Iterator[FeedSegment]:
        """Yield what can be read by row number where it is."""
        start = self.log.rows
        match self._connector:
            case Files():
                rows = self._parquet_rows(file)
                if rows:
                    yield FeedSegment(file=file, path=file, kind="parquet", start=start, rows=rows)
            case Generated(limit=limit):
                path = self.log.folder / PACE
                yield FeedSegment(file=file, path=str(path), kind="rate", start=start, rows=limit or _ENDLESS)
            case _:
                path = self.log.folder / "memory.arrow"
                with pa.memory_map(str(path)) as mapped:
                    rows = sum(b.num_rows for b in record_batches(pa.ipc.open_file(mapped)))
                if rows:
                    yield FeedSegment(file=file, path=str(path), kind="arrow", start=start, rows=rows)

    def _parquet_rows(self, file: str) -> int:
        """Return how many rows a file has, which must have the columns of the source."""
        try:
            footer = pq.read_metadata(file)
            names = footer.schema.to_arrow_schema().names
        except (pa.ArrowInvalid, OSError) as error:
            raise RunError(
                f"{file} is not a readable Parquet file: {error}. Move half-written files in under a name that starts "
                "with '_' or '.', and rename them when they are whole"
            ) from error
        lacking = [name for name in self._source.schema.names if name not in names]
        if lacking:
            raise RunError(
                f"source '{self._source.name}' ({self._source.location}): {file} has no column '{lacking[0]}'. It has: "
                f"{', '.join(names)}. Name in schema= the columns that all files have, or give other files a source of "
                "their own"
            )
        return int(footer.num_rows)

    def _parsed(self, connector: Files, file: str, listed: Sequence[FeedSegment]) -> Iterator[FeedSegment]:
        pieces = parse_file(
            file,
            connector.format,
            connector.schema,
            max_record_bytes=connector.max_record_bytes,
            notation=connector.notation,
            rows=SPOOL_ROWS,
        )
        # By rows and not by pieces: a file that was damaged, and is whole now, is cut up differently.
        rows, wrong = sum(s.rows for s in listed), sum(s.bad for s in listed)
        for piece in pieces:
            table, bad = piece.table.slice(min(rows, piece.table.num_rows)), piece.bad[wrong:]
            rows, wrong = max(rows - piece.table.num_rows, 0), max(wrong - len(piece.bad), 0)
            if table.num_rows or bad:
                number = len(self.log.segments)
                set_aside(self._source, self._quarantine, number, bad)
                path = self.log.spool(number, table)
                yield FeedSegment(
                    file=file,
                    path=str(path),
                    kind="arrow",
                    start=self.log.rows,
                    rows=table.num_rows,
                    bad=len(bad),
                )


def spool_rows(source: Source, folder: Path) -> None:
    """Write a source's rows in memory to its folder, where tasks find them."""
    if isinstance(source.connector, Rows):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "memory.arrow"
        if not path.exists():
            table = source.connector.table
            plain = {f.name: normalise(table.column(f.name)) for f in table.schema}
            written = write_arrow(path.with_suffix(".tmp"), pa.table(plain) if plain else table)
            put_in_place(written, path)
