"""Run an application on Spark: one call starts it, one object follows and ends it."""

from __future__ import annotations

import contextlib
import glob
import shutil
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from riprap.compiler import Plan, compile_graph
from riprap.errors import GraphError, RunError
from riprap.graph.connectors import FileSink, FromSpark
from riprap.graph.graph import Graph
from riprap.graph.operators import Sink, Source
from riprap.graph.policies import seconds
from riprap.runtime.batches import BatchRunner
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Meter, Progress
from riprap.runtime.query import answers_of
from riprap.runtime.recorded import pace_start, recorded
from riprap.runtime.segments import SegmentLog, spool_rows
from riprap.runtime.session import check_session, is_one_host, make_session
from riprap.runtime.settings import Setting, save_setting
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.runtime.task import EXECUTOR, Site, save_plan
from riprap.state.ledger import Ledger
from riprap.state.pages import Lease, PageStore, limit_for, page_root, sweep

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
        """End the run: finish the batch at hand, publish everything, let go of the state."""
        if self._over:
            return
        self._halt()
        failed = self._failure() is not None
        if not failed:
            self._flush()
        self._close(ended=not failed)

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
        folders = [self.folder / "sources" / s.name for s in recorded(self.plan)]
        # The reader in its own process starts these logs; opening one too early would start it twice.
        if not all(SegmentLog.exists(folder) for folder in folders):
            return False
        logs = [SegmentLog(folder) for folder in folders]
        if any(log.end is None for log in logs):
            return False
        done = last.sources if last is not None else {}
        return all(log.end == (done[log.folder.name][1] if log.folder.name in done else 0) for log in logs)

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
            _remove(self._site.pages)
        if self._owns_session:
            self.session.stop()


def run(
    graph: Graph,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    trigger: str | None = None,
    batch_rows: int = 500_000,
    buckets: int | None = None,
    parallelism: int | None = None,
    path: Literal["direct", "exchange"] | None = None,
    folder: str | Path | None = None,
    runs: str | Path = "runs",
    pages: str | Path | None = None,
    page_limit: int | None = None,
    clock: Callable[[], float] = time.time,
) -> Run:
    """Start an application and return at once.

    ``spark`` is a session to run in; without it one is started, at ``master`` (this machine, unless said) with
    ``config``. ``trigger`` is how often to look for input, until stopped; without it the run ends when the input there
    is has been used up. ``buckets`` (fixed for the life of the state) and ``parallelism`` (tasks a batch) default to
    what the session has cores for. ``folder`` takes up an earlier run where it stopped; new runs get a folder of their
    own under ``runs``. ``pages`` is where state pages live, and ``page_limit`` how many bytes they may take.
    """
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise GraphError(f"batch_rows= takes a whole number of at least 1, got {batch_rows!r}")
    if spark is not None and (master is not None or config is not None):
        raise GraphError("give spark= or master= and config=, not both")
    compile_graph(graph, buckets=buckets or 1, tasks=parallelism or 1, path=path)
    session = check_session(spark) if spark is not None else make_session(master, dict(config or {}))
    try:
        return _start(
            graph, session, owns_session=spark is None, trigger=trigger, batch_rows=batch_rows, buckets=buckets,
            parallelism=parallelism, path=path, folder=folder, runs=Path(runs), pages=pages, page_limit=page_limit,
            clock=clock,
        )  # fmt: skip
    except BaseException:
        if spark is None:
            session.stop()
        raise


def _start(
    graph: Graph,
    session: SparkSession,
    *,
    owns_session: bool,
    trigger: str | None,
    batch_rows: int,
    buckets: int | None,
    parallelism: int | None,
    path: Literal["direct", "exchange"] | None,
    folder: str | Path | None,
    runs: Path,
    pages: str | Path | None,
    page_limit: int | None,
    clock: Callable[[], float],
) -> Run:
    cores = session.sparkContext.defaultParallelism
    tasks = parallelism or cores
    plan = compile_graph(graph, buckets=buckets or max(8, 2 * tasks), tasks=tasks, path=path)
    resume = folder is not None
    run_folder = (
        RunFolder.reopen(Path(folder), graph.name, clock)
        if folder is not None
        else RunFolder.create(runs, graph.name, clock)
    )
    if (run_folder.path / "ended").exists():
        raise RunError(
            f"the run in {run_folder.path} has ended: its state is gone. Start a new one without folder="
        )
    sweep(page_root(), clock=clock)
    site, lease = _site(run_folder, pages, page_limit, one_host=is_one_host(session))
    try:
        return _launch(
            graph, session, plan, run_folder, site, lease, owns_session=owns_session, trigger=trigger,
            batch_rows=batch_rows, resume=resume, clock=clock,
        )  # fmt: skip
    except BaseException:
        lease.release()
        if not resume:
            # Nothing was computed, so there is nothing to take up.
            run_folder.end()
            sweep(page_root(), clock=clock)
        raise


