"""Start an application on Spark: session, run folder, plan, sinks, query."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from riprap.compiler import Layout, Plan, compile_graph, describe_state
from riprap.errors import GraphError, RiprapError, RunError
from riprap.graph.connectors import FetchedSource, Files, Generated, ReadBySpark, list_files
from riprap.graph.durations import Duration, seconds
from riprap.graph.graph import Graph
from riprap.graph.operators import Gate, Source
from riprap.runtime.changes import accept_changes, elements_of
from riprap.runtime.checkpointing.durable import settle_store
from riprap.runtime.checkpointing.inspection import describe_operators
from riprap.runtime.element import Element, Launch
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder, read_about
from riprap.runtime.jvm_output import LOG, JvmLog
from riprap.runtime.kafka import check_connector, session_config
from riprap.runtime.resident.slots import share_of
from riprap.runtime.run import Run
from riprap.runtime.session import check_session, is_one_host, make_session
from riprap.runtime.site import Housing, left_behind, take_hold
from riprap.state.leases import sweep
from riprap.state.pages import page_root


def run(
    graph: Graph,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    trigger: Duration | None = None,
    batch_rows: int = 500_000,
    buckets: int | None = None,
    parallelism: int | None = None,
    folder: str | Path | None = None,
    runs: str | Path = "runs",
    pages: str | Path | None = None,
    page_limit: int | None = None,
    store: str | None = None,
    ignore_state: Collection[str] = (),
    fresh: bool = False,
    at_end: Literal["flush"] | None = None,
    notes: Mapping[str, str | int | float] | None = None,
    clock: Callable[[], float] = time.time,
) -> Run:
    """Start an application and return at once; the options are those of :meth:`riprap.Application.run`."""
    if spark is not None and (master is not None or config is not None):
        raise GraphError("give spark= or master= and config=, not both")
    at_end = settle_end(folder, at_end)
    interval = check_options(
        graph,
        trigger=trigger,
        batch_rows=batch_rows,
        buckets=buckets,
        parallelism=parallelism,
        at_end=at_end,
    )
    if folder is None:
        check_files(graph, interval)
    earlier = open_folder(folder, Path(runs), graph.name, clock) if folder is not None else None
    # A new run's folder is made once there is a session: until then what Spark prints is beside it.
    log = earlier[0].path / LOG if earlier is not None else Path(runs) / f".{uuid.uuid4().hex[:6]}-{LOG}"
    session = (
        check_session(spark)
        if spark is not None
        else make_session(master, session_config(graph, config or {}), log, stages=stages_of(graph))
    )
    try:
        check_connector(session, graph)
        run_folder, resume = earlier or open_folder(None, Path(runs), graph.name, clock)
        if spark is None:
            JvmLog.move(run_folder.path)
        with calling_off(run_folder, resume=resume, clock=clock) as held:
            # First the lease: nothing of a run that is alive may be changed. Then the sweep: the run to take up may
            # look as dead as others.
            housing, lease = take_hold(run_folder, pages, page_limit, one_host=is_one_host(session))
            held.callback(lease.release)
            sweep(page_root(), clock=clock)
            accept_changes(run_folder, graph, ignore_state=ignore_state, fresh=fresh).make()
            store = settle_store(run_folder.path, store)
            tasks = parallelism or session.sparkContext.defaultParallelism
            share = share_of(session, tasks, stages_of(graph))
            layout = compile_graph(
                graph, buckets=settle_buckets(run_folder, buckets, tasks), tasks=share.tasks
            )
            keep_state_layout(run_folder, layout)
            launch = Launch(
                graph=graph,
                session=session,
                folder=run_folder,
                resume=resume,
                interval=interval,
                batch_rows=batch_rows,
                clock=clock,
                store=store,
                stays=share.stays,
                flush=at_end == "flush",
            )
            run_folder.describe(
                graph.name,
                options_of(
                    layout, housing, batch_rows=batch_rows, interval=interval, store=store, at_end=at_end
                ),
                notes or {},
                **spark_of(session),
            )
            run_folder.event("resumed" if resume else "started")
            try:
                elements = start_elements(launch, layout.plans, housing)
            except PySparkException as error:
                raise as_riprap_error(error) from error
            if not resume:
                run_folder.be_latest()
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


@contextlib.contextmanager
def calling_off(
    folder: RunFolder, *, resume: bool, clock: Callable[[], float]
) -> Iterator[contextlib.ExitStack]:
    """Let go of what was got hold of for a run if it does not start; a new one is then marked as ended.

    Who tries in vain to start a run beside one that was left in the middle is told of that one.
    """
    held = contextlib.ExitStack()
    try:
        yield held
    except BaseException as error:
        held.close()
        if resume:
            raise
        # Nothing was computed, so there is nothing to take up.
        folder.end()
        sweep(page_root(), clock=clock)
        other = left_behind(folder.path.parent)
        if other and isinstance(error, RiprapError):
            raise type(error)(f"{error}{other}") from error
        raise


def check_options(
    graph: Graph,
    *,
    trigger: Duration | None,
    batch_rows: int,
    buckets: int | None,
    parallelism: int | None,
    at_end: str | None = None,
) -> float | None:
    """Refuse what cannot be run before Spark starts, which takes seconds; return the trigger's seconds."""
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise GraphError(f"batch_rows= takes a whole number of at least 1, got {batch_rows!r}")
    layout = compile_graph(graph, buckets=buckets or 1, tasks=parallelism or 1)
    interval = None if trigger is None else seconds("trigger=", trigger)
    _check_end(layout, interval)
    if at_end is not None:
        _check_flush(layout, interval, at_end)
    return interval


