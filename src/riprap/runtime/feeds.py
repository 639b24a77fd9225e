"""Find the rows of a source as they are asked for, and number them.

Files, rows in memory and generated ones are looked at when a batch is chosen. What is fetched from a server is read by
a thread, ahead of the batches. Either way a row counts once its segment is written down.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.adapters.bad_records import BadRecord, write_quarantine
from riprap.adapters.fetching import Cursor, Fetched, Fetcher
from riprap.adapters.opening import open_fetcher
from riprap.adapters.parsing import parse_file
from riprap.adapters.retrying import ConnectionLost, Retry, Tell
from riprap.errors import RunError
from riprap.expressions import normalise
from riprap.graph.connectors import FetchedSource, Files, Generated, Rows
from riprap.graph.operators import Source
from riprap.runtime.leaving import Leaving
from riprap.runtime.segments import SPOOL_ROWS, Segment, SegmentLog, record_batches, write_spool

MEMORY = "memory"
# What stands for the file of a line that is in none; files have absolute paths.
_LAST_LINE = "last line"
_PACE = "pace.json"
_PACE_FORMAT = "riprap-pace/1"
# A generated source has no last row of its own.
_ENDLESS = 2**60
_POLL_SECONDS = 0.1
# How many batches are fetched ahead of the one at hand.
_BATCHES_AHEAD = 3
# A server that hung up without a word is back when it says something, or has not hung up for so long.
_STANDS_SECONDS = 5.0
# How long a process of a driver that is gone may take to end.
_OTHERS_SECONDS = 30.0


class Feed(Protocol):
    """The numbered rows of a source."""

    log: SegmentLog

    def upto(self, start: int, rows: int) -> int:
        """Return where a batch that begins at a row may end; it has at most so many rows."""

    def find(self, end: int) -> None:
        """See to it that the rows before one are known: an earlier process saw them."""

    def release(self, offset: int) -> None:
        """Remove spooled rows before an offset: Spark will not ask for them again."""

    def fix(self) -> None:
        """Take no input into account that is not there now."""


def open_feed(
    source: Source, folder: Path, quarantine: Path, *, finite: bool, batch_rows: int, tell: Tell
) -> Feed:
    """Open the rows of a source."""
    if isinstance(source.connector, FetchedSource):
        return FetchedFeed(source, folder, quarantine, finite=finite, batch_rows=batch_rows, tell=tell)
    return ListedFeed(source, folder, quarantine, finite=finite)


class ListedFeed:
    """The rows of files, of memory, or of a generator: each file is looked at when its turn comes."""

    def __init__(self, source: Source, folder: Path, quarantine: Path, *, finite: bool) -> None:
        self.log = SegmentLog(folder)
        self._source = source
        self._connector = source.connector
        self._quarantine = quarantine
        self._finite = finite
        self._left: deque[str] | None = None
        self._released = 0
        self._file: str | None = None
        self._pending: Iterator[Segment] = iter(())
        last = self.log.segments[-1].file if self.log.segments else None
        if last is not None and last not in self.log.closed:
            # An earlier process was in the middle of it: other files come after it, whatever their names.
            known = [segment for segment in self.log.segments if segment.file == last]
            self._file, self._pending = last, self._segments(last, known)

    def upto(self, start: int, rows: int) -> int:
        self.find(start + rows)
        end = min(self.log.rows, start + rows)
        if isinstance(self._connector, Files) and self._connector.scan:
            end = min(end, self._end_of_file(start))
        return end

    def find(self, end: int) -> None:
        while self.log.rows < end and not (self._finite and self.log.end is not None):
            segment = self._next()
            if segment is not None:
                self.log.add(segment)
            elif self._file is not None:
                self.log.close(self._file)
                self._file = None
            elif not self._open_next():
                if self._finite:
                    self.log.finish()
                break

    def _next(self) -> Segment | None:
        try:
            return next(self._pending, None)
        except BaseException:
            if self._file is not None:
                # A file that failed has not ended: whoever asks again is told again.
                known = [segment for segment in self.log.segments if segment.file == self._file]
                self._pending = self._segments(self._file, known)
            raise

    def release(self, offset: int) -> None:
        segments = self.log.segments
        while self._released < len(segments) and segments[self._released].end <= offset:
            segment = segments[self._released]
            if segment.spooled and segment.file != MEMORY:
                Path(segment.path).unlink(missing_ok=True)
            self._released += 1

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
        # Absolute: executors do not start in the driver's folder.
        return deque(str(Path(file).absolute()) for file in self._connector.listing())

    def _segments(self, file: str, known: Sequence[Segment] = ()) -> Iterator[Segment]:
        """List the segments of a file, but for those that are listed already."""
        if file == _LAST_LINE:
            if not known:
                yield self._last_line()
        elif isinstance(self._connector, Files) and self._connector.format != "parquet":
            yield from self._parsed(self._connector, file, known)
        elif not known:
            yield from self._whole(file)

    def _last_line(self) -> Segment:
        """Spool the line that follows the last file."""
        assert isinstance(self._connector, Files)
        row = dict.fromkeys(self._connector.schema.names) | {"line": self._connector.last_line}
        path = self.log.folder / f"spool-{len(self.log.segments):08d}.arrow"
        write_spool(path, pa.Table.from_pylist([row], self._connector.schema))
        return Segment(file=_LAST_LINE, path=str(path), kind="arrow", start=self.log.rows, rows=1)

    def _whole(self, file: str) -> Iterator[Segment]:
        """Yield what can be read by row number where it is."""
        start = self.log.rows
        match self._connector:
            case Files():
                rows = _parquet_rows(file)
                if rows:
                    yield Segment(file=file, path=file, kind="parquet", start=start, rows=rows)
            case Generated(limit=limit):
                path = self.log.folder / _PACE
                yield Segment(file=file, path=str(path), kind="rate", start=start, rows=limit or _ENDLESS)
            case _:
                path = self.log.folder / "memory.arrow"
                with pa.memory_map(str(path)) as mapped:
                    rows = sum(b.num_rows for b in record_batches(pa.ipc.open_file(mapped)))
                if rows:
                    yield Segment(file=file, path=str(path), kind="arrow", start=start, rows=rows)

    def _parsed(self, connector: Files, file: str, known: Sequence[Segment]) -> Iterator[Segment]:
        pieces = parse_file(
            file,
            connector.format,
            connector.schema,
            max_record_bytes=connector.max_record_bytes,
            rows=SPOOL_ROWS,
        )
        # By rows and not by pieces: a file that was damaged, and is whole now, is cut up differently.
        rows, wrong = sum(s.rows for s in known), sum(s.bad for s in known)
        for piece in pieces:
            table, bad = piece.table.slice(min(rows, piece.table.num_rows)), piece.bad[wrong:]
            rows, wrong = max(rows - piece.table.num_rows, 0), max(wrong - len(piece.bad), 0)
            if table.num_rows or bad:
                number = len(self.log.segments)
                _set_aside(self._source, self._quarantine, number, bad)
                path = self.log.folder / f"spool-{number:08d}.arrow"
                write_spool(path, table)
                yield Segment(
                    file=file,
                    path=str(path),
                    kind="arrow",
                    start=self.log.rows,
                    rows=table.num_rows,
                    bad=len(bad),
                )


class FetchedFeed:
    """The rows of a server, fetched by a thread while batches go on."""

    def __init__(
        self, source: Source, folder: Path, quarantine: Path, *, finite: bool, batch_rows: int, tell: Tell
    ) -> None:
        self._held = _hold(folder, f"source '{source.name}' ({source.location})")
        self.log = SegmentLog(folder)
        connector = source.connector
        assert isinstance(connector, FetchedSource)
        self._source = source
        self._quarantine = quarantine
        self._finite = finite
        # Such a source is a connection that ends when the server closes it; others end when they have no more for now.
        self._once = not connector.PROMISE.exact
        self._leaving = Leaving(folder)
        self._hung_up = False
        self._ahead = _BATCHES_AHEAD * batch_rows
        self._fetcher: Fetcher = open_fetcher(connector, tell)
        self._what = f"source '{source.name}' ({source.location})"
        self._retry = Retry(f"{self._what}, {connector}", connector.patience, tell)
        self._number = len(self.log.segments)
        self._taken = 0
        self._room = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def upto(self, start: int, rows: int) -> int:
        self._taken = start
        self._room.set()
        if self._thread is None and not (self._finite and self.log.end is not None):
            self._thread = threading.Thread(target=self._run, name=f"fetch {self._source.name}", daemon=True)
            self._thread.start()
        end = min(self.log.rows, start + rows)
        if end == start and self._failure is not None:
            raise self._failure
        return end

    def find(self, end: int) -> None:
        # Nothing to do: what an earlier process saw is spooled.
        return

    def release(self, offset: int) -> None:
        while self.log.segments and self.log.segments[0].end <= offset and len(self.log.segments) > 1:
            Path(self.log.segments.pop(0).path).unlink(missing_ok=True)

    def fix(self) -> None:
        self._finite = True

    def _run(self) -> None:
        try:
            while not self._leaving.asked and not self._read_all():
                time.sleep(_POLL_SECONDS)
            if self._leaving.asked:
                self._fetcher.close()
                # Here only: the input has not ended, and whoever takes the run up reads on.
                self.log.end = self.log.rows
                self._leaving.answer(self.log.rows)
        except BaseException as error:
            # For the thread that asks for rows: it is raised there.
            self._failure = error
        finally:
            self._fetcher.close()

    def _read_all(self) -> bool:
        """Fetch what there is; return whether that is all there is going to be."""
        cursor = self.log.segments[-1].cursor if self.log.segments else None
        began, brought = time.monotonic(), False
        try:
            for fetched in self._fetch(cursor):
                brought = brought or fetched is not None
                if brought or not self._hung_up or time.monotonic() - began >= _STANDS_SECONDS:
                    self._works()
                if fetched is not None:
                    self._keep(fetched)
                elif self._leaving.asked:
                    return True
            if self._once and not self._finite and not brought:
                self._hung_up = True
                raise ConnectionLost("closed by the server")
        except ConnectionLost as error:
            self._fetcher.close()
            if self._leaving.asked:
                return True
            self._retry.lost(error)
            return False
        self._works()
        if self._finite:
            self.log.finish()
        return self._finite

    def _works(self) -> None:
        self._hung_up = False
        self._retry.works()

    def _fetch(self, cursor: Cursor) -> Iterator[Fetched | None]:
        try:
            yield from self._fetcher.fetch(cursor)
        except RunError as error:
            raise RunError(f"{self._what}: {error}") from error

    def _keep(self, fetched: Fetched) -> None:
        number = self._number
        _set_aside(self._source, self._quarantine, number, fetched.bad)
        path = self.log.folder / f"spool-{number:08d}.arrow"
        write_spool(path, fetched.table)
        self.log.add(
            Segment(
                file="fetched",
                path=str(path),
                kind="arrow",
                start=self.log.rows,
                rows=fetched.table.num_rows,
                bad=len(fetched.bad),
                cursor=fetched.cursor,
            )
        )
        self._number += 1
        while self.log.rows - self._taken > self._ahead and not self._leaving.asked:
            self._room.wait(_POLL_SECONDS)
            self._room.clear()


def _hold(folder: Path, what: str) -> int:
    """Wait until nobody else fetches into a folder, and keep others from it for as long as this process lives.

    A process that fetches outlives the driver it worked for by a moment, and would go on numbering rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder / "fetching.lock", os.O_CREAT | os.O_RDWR, 0o600)
    deadline = time.monotonic() + _OTHERS_SECONDS
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return held
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(held)
                raise RunError(
                    f"{what}: another process still fetches into {folder}. End it, and take the run up again"
                ) from None
            time.sleep(_POLL_SECONDS)


