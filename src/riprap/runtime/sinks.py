"""What sinks do in the driver once a batch is on record."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from riprap.adapters.console import show
from riprap.adapters.retrying import Result, Retry, Tell
from riprap.adapters.table_files import read_table, write_table
from riprap.errors import OperatorError, RiprapError, RunError
from riprap.graph import connectors
from riprap.graph.connectors import Callback, Console, FileSink, Memory, Target, ToKafka, ToSpark
from riprap.graph.operators import Sink
from riprap.operators.user_code import FAILURES, describe
from riprap.runtime.kafka import KafkaTarget
from riprap.runtime.output_lease import OutputLease
from riprap.state.ledger import Output
from riprap.state.pages import PageStore
from riprap.state.saving import put_in_place

_PART = re.compile(r"part-(\d{10})-(\d{10})\.(parquet|csv|json)(\.gz)?")


class Publisher(Protocol):
    """Publishes a sink's batches, in order. Publishing a batch again must change nothing a reader could tell."""

    def begin(self) -> None:
        """Take over the place written to, whatever an earlier run left there: all sinks have agreed to it by now."""

    def publish(self, batch: int, outputs: Sequence[Output]) -> None:
        """Take a batch that is on record."""

    def take_up(self, batch: int, outputs: Sequence[Output]) -> None:
        """Take a batch that an earlier process had on record, when its run is taken up again."""

    def flush(self) -> None:
        """Make everything taken so far visible."""

    @property
    def published(self) -> int:
        """The newest batch whose pages are not needed any more, -1 at first."""

    def table(self) -> pa.Table:
        """Return all rows published so far, where the sink can be read back."""

    def close(self) -> None:
        """Let go of connections; what can be read back stays so."""


class ResultReader:
    """Reads what the tasks of a batch left for a sink, in tuple order whatever the buckets."""

    def __init__(self, sink: Sink, results: PageStore) -> None:
        self.schema = sink.schema
        self._results = results

    def read(self, outputs: Sequence[Output]) -> pa.Table:
        """Return a batch's rows in the order of the tuples they derive from."""
        pages = [self._results.read(o.page) for o in outputs if o.rows]
        if not pages:
            return self.schema.empty_table()
        table = pa.Table.from_batches([p.replace_schema_metadata(None) for p in pages])
        return (in_order(table) if len(pages) > 1 else table).select(self.schema.names)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows by their tags."""
    tags = [table.column(n).to_numpy() for n in table.column_names if n.startswith("$")]
    return table.take(pa.array(np.lexsort(tags[::-1])))


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
        return bool(self._pending) and self._clock() - self._since >= self.connector.roll_seconds

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
        found = ((_PART.fullmatch(path.name), path) for path in self._folder.iterdir())
        return [((int(part[1]), int(part[2])), path) for part, path in found if part]

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


class CallbackPublisher:
    """Calls the user's function with each batch; after a crash it may see the newest batch again."""

    def __init__(self, sink: Sink, call: Callable[[int, pa.Table], None], reader: ResultReader) -> None:
        self._sink = sink
        self._call = call
        self._reader = reader
        self.published = -1

    def begin(self) -> None: ...

    def publish(self, batch: int, outputs: Sequence[Output]) -> None:
        try:
            self._call(batch, self._reader.read(outputs))
        except RiprapError:
            raise
        except FAILURES as error:
            raise _failure(self._sink, f"on batch {batch}", error) from error
        self.published = batch

    def take_up(self, batch: int, outputs: Sequence[Output]) -> None:
        self.published = batch

    def flush(self) -> None: ...

    def table(self) -> pa.Table:
        raise RunError(f"sink '{self._sink.name}' hands its rows to a function; they cannot be read back")

    def close(self) -> None: ...


