"""A running application: follow it, wait for it, read its results, end it."""

from __future__ import annotations

import logging
import shutil
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from riprap.adapters.bad_records import count_quarantined, read_quarantine
from riprap.compiler import Layout
from riprap.errors import RunError
from riprap.operators.source import Source
from riprap.runtime.crew import Crew
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.folder import RunFolder
from riprap.runtime.kafka import BrokerWatch
from riprap.runtime.meter import Progress, sum_up
from riprap.runtime.resident.slots import Share
from riprap.runtime.sinks import Publisher
from riprap.runtime.site import Housing
from riprap.state.leases import Lease, sweep
from riprap.state.pages import page_root

if TYPE_CHECKING:
    import pandas as pd
    import polars

_POLL_SECONDS = 0.05
_log = logging.getLogger(__name__)
# How a process leaves a run: for good; in good order, to be taken up; or because of an error.
Close = Literal["ended", "stopped", "interrupted"]


class Run:
    """A running application. Use it as a context manager, or call :meth:`stop`.

    >>> app = rr.Application("demo")
    >>> app.sink("out", app.source("words", rr.rows([{"word": "a"}], "word string")), rr.memory())
    >>> with app.run(spark=spark) as run:
    ...     print(run.wait(), run.table("out").to_pylist(), run.progress().tuples_in)
    True [{'word': 'a'}] 1

    ``spark`` is a session there is; without it one is started, and ends with the run.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        crew: Crew,
        session: SparkSession,
        owns_session: bool,
        folder: RunFolder,
        lease: Lease,
        housing: Housing,
        share: Share,
        clock: Callable[[], float],
    ) -> None:
        self.graph = layout.graph
        self.layout = layout
        self.session = session
        self._crew = crew
        self._publishers = {name: p for e in crew.elements.values() for name, p in e.publishers.items()}
        self._owns_session = owns_session
        self._folder = folder
        self._lease = lease
        self._housing = housing
        self._share = share
        self._clock = clock
        self._began = clock()
        self._brokers = BrokerWatch(layout.graph.of_kind(Source), folder.event)
        self._raised = False
        self._over = False
        self._warned = False

    @property
    def folder(self) -> Path:
        """The run's folder: settings, events, metrics."""
        return self._folder.path

    @property
    def running(self) -> bool:
        """Whether anything is still going."""
        self._crew.watch()
        return bool(self._crew.going)

    def progress(self) -> Progress:
        """Return how far the run has come."""
        summed = sum_up([e.meter for e in self._crew.elements.values()], self._clock() - self._began)
        return replace(summed, quarantined=sum(self._folder.quarantined().values()))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the input is used up, and raise what went wrong if anything did.

        Return False if ``timeout`` seconds passed first. A run with a trigger goes on until it is stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.running and not self._crew.errors:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._crew.going[0].await_end(_POLL_SECONDS)
        self._raise_failure()
        self._warn()
        return True

    def stop(self, *, resume: bool = False) -> None:
        """End the run: finish the batch at hand, let what is under way between elements arrive, publish everything, let
        go of the state. What a source has read that cannot be read again is computed first.

        With ``resume`` the run can be taken up again, ``app.run(folder=run.folder)``, and goes on as if it had never
        been stopped: state stays in the host's memory, and protected operators are saved as they are.

        Raise what went wrong, if something did that :meth:`wait` has not raised; the run can then be taken up again.

        >>> app = rr.Application("live")
        >>> app.sink("out", app.source("numbers", rr.rate(100)), rr.memory())
        >>> run = app.run(spark=spark, trigger="100ms")
        >>> run.wait(timeout=0.5)
        False
        >>> run.stop()
        >>> run.running
        False
        """
        if self._over:
            return
        ended = False
        try:
            if not self._raised:
                self._crew.stop(resume=resume)
                while self.running and not self._crew.errors:
                    self._crew.going[0].await_end(_POLL_SECONDS)
                self._raise_failure()
                self._warn()
                ended = True
        finally:
            # Also when the wait for what is under way was cut short: nothing may go on without the lease.
            self._crew.halt()
            self._close("stopped" if ended and resume else "ended" if ended else "interrupted")

    def table(self, sink: str) -> pa.Table:
        """Return a sink's rows so far, as an Arrow table."""
        return self._publisher(sink).table()

    def to_pandas(self, sink: str) -> pd.DataFrame:
        """Return a sink's rows so far, as a pandas DataFrame."""
        return self.table(sink).to_pandas()

    def to_polars(self, sink: str) -> polars.DataFrame:
        """Return a sink's rows so far, as a Polars DataFrame."""
        try:
            import polars
        except ImportError:
            raise RunError("Polars is not installed: pip install 'riprap[polars]'") from None
        return polars.DataFrame(self.table(sink))

    def dataframe(self, sink: str) -> DataFrame:
        """Return a sink's rows so far, as a Spark DataFrame."""
        publisher = self._publisher(sink)
        if self._over and self._owns_session:
            raise RunError(
                f"the run has ended, and the Spark session that it had made with it: ask for run.dataframe('{sink}') "
                f"before run.stop() or inside the with block, give app.run(spark=...) a session of your own, or take "
                f"run.table('{sink}')"
            )
        if isinstance(publisher, FilePublisher) and publisher.connector.format == "parquet":
            publisher.check()
            # With a schema, a folder without files is an empty DataFrame and not an error.
            schema = from_arrow_schema(self.graph[sink].schema)
            return self.session.read.schema(schema).parquet(publisher.connector.path)
        # In one piece: Spark reads no further than to a chunk without rows.
        return self.session.createDataFrame(publisher.table().combine_chunks())

    def _publisher(self, sink: str) -> Publisher:
        if sink not in self._publishers:
            raise RunError(f"no sink '{sink}'; there are: {', '.join(self._publishers)}")
        return self._publishers[sink]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        elif not self._over:
            self._crew.halt()
            self._close("interrupted")

    def _warn(self) -> None:
        """Say once, to whoever looks at the screen, that all records were bad."""
        folders = {s.name: self._folder.quarantine(s.name) for s in self.graph.of_kind(Source)}
        bad = {name: count for name, folder in folders.items() if (count := count_quarantined(folder))}
        resumed = any(event["event"] == "resumed" for event in self._folder.read_events())
        if self._warned or resumed or not bad or self.progress().tuples_in:
            return
        self._warned = True
        for name, count in bad.items():
            first = next(read_quarantine(folders[name]))
            _log.warning(
                f"Source '{name}': all {count:,} records are bad, and nothing is left. The first: {first['reason']}. "
                f"They are in {folders[name]}"
            )

    def _raise_failure(self) -> None:
        for error in self._crew.errors.values():
            self._raised = True
            # The others would go on without it.
            self._crew.halt()
            self._folder.event("failed", error=type(error).__name__, message=str(error))
            raise error

    def _close(self, how: Close) -> None:
        self._over = True
        self._share.release()
        self._brokers.stop()
        close_books(self._folder, self._lease, self._housing, self.progress(), how)
        if self._owns_session:
            self.session.stop()


def close_books(folder: RunFolder, lease: Lease, housing: Housing, progress: Progress, how: Close) -> None:
    """Write down how a run came to its end, and let go of its pages; those of one that has not ended stay."""
    ended = how == "ended"
    folder.event(
        how,
        batches=progress.batches,
        tuples_in=progress.tuples_in,
        tuples_out=dict(progress.tuples_out),
    )
    if ended:
        folder.end()
    lease.release()
    if ended:
        sweep(page_root())
        housing.remove()
        shutil.rmtree(folder.path / "channels", ignore_errors=True)
