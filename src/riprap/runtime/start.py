"""Start an application on Spark: session, run folder, plan, sinks, query."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from riprap.compiler import Plan, compile_graph, describe_state
from riprap.errors import GraphError, RunError
from riprap.graph.connectors import FromSpark
from riprap.graph.graph import Graph
from riprap.graph.operators import Sink, Source
from riprap.graph.policies import seconds
from riprap.runtime.batches import BatchRunner
from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Meter
from riprap.runtime.query import answers_of
from riprap.runtime.recorded import pace_start
from riprap.runtime.run import Run
from riprap.runtime.segments import spool_rows
from riprap.runtime.session import check_session, is_one_host, make_session
from riprap.runtime.settings import Setting, save_setting
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.runtime.site import Site, lay_out
from riprap.runtime.task import save_plan
from riprap.state.pages import Lease, page_root, sweep


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
    notes: Mapping[str, str | int | float] | None = None,
    clock: Callable[[], float] = time.time,
) -> Run:
    """Start an application and return at once.

    ``spark`` is a session to run in; without it one is started, at ``master`` (this machine, unless said) with
    ``config``. ``trigger`` is how often to look for input, until stopped; without it the run ends when the input there
    is has been used up. ``buckets`` (fixed for the life of the state) and ``parallelism`` (tasks a batch) default to
    what the session has cores for. ``folder`` takes up an earlier run where it stopped; new runs get a folder of their
    own under ``runs``. ``pages`` is where state pages live, and ``page_limit`` how many bytes they may take.
    ``notes`` are kept in the run's folder: what else one would want to know to repeat it, such as the feed's seed.
    """
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise GraphError(f"batch_rows= takes a whole number of at least 1, got {batch_rows!r}")
    if spark is not None and (master is not None or config is not None):
        raise GraphError("give spark= or master= and config=, not both")
    # Compiled before Spark starts too, for the errors: a session takes seconds.
    compile_graph(graph, buckets=buckets or 1, tasks=parallelism or 1, path=path)
    interval = None if trigger is None else seconds("trigger=", trigger)
    session = check_session(spark) if spark is not None else make_session(master, dict(config or {}))
    try:
        run_folder, resume = _open_folder(folder, Path(runs), graph.name, clock)
        known = run_folder.state_layout()
        tasks = parallelism or session.sparkContext.defaultParallelism
        wanted = buckets or (known["buckets"] if known else max(8, 2 * tasks))
        plan = compile_graph(graph, buckets=wanted, tasks=tasks, path=path)
        run_folder.keep_state_layout({"buckets": plan.buckets, "operators": describe_state(graph)})
        # First the lease, then the sweep: the run to take up may look as dead as others.
        site, lease = lay_out(run_folder, pages, page_limit, one_host=is_one_host(session))
        sweep(page_root(), clock=clock)
        launch = _Launch(graph, plan, session, run_folder, site, lease, spark is None, resume, clock)
        return launch.start(interval, batch_rows, notes or {})
    except BaseException:
        if spark is None:
            session.stop()
        raise


def _open_folder(
    folder: str | Path | None, runs: Path, application: str, clock: Callable[[], float]
) -> tuple[RunFolder, bool]:
    """Make a run's folder, or open that of the run to take up; say which."""
    if folder is None:
        return RunFolder.create(runs, application, clock), False
    opened = RunFolder.reopen(Path(folder), application, clock)
    if opened.ended:
        raise RunError(
            f"the run in {opened.path} has ended: its state is gone. Start a new one without folder="
        )
    return opened, True