class MemoryPublisher:
    """Keeps every batch's rows."""

    def __init__(self, reader: ResultReader) -> None:
        self._reader = reader
        self._batches: dict[int, pa.Table] = {}
        self.published = -1

    def begin(self) -> None: ...

    def publish(self, batch: int, outputs: Sequence[Output]) -> None:
        table = self._reader.read(outputs)
        # Copied: a table over a mapped page would hold on to its shared memory.
        self._batches[batch] = table.take(pa.array(np.arange(table.num_rows)))
        self.published = batch

    def take_up(self, batch: int, outputs: Sequence[Output]) -> None:
        self.published = batch

    def flush(self) -> None: ...

    def table(self) -> pa.Table:
        if not self._batches:
            return self._reader.schema.empty_table()
        return pa.concat_tables([self._batches[b] for b in sorted(self._batches)])

    def close(self) -> None: ...


class ServicePublisher:
    """Writes batches to a system outside, and tries again when it cannot be reached.

    What was on record when a run is taken up, and its first batch, may have been written before: the target is told so.
    """

    def __init__(
        self, sink: Sink, target: Target, patience: float, reader: ResultReader, *, resume: bool, tell: Tell
    ) -> None:
        self._target = target
        self._reader = reader
        self._retry = Retry(f"{sink}, {sink.connector}", patience, tell)
        self._sink = sink
        self._what = str(sink)
        self._doubtful = resume
        self._on_record = -1
        self._lock = threading.Lock()
        self.published = -1
        self._call("to open", lambda again: target.open(resume=resume))

    def begin(self) -> None: ...

    def publish(self, batch: int, outputs: Sequence[Output]) -> None:
        table = self._reader.read(outputs)
        doubtful = self._doubtful or batch <= self._on_record
        self._call(
            f"on batch {batch}", lambda again: self._target.write(batch, table, again=again or doubtful)
        )
        self._doubtful = False
        self.published = batch

    def take_up(self, batch: int, outputs: Sequence[Output]) -> None:
        # A batch that is not noted as handed over comes again.
        self.published = self._on_record = batch

    def flush(self) -> None: ...

    def table(self) -> pa.Table:
        return self._call("to read its rows back", lambda again: self._target.read())

    def close(self) -> None:
        try:
            self._target.close()
        except FAILURES as error:
            raise _failure(self._sink, "to close", error) from error

    def _call(self, doing: str, action: Callable[[bool], Result]) -> Result:
        # The query publishes from its own thread, while run.table() reads from the user's.
        with self._lock:
            try:
                return self._retry.call(action)
            except RunError as error:
                if self._what in str(error):
                    raise
                raise RunError(f"{self._what}: {error}") from error
            except (RiprapError, PySparkException, Py4JError):
                # What becomes of a session that fails is not for a sink to say.
                raise
            except FAILURES as error:
                raise _failure(self._sink, doing, error) from error


def _failure(sink: Sink, doing: str, error: BaseException) -> OperatorError:
    """Say that code of the user's, or of a client library, failed at something."""
    return OperatorError(f"Sink '{sink.name}' ({sink.location}) failed {doing}: {describe(error)}")


def make_publisher(
    sink: Sink,
    results: PageStore,
    session: Any,
    *,
    run: str,
    resume: bool,
    tell: Tell,
    clock: Callable[[], float],
) -> Publisher:
    """Make what publishes a sink's batches, unless that is refused; ``run`` is the run's identity.

    What an earlier run left stays as it is until the publisher is told to begin.
    """
    reader = ResultReader(sink, results)
    match sink.connector:
        case FileSink() as connector:
            return FilePublisher(
                connector, reader, run=run, sink=sink.name, resume=resume, tell=tell, clock=clock
            )
        case Callback(function=function):
            return CallbackPublisher(sink, function, reader)
        case ToSpark(function=function):
            return CallbackPublisher(
                sink, lambda batch, table: function(session.createDataFrame(table), batch), reader
            )
        case Console(rows=rows):
            return CallbackPublisher(sink, show(sink.name, rows), reader)
        case Memory():
            return MemoryPublisher(reader)
        case ToKafka() as connector:
            kafka = KafkaTarget(connector, session)
            return ServicePublisher(sink, kafka, connector.retry_for, reader, resume=resume, tell=tell)
        case connector:
            assert isinstance(connector, connectors.Sink)
            # Two sinks may write to one place: each has its own account of what is there.
            target = connector.target(sink.schema, f"{run}/{sink.name}")
            return ServicePublisher(sink, target, connector.patience, reader, resume=resume, tell=tell)
