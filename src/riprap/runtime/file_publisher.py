"""Publish the batches of a sink as a folder of files."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from riprap.adapters.retrying import Tell
from riprap.adapters.table_files import read_table, write_table
from riprap.errors import RunError
from riprap.graph.connectors import FileSink
from riprap.runtime.outflow import ResultReader
from riprap.runtime.output_lease import OutputLease
from riprap.state.durable_files import put_in_place
from riprap.state.ledger import Output

# Unless the user says: so long rows wait for their file.
_ROLL_SECONDS = 10.0
_PART = re.compile(r"part-(\d{10})-(\d{10})\.(parquet|csv|json)(\.gz)?")


class FilePublisher:
    """Writes files named after the batches they hold; a file appears whole, by renaming.

    Small batches wait as pages until they are worth a file. What is published is read off the folder's names, so a
    repeated batch is seen to be there already. Nobody else may write to the folder: see :class:`OutputLease`.
    """

    def __init__(
        self,
        connector: FileSink,
        reader: ResultReader,
        *,
        run: str,
        sink: str,
        resume: bool,
        tell: Tell,
        clock: Callable[[], float],
    ) -> None:
        self.connector = connector
        self._tell = tell
        self._reader = reader
        self._clock = clock
        self._folder = Path(connector.path)
        # The query publishes from its own thread, while run.table() and others flush from the user's.
        self._lock = threading.RLock()
        self._pending: list[tuple[int, Sequence[Output]]] = []
        self._since = 0.0
        self._resume = resume
        self._lease = self._take_hold(run, sink)
        self.published = max((last for _, last, _ in self._parts()), default=-1) if resume else -1
        self._lacking: set[int] = set()
        self._empty: set[Path] = set()

    def begin(self) -> None:
        # Signed first: a run whose files are being removed must not be taken up.
        self._lease.sign()
        for half in self._folder.glob("_part-*"):
            half.unlink()
        if self._resume:
            self._find_empty()
        else:
            for _, path in self._numbered():
                path.unlink()

    def publish(self, batch: int, outputs: Sequence[Output]) -> None:
        with self._lock:
            if batch in self._lacking and self._lease.held:
                # Between files that are there: it is a file of its own.
                self._write([(batch, outputs)])
                self._lacking.remove(batch)
                return
            taken = self._pending[-1][0] if self._pending else self.published
            if batch <= taken:
                return
            if not self._pending:
                self._since = self._clock()
            self._pending.append((batch, outputs))
            rows = sum(o.rows for _, outputs in self._pending for o in outputs)
            if rows >= self.connector.roll_rows or self.due:
                self.flush()

    @property
    def due(self) -> bool:
        """Whether rows have waited for their file for as long as they may."""
        roll = self.connector.roll_seconds
        return bool(self._pending) and self._clock() - self._since >= (
            _ROLL_SECONDS if roll is None else roll
        )

    @property
    def yields(self) -> bool:
        """Whether nobody said how long rows wait for their file, so that it is written when a cut needs it."""
        return self.connector.roll_seconds is None

    def hurry(self) -> None:
        """Let what waits be due: somebody is in need of it."""
        self._since = -math.inf

    def take_up(self, batch: int, outputs: Sequence[Output]) -> None:
        self.publish(batch, outputs)

    def flush(self) -> None:
        with self._lock:
            # Once the folder is let go of, another process may be publishing what waits.
            if not self._lease.held:
                return
            # All that is still at hand of what they held is in files of its own by now.
            while self._empty:
                self._empty.pop().unlink()
            if not self._pending:
                return
            self._write(self._pending)
            self.published = self._pending[-1][0]
            self._pending = []

    def has(self, batch: int) -> bool:
        """Say whether a batch is published."""
        return batch <= self.published and batch not in self._lacking

    def table(self) -> pa.Table:
        self.check()
        files = sorted(path for _, _, path in self._parts())
        schema = self._reader.schema
        tables = [read_table(f, schema, self.connector) for f in files]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def check(self) -> None:
        """See to it that the folder holds this sink's rows, all so far, and no others."""
        self.flush()
        self._lease.check()

    def close(self) -> None:
        with self._lock:
            self._lease.release()

    def _parts(self) -> list[tuple[int, int, Path]]:
        # One without contents is what a power cut leaves of a file that was not synced: it is not published.
        return [(first, last, path) for (first, last), path in self._numbered() if path.stat().st_size]

    def _numbered(self) -> list[tuple[tuple[int, int], Path]]:
        """List the files named after batches, with the first and the last of each."""
        parts = ((_PART.fullmatch(path.name), path) for path in self._folder.iterdir())
        return [((int(part[1]), int(part[2])), path) for part, path in parts if part]

    def _write(self, batches: Sequence[tuple[int, Sequence[Output]]]) -> None:
        first, last = batches[0][0], batches[-1][0]
        table = pa.concat_tables([self._reader.read(outputs) for _, outputs in batches])
        if table.num_rows:
            path = self._folder / f"part-{first:010d}-{last:010d}{self.connector.ending}"
            temporary = self._folder / f"_{path.name}"
            write_table(table, temporary, self.connector)
            put_in_place(temporary, path)
            self._empty.discard(path)

    def _take_hold(self, run: str, sink: str) -> OutputLease:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the output folder {self._folder}: {error}") from error
        lease = OutputLease.take(self._folder, run=run, sink=sink, resume=self._resume)
        parts = self._parts()
        if parts and not self._resume and not self.connector.overwrite:
            lease.release()
            raise RunError(
                f"the output folder {self._folder} holds {len(parts)} files of an earlier run. Choose another folder, "
                "or replace them with overwrite=True (on the command line: --overwrite)"
            )
        return lease

    def _find_empty(self) -> None:
        """Find files that a power cut left without contents, and remove them: readers of the folder would stumble.

        Those before the newest file stay until what is at hand of them is written: by them one can tell what lacks.
        """
        empty = {path: lacking for lacking, path in self._numbered() if not path.stat().st_size}
        for path, (first, last) in empty.items():
            if first > self.published:
                path.unlink()
            else:
                self._empty.add(path)
                self._lacking |= {*range(first, last + 1)}
        if empty:
            names = ", ".join(sorted(path.name for path in empty))
            what = "were empty, as after a power cut. They are published again where their results are still at hand"
            self._tell("warning", what=f"sink in {self._folder}", message=f"{names} {what}")
