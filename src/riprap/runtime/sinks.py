"""What sinks do in the driver once a batch is on record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from riprap.adapters.console import show
from riprap.adapters.retrying import Retry, Returned, Tell
from riprap.errors import OperatorError, RiprapError, RunError
from riprap.graph import connectors
from riprap.graph.connectors import Callback, Console, FileSink, Memory, Target, ToKafka, ToSpark
from riprap.kernels.user_code import FAILURES, describe
from riprap.operators.sink import Sink
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.kafka import KafkaTarget
from riprap.runtime.outflow import ResultReader
from riprap.state.ledger import Output
from riprap.state.pages import PageStore


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
        self._tell = tell
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
            # All it had to take it has: others are still to be closed, and so is the run.
            self._tell("warning", what=self._what, message=str(_failure(self._sink, "to close", error)))

    def _call(self, doing: str, action: Callable[[bool], Returned]) -> Returned:
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
            try:
                target = connector.target(sink.schema, f"{run}/{sink.name}")
            except RiprapError:
                raise
            except FAILURES as error:
                raise _failure(sink, "to make its target", error) from error
            return ServicePublisher(sink, target, connector.patience, reader, resume=resume, tell=tell)