@dataclass(frozen=True, slots=True)
class _Launch:
    """The steps from a plan to a running query."""

    graph: Graph
    plan: Plan
    session: SparkSession
    folder: RunFolder
    site: Site
    lease: Lease
    owns_session: bool
    resume: bool
    clock: Callable[[], float]

    def start(self, interval: float | None, batch_rows: int, notes: Mapping[str, str | int | float]) -> Run:
        """Write down the setting, open the sinks and start the query; undo it all if that fails."""
        try:
            self._describe(interval, batch_rows, notes)
            return self._start(interval, batch_rows)
        except BaseException:
            self.lease.release()
            if not self.resume:
                # Nothing was computed, so there is nothing to take up.
                self.folder.end()
                sweep(page_root(), clock=self.clock)
            raise

    def _start(self, interval: float | None, batch_rows: int) -> Run:
        rates = self._rates()
        # A paced replay that ends has to be watched: Spark's availableNow would take what is due at the start only.
        ends_itself = interval is None and bool(rates)
        if ends_itself and any(isinstance(s.connector, FromSpark) for s in self.graph.of_kind(Source)):
            raise GraphError(
                f"application '{self.graph.name}' has a paced source beside a Spark DataFrame, so it has no end: "
                "give trigger= and stop it yourself"
            )
        setting = self._save_setting(rates, batch_rows, finite=interval is None)
        self.site.ledger.begin(self.plan.buckets)
        # Before the sinks: opening one may replace earlier output, so everything else must be in order.
        answers = answers_of(self.session, self.graph, self.plan, setting)
        publishers = self._open_sinks()
        arrivals = {name: _arrival(self.folder.path / "sources" / name, rate) for name, rate in rates.items()}
        meter = Meter((e.name for e in self.plan.entries), publishers, arrivals)
        checkpoint = self.folder.path / "spark"
        runner = BatchRunner(self.plan, self.site, publishers, self.folder, checkpoint, meter, self.clock)
        writer = answers.writeStream.queryName(_free_name(self.session, self.graph.name)).foreachBatch(runner)
        writer = writer.option("checkpointLocation", checkpoint.as_uri())
        if interval is not None:
            writer = writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds")
        elif not ends_itself:
            writer = writer.trigger(availableNow=True)
        return Run(
            graph=self.graph,
            plan=self.plan,
            session=self.session,
            owns_session=self.owns_session,
            folder=self.folder,
            lease=self.lease,
            site=self.site,
            publishers=publishers,
            runner=runner,
            meter=meter,
            query=writer.start(),
            ends_itself=ends_itself,
            clock=self.clock,
        )

    def _rates(self) -> dict[str, float]:
        # From the graph: the plan's sources carry no more than tasks need.
        return {
            s.name: s.connector.rate
            for s in self.graph.of_kind(Source)
            if not isinstance(s.connector, FromSpark) and s.connector.rate is not None
        }

    def _save_setting(self, rates: Mapping[str, float], batch_rows: int, *, finite: bool) -> Path:
        """Write what the run's processes share, and return where."""
        home = self.folder.path
        # Workers keep what they read, and a session's outlive a run: a run taken up again has files of its own.
        number = len(list(home.glob("setting-*.json")))
        setting = Setting(
            plan=str(home / f"plan-{number}.pickle"),
            sources=str(home / "sources"),
            site=self.site,
            start=number,
            batch_rows=batch_rows,
            finite=finite,
            rates=rates,
        )
        save_plan(Path(setting.plan), self.plan)
        save_setting(home / f"setting-{number}.json", setting)
        for source in self.graph.of_kind(Source):
            spool_rows(source, home / "sources" / source.name)
        return home / f"setting-{number}.json"

    def _open_sinks(self) -> dict[str, Publisher]:
        """Open the sinks, and give them the batches an earlier process had on record."""
        publishers = {
            sink.name: make_publisher(
                sink, self.site.results, self.session, resume=self.resume, clock=self.clock
            )
            for sink in self.graph.of_kind(Sink)
        }
        for batch in self.site.ledger.batches():
            if batch >= 0:
                outputs = self.site.ledger.get(batch).outputs
                for name, publisher in publishers.items():
                    publisher.take_up(batch, outputs.get(name, ()))
        return publishers

    def _describe(
        self, interval: float | None, batch_rows: int, notes: Mapping[str, str | int | float]
    ) -> None:
        options: dict[str, Any] = {
            "batch_rows": batch_rows,
            "buckets": self.plan.buckets,
            "parallelism": self.plan.tasks,
            "path": self.plan.path,
            "trigger": interval,
            "pages": self.site.pages.folder,
            "page_limit": self.site.pages.limit,
        }
        self.folder.describe(self.graph.name, options, notes, self.session)
        self.folder.event("resumed" if self.resume else "started")


def _arrival(folder: Path, rate: float) -> Callable[[int], float]:
    return lambda row: pace_start(folder) + row / rate


def _free_name(session: SparkSession, name: str) -> str:
    """Return the application's name, numbered if another run of it is going in this session."""
    taken = {q.name for q in session.streams.active}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)