def stages_of(graph: Graph) -> int:
    """Count the processing elements whose tasks are to stay."""
    return sum(not plan.ingests for plan in compile_graph(graph, buckets=1, tasks=1).plans)


def settle_end(folder: str | Path | None, asked: Literal["flush"] | None) -> Literal["flush"] | None:
    """Return what is done at the end of the input: as asked, or as the run to take up began.

    Offsets and channels of a run that flushes say more than those of one that does not.
    """
    about = read_about(Path(folder)) if folder is not None else None
    if about is None:
        return asked
    began: Literal["flush"] | None = about["options"].get("at_end")
    if asked not in (None, began):
        raise RunError(
            f"the run in {folder} was started without at_end=, and goes on as it began. Leave out at_end={asked!r}, or "
            "start a new run"
        )
    return began


def settle_buckets(folder: RunFolder, asked: int | None, tasks: int) -> int:
    """Return the number of buckets: what was asked for, what the run began with, or enough for its tasks."""
    known = folder.state_layout()
    return asked or (int(known["buckets"]) if known else max(8, 2 * tasks))


def start_elements(launch: Launch, plans: Iterable[Plan], housing: Housing) -> list[Element]:
    """Prepare elements, then start them; if one does not start, none goes on."""
    elements = [launch.prepare(plan, housing.site(plan.name, launch.home(plan))) for plan in plans]
    try:
        # Before the queries: opening a sink may replace earlier output, so everything else must be in order.
        for element in elements:
            element.take_sinks()
        for element in elements:
            element.open_sinks()
        for element in elements:
            element.pass_over()
            element.start()
    except BaseException:
        for element in elements:
            element.halt()
            element.close_sinks()
        raise
    return elements


def keep_state_layout(folder: RunFolder, layout: Layout) -> None:
    """Write down how state is cut up: it can only be taken up again cut in the same way."""
    keyed = [plan for plan in layout.plans if plan.keyed]
    folder.keep_state_layout(
        {
            "elements": elements_of(layout),
            "buckets": max(plan.buckets for plan in keyed or layout.plans),
            "operators": describe_state(layout.graph),
            "about": describe_operators(layout.graph),
        }
    )


def spark_of(session: SparkSession) -> dict[str, str]:
    """Say on which Spark a session runs."""
    assert session._jvm is not None
    return {
        "master": session.sparkContext.master or "",
        "java": str(session._jvm.System.getProperty("java.version")),
    }


def check_files(graph: Graph, interval: float | None) -> None:
    """Refuse a new run that would not wait for its files, and whose files are not there."""
    for source in graph.of_kind(Source):
        files = source.connector
        if interval is not None or not isinstance(files, Files) or files.last_line is not None:
            continue
        lacking = [pattern for pattern in files.patterns if not list_files([pattern], files.format)]
        if lacking:
            raise GraphError(
                f"source '{source.name}' ({source.location}): no {files.format} file matches {lacking[0]}. Check the "
                f"path (it is looked for in {Path.cwd()}), or wait for files with trigger="
            )


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


def _check_flush(layout: Layout, interval: float | None, at_end: str) -> None:
    """Refuse to flush at the end of input that has none, or what cannot be flushed."""
    if at_end != "flush":
        raise GraphError(f"at_end= takes 'flush', got {at_end!r}. Without it open windows put out nothing")
    if interval is not None:
        raise GraphError("at_end= is for runs whose input ends: leave out trigger=, or at_end=")
    for gate in layout.graph.of_kind(Gate):
        raise GraphError(
            f"{gate} ({gate.location}): what waits for an acknowledgement cannot be put out at the end. Leave out "
            "at_end=, or the gate"
        )
    if any(plan.ingests for plan in layout.plans):
        raise GraphError(
            "at_end='flush' is for sources that Spark does not read: not for its DataFrames, nor Kafka"
        )


def options_of(
    layout: Layout,
    housing: Housing,
    *,
    batch_rows: int,
    interval: float | None,
    store: str | None,
    at_end: str | None,
) -> dict[str, Any]:
    """List what a run was told, or settled for, as its folder keeps it."""
    return {
        "batch_rows": batch_rows,
        "buckets": max(plan.buckets for plan in layout.plans),
        "parallelism": max(plan.tasks for plan in layout.plans),
        "trigger": interval,
        "pages": housing.state,
        "page_limit": housing.limit,
        "store": store,
        "at_end": at_end,
    }


def open_folder(
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