def _set_aside(source: Source, folder: Path, number: int, bad: Sequence[BadRecord]) -> None:
    """Put bad records into the quarantine, or stop, as the source says."""
    if bad and getattr(source.connector, "on_bad_record", "quarantine") == "fail":
        raise RunError(
            f"source '{source.name}' ({source.location}): at {_place(bad[0])}, {bad[0].reason}. "
            "Correct it, or let such records go to the quarantine: on_bad_record='quarantine'"
        )
    write_quarantine(folder, number, bad)


def _place(bad: BadRecord) -> str:
    return ", ".join(f"{name} {value}" for name, value in bad.position.items())


def spool_rows(source: Source, folder: Path) -> None:
    """Write a source's rows in memory to its folder, where tasks find them."""
    if isinstance(source.connector, Rows):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "memory.arrow"
        if not path.exists():
            table = source.connector.table
            plain = {f.name: normalise(table.column(f.name)) for f in table.schema}
            write_spool(path, pa.table(plain) if plain else table)


def pace_start(folder: Path, rate: float) -> float:
    """Return when a paced source began: now, if it begins now. A restart goes on as if it had never stopped."""
    path = folder / _PACE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"format": _PACE_FORMAT, "start": time.time(), "rate": rate}))
        temporary.rename(path)
    began: float = json.loads(path.read_text())["start"]
    return began


def _parquet_rows(file: str) -> int:
    try:
        rows: int = pq.read_metadata(file).num_rows
        return rows
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(
            f"{file} is not a readable Parquet file: {error}. Move half-written files in under a name that starts "
            "with '_' or '.', and rename them when they are whole"
        ) from error