def _launch(
    graph: Graph,
    session: SparkSession,
    plan: Plan,
    run_folder: RunFolder,
    site: Site,
    lease: Lease,
    *,
    owns_session: bool,
    trigger: str | None,
    batch_rows: int,
    resume: bool,
    clock: Callable[[], float],
) -> Run:
    # From the graph: the plan's sources carry no more than tasks need.
    rates = {
        s.name: s.connector.rate
        for s in graph.of_kind(Source)
        if not isinstance(s.connector, FromSpark) and s.connector.rate is not None
    }
    paced = bool(rates)
    # Workers keep what they read, and a session's outlive a run: a run taken up again has files of its own.
    start = len(list(run_folder.path.glob("setting-*.json")))
    setting = Setting(
        plan=str(run_folder.path / f"plan-{start}.pickle"),
        sources=str(run_folder.path / "sources"),
        site=site,
        batch_rows=batch_rows,
        finite=trigger is None,
        rates=rates,
    )
    _check_buckets(run_folder, plan, resume=resume)
    save_plan(Path(setting.plan), plan)
    setting_path = run_folder.path / f"setting-{start}.json"
    save_setting(setting_path, setting)
    for source in graph.of_kind(Source):
        spool_rows(source, run_folder.path / "sources" / source.name)
    site.ledger.begin()
    publishers = {
        sink.name: make_publisher(sink, site.results, session, resume=resume, clock=clock)
        for sink in graph.of_kind(Sink)
    }
    for batch in site.ledger.batches():
        if batch >= 0:
            for name, publisher in publishers.items():
                publisher.take_up(batch, site.ledger.get(batch).outputs.get(name, ()))
    checkpoint = run_folder.path / "spark"
    arrivals = {name: _arrival(run_folder.path / "sources" / name, rate) for name, rate in rates.items()}
    meter = Meter((e.name for e in plan.entries), publishers, arrivals)
    runner = BatchRunner(plan, site, publishers, run_folder, checkpoint, meter, clock)
    run_folder.describe(
        graph.name,
        {
            "batch_rows": batch_rows, "buckets": plan.buckets, "parallelism": plan.tasks, "path": plan.path,
            "trigger": trigger, "pages": site.pages.folder, "page_limit": site.pages.limit,
        },
        session,
    )  # fmt: skip
    run_folder.event("resumed" if resume else "started")
    ends_itself = trigger is None and paced
    writer = answers_of(session, graph, plan, setting_path).writeStream.queryName(
        _free_name(session, graph.name)
    )
    writer = writer.foreachBatch(runner).option("checkpointLocation", str(checkpoint))
    if trigger is not None:
        writer = writer.trigger(processingTime=f"{int(seconds('trigger=', trigger) * 1000)} milliseconds")
    elif not ends_itself:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    return Run(
        graph=graph, plan=plan, session=session, owns_session=owns_session, folder=run_folder, lease=lease, site=site,
        publishers=publishers, runner=runner, meter=meter, query=query, ends_itself=ends_itself, clock=clock,
    )  # fmt: skip


def _site(
    folder: RunFolder, pages: str | Path | None, page_limit: int | None, *, one_host: bool
) -> tuple[Site, Lease]:
    """Lay out where the run keeps its ledger, state pages and results, and hold the page folder."""
    if pages is None and not one_host:
        raise RunError(
            "on several hosts state pages need a folder that all of them share: give app.run(pages=...), and runs= "
            "or folder= on shared storage too"
        )
    home = page_root() / folder.identity
    limit = limit_for(page_root(), page_limit)
    lease = Lease.take(home, folder.path)
    # Absolute: executors do not start in the driver's folder.
    state = Path(pages).absolute() / folder.identity if pages is not None else home / "state"
    results = home / "results" if one_host else folder.path / "results"
    for path in (state, results):
        if EXECUTOR not in str(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    site = Site(
        ledger=Ledger(str(folder.path / "ledger")),
        pages=PageStore(str(state), limit),
        results=PageStore(str(results), limit),
    )
    return site, lease


def _remove(pages: PageStore) -> None:
    """Remove an ended run's pages from the folder the user chose, or from that of every executor of this host."""
    for folder in glob.glob(glob.escape(pages.folder).replace(EXECUTOR, "*")):
        shutil.rmtree(folder, ignore_errors=True)


def _check_buckets(folder: RunFolder, plan: Plan, *, resume: bool) -> None:
    """Refuse to take up a run whose state was cut into another number of buckets."""
    marker = folder.path / "buckets"
    if resume and marker.exists() and int(marker.read_text()) != plan.buckets:
        raise RunError(
            f"the run in {folder.path} has {marker.read_text()} buckets, not {plan.buckets}: the number is fixed for "
            f"the life of the state. Give buckets={marker.read_text()}"
        )
    marker.write_text(str(plan.buckets))


def _arrival(folder: Path, rate: float) -> Callable[[int], float]:
    return lambda row: pace_start(folder) + row / rate


def _free_name(session: SparkSession, name: str) -> str:
    """Return the application's name, numbered if another run of it is going in this session."""
    taken = {q.name for q in session.streams.active}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)


def _shown(progress: Progress) -> dict[str, Any]:
    return {
        "batches": progress.batches,
        "tuples_in": progress.tuples_in,
        "tuples_out": dict(progress.tuples_out),
    }
