"""Start an application on Spark: session, run folder, plan, sinks, query."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from riprap.compiler import Layout, compile_graph, describe_state
from riprap.errors import GraphError, RunError
from riprap.graph.connectors import FetchedSource, Generated, ReadBySpark
from riprap.graph.graph import Graph
from riprap.graph.operators import Inlet, Outlet, Source
from riprap.graph.policies import seconds
from riprap.runtime.element import Element, Launch
from riprap.runtime.folder import RunFolder
from riprap.runtime.kafka import check_connector, session_config
from riprap.runtime.run import Run
from riprap.runtime.session import check_session, is_one_host, make_session
from riprap.runtime.site import Housing, take_hold
from riprap.state.pages import page_root, sweep


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
    layout = compile_graph(graph, buckets=buckets or 1, tasks=parallelism or 1, path=path)
    interval = None if trigger is None else seconds("trigger=", trigger)
    _check_end(layout, interval)
    session = (
        check_session(spark)
        if spark is not None
        else make_session(master, session_config(graph, config or {}))
    )
    try:
        check_connector(session, graph)
        run_folder, resume = _open_folder(folder, Path(runs), graph.name, clock)
        known = run_folder.state_layout()
        tasks = parallelism or session.sparkContext.defaultParallelism
        wanted = buckets or (known["buckets"] if known else max(8, 2 * tasks))
        layout = compile_graph(graph, buckets=wanted, tasks=tasks, path=path)
        run_folder.keep_state_layout(_state_layout(layout, wanted))
        # First the lease, then the sweep: the run to take up may look as dead as others.
        housing, lease = take_hold(run_folder, pages, page_limit, one_host=is_one_host(session))
        sweep(page_root(), clock=clock)
        launch = Launch(
            graph=graph,
            session=session,
            folder=run_folder,
            resume=resume,
            interval=interval,
            batch_rows=batch_rows,
            clock=clock,
        )
        try:
            run_folder.describe(graph.name, _options(launch, layout, housing), notes or {}, session)
            run_folder.event("resumed" if resume else "started")
            elements = _start(launch, layout, housing)
        except BaseException:
            lease.release()
            if not resume:
                # Nothing was computed, so there is nothing to take up.
                run_folder.end()
                sweep(page_root(), clock=clock)
            raise
        return Run(
            layout=layout,
            elements=elements,
            session=session,
            owns_session=spark is None,
            folder=run_folder,
            lease=lease,
            housing=housing,
            clock=clock,
        )
    except BaseException:
        if spark is None:
            session.stop()
        raise


def _start(launch: Launch, layout: Layout, housing: Housing) -> list[Element]:
    """Prepare all elements, then start them; if one does not start, none goes on."""
    elements = [launch.prepare(plan, housing.site(plan.name, launch.home(plan))) for plan in layout.plans]
    try:
        # Before the queries: opening a sink may replace earlier output, so everything else must be in order.
        for element in elements:
            element.open_sinks()
        for element in elements:
            element.pass_over()
            element.start()
    except BaseException:
        for element in elements:
            element.halt()
        raise
    return elements


def _state_layout(layout: Layout, buckets: int) -> dict[str, Any]:
    """Say how state is cut up: it can only be taken up again cut in the same way."""
    keyed = any(plan.keyed and plan.buckets > 1 for plan in layout.plans)
    return {
        "elements": {
            plan.name: [o.name for o in plan.graph if o.stateful or isinstance(o, Inlet | Outlet)]
            for plan in layout.plans
        },
        "buckets": buckets if keyed or not any(plan.keyed for plan in layout.plans) else 1,
        "operators": describe_state(layout.graph),
    }


def _check_end(layout: Layout, interval: float | None) -> None:
    """Refuse a run without trigger that would never end."""
    if interval is not None:
        return
    sources = layout.graph.of_kind(Source)
    spark = any(isinstance(s.connector, ReadBySpark) for s in sources)
    endless = [s for s in sources if isinstance(s.connector, Generated) and s.connector.limit is None]
    # Spark ends its own sources by availableNow, which takes what is there: others are waited for.
    watched = [
        s for s in sources if getattr(s.connector, "rate", None) or isinstance(s.connector, FetchedSource)
    ]
    if endless or (watched and spark):
        source = (endless or watched)[0]
        why = "never ends" if endless else "is read beside a Spark DataFrame, so the run has no end"
        raise GraphError(f"{source}: {source.connector} {why}. Give trigger= and stop the run yourself")


def _options(launch: Launch, layout: Layout, housing: Housing) -> dict[str, Any]:
    first = layout.plans[0]
    return {
        "batch_rows": launch.batch_rows,
        "buckets": max(plan.buckets for plan in layout.plans),
        "parallelism": max(plan.tasks for plan in layout.plans),
        "path": first.path,
        "trigger": launch.interval,
        "pages": housing.state,
        "page_limit": housing.limit,
    }


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
