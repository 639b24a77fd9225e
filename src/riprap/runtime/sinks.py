"""What sinks do in the driver once a batch is on record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from riprap.adapters.retrying import Retry, Returned, Tell
from riprap.errors import OperatorError, RiprapError, RunError
from riprap.graph.connectors import FileSink, Target
from riprap.kernels.user_code import FAILURES, describe
from riprap.operators.sink import Sink
from riprap.runtime.file_publisher import FilePublisher
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
        # A batch that is not noted as handed over comes again; one between those may have nothing any more.
        self.published, self._on_record = batch, max(batch, self._on_record)

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
    return sink.connector.opened(_Opening(sink.name, session, sink, reader, run, resume, tell, clock))


@dataclass(slots=True)
class _Opening:
    """What the connector of a sink is opened with."""

    name: str
    session: Any
    sink: Sink
    reader: ResultReader
    run: str
    resume: bool
    tell: Tell
    clock: Callable[[], float]

    def by_target(self, make: Callable[[pa.Schema, str], Target], patience: float) -> Publisher:
        try:
            # Two sinks may write to one place: each has its own account of what is there.
            target = make(self.sink.schema, f"{self.run}/{self.name}")
        except RiprapError:
            raise
        except FAILURES as error:
            raise _failure(self.sink, "to make its target", error) from error
        return ServicePublisher(self.sink, target, patience, self.reader, resume=self.resume, tell=self.tell)

    def by_calls(self, function: Callable[[int, pa.Table], None]) -> Publisher:
        return CallbackPublisher(self.sink, function, self.reader)

    def by_files(self, connector: FileSink) -> Publisher:
        return FilePublisher(
            connector,
            self.reader,
            run=self.run,
            sink=self.name,
            resume=self.resume,
            tell=self.tell,
            clock=self.clock,
        )
