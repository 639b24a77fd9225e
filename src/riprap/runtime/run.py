"""A running application: follow it, wait for it, read its results, end it."""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.graph.connectors import FileSink
from riprap.graph.graph import Graph
from riprap.runtime.batches import BatchRunner
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Meter, Progress
from riprap.runtime.recorded import recorded
from riprap.runtime.segments import SegmentLog
from riprap.runtime.sinks import Publisher
from riprap.runtime.site import Site
from riprap.state.pages import Lease, page_root, sweep

_POLL_SECONDS = 0.05


class Run:
    """A running application. Use it as a context manager, or call :meth:`stop`."""

    def __init__(
        self,
        *,
        graph: Graph,
        plan: Plan,
        session: SparkSession,
        owns_session: bool,
        folder: RunFolder,
        lease: Lease,
        site: Site,
        publishers: Mapping[str, Publisher],
        runner: BatchRunner,
        meter: Meter,
        query: Any,
        ends_itself: bool,
        clock: Callable[[], float],
    ) -> None:
        self.graph = graph
        self.plan = plan
        self.session = session
        self._owns_session = owns_session
        self._folder = folder
        self._lease = lease
        self._site = site
        self._publishers = publishers
        self._runner = runner
        self._meter = meter
        self._query = query
        self._ends_itself = ends_itself
        self._clock = clock
        self._began = clock()
        self._halted = False
        self._error: BaseException | None = None
        self._told = False
        self._over = False

    @property
    def folder(self) -> Path:
        """The run's folder: settings, events, metrics."""
        return self._folder.path

    @property
    def running(self) -> bool:
        """Whether the query is still going."""
        return bool(self._query.isActive)

    def progress(self) -> Progress:
        """Return how far the run has come."""
        return self._meter.progress(self._clock() - self._began)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the input is used up, and raise what went wrong if anything did.

        Return False if ``timeout`` seconds passed first. A run with a trigger goes on until it is stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._query.isActive:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if self._ends_itself and self._all_read():
                self._halt()
                break
            # A failure is raised below, as what it is: here Spark would wrap it.
            with contextlib.suppress(StreamingQueryException):
                self._query.awaitTermination(_POLL_SECONDS)
        self._raise_failure()
        self._flush()
        return True

    def stop(self) -> None:
        """End the run: finish the batch at hand, publish everything, let go of the state.

        Raise what went wrong, if something did that :meth:`wait` has not raised; the run can then be taken up again.
        """
        if self._over:
            return
        ended = False
        try:
            self._halt()
            if not self._told:
                self._raise_failure()
                self._flush()
                ended = True
        finally:
            self._close(ended=ended)

    def table(self, sink: str) -> pa.Table:
        """Return a sink's rows so far, as an Arrow table."""
        if sink not in self._publishers:
            raise RunError(f"no sink '{sink}'; there are: {', '.join(self._publishers)}")
        return self._publishers[sink].table()

    def dataframe(self, sink: str) -> DataFrame:
        """Return a sink's rows so far, as a Spark DataFrame."""
        connector = self.graph[sink].connector if sink in self._publishers else None  # type: ignore[attr-defined]
        if isinstance(connector, FileSink) and connector.format == "parquet":
            self._flush()
            # With a schema, a folder without files is an empty DataFrame and not an error.
            schema = from_arrow_schema(self.graph[sink].schema)
            return self.session.read.schema(schema).parquet(connector.path)
        return self.session.createDataFrame(self.table(sink))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        elif not self._over:
            self._halt()
            self._close(ended=False)

    def _halt(self) -> None:
        """Stop the query between two batches: Spark's own stop would cut off the batch at hand."""
        if self._halted:
            return
        self._runner.close()
        self._error = self._failure()
        self._halted = True
        self._query.stop()

    def _all_read(self) -> bool:
        """Say whether every finite source is on record to its end."""
        last = self._runner.last
        done = last.sources if last is not None else {}
        return all(
            SegmentLog.end_of(self.folder / "sources" / s.name) == (done[s.name][1] if s.name in done else 0)
            for s in recorded(self.plan)
        )

    def _flush(self) -> None:
        for publisher in self._publishers.values():
            publisher.flush()

    def _failure(self) -> BaseException | None:
        if self._runner.failure is not None:
            return self._runner.failure
        if self._halted:
            return self._error
        return None if self._runner.refused else self._query.exception()

    def _raise_failure(self) -> None:
        failure = self._failure()
        if failure is not None:
            self._told = True
            error = as_riprap_error(failure)
            self._folder.event("failed", error=type(error).__name__, message=str(error))
            raise error from failure

    def _close(self, *, ended: bool) -> None:
        self._over = True
        self._folder.event("ended" if ended else "interrupted", **_shown(self.progress()))
        if ended:
            self._folder.end()
        self._lease.release()
        if ended:
            sweep(page_root())
            self._site.remove()
        if self._owns_session:
            self.session.stop()


def _shown(progress: Progress) -> dict[str, Any]:
    return {
        "batches": progress.batches,
        "tuples_in": progress.tuples_in,
        "tuples_out": dict(progress.tuples_out),
    }
