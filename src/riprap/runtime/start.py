"""Start an application on Spark: session, run folder, plan, sinks, query."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from riprap.compiler import Layout, Plan, compile_graph, describe_state
from riprap.compiler.replication import describe_members
from riprap.errors import GraphError, RiprapError, RunError
from riprap.graph.connectors import Files, Generated, list_files
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.source import Source
from riprap.runtime.agent.handle import hire
from riprap.runtime.changes import accept_changes, elements_of
from riprap.runtime.checkpointing.durable import settle_store
from riprap.runtime.checkpointing.inspection import describe_operators
from riprap.runtime.crew import Crew
from riprap.runtime.folder import RunFolder, read_about
from riprap.runtime.jvm_output import LOG, JvmLog
from riprap.runtime.kafka import check_connector, session_config
from riprap.runtime.launch import Launch
from riprap.runtime.precompilation import Precompilation
from riprap.runtime.resident.slots import share_of
from riprap.runtime.run import Run
from riprap.runtime.session import check_session, is_one_host, make_session
from riprap.runtime.site import Housing, left_behind, take_hold
from riprap.runtime.switch import run_alone
from riprap.state.leases import sweep
from riprap.state.pages import page_root


def run(graph: Graph, options: RunOptions) -> Run:
    """Start an application and return at once."""
    options = settle(graph, options)
    given, runs = options.spark, Path(options.runs)
    earlier = open_folder(graph, options) if options.folder is not None else None
    # A new run's folder is made once there is a session: until then what Spark prints is beside it.
    log = earlier[0].path / LOG if earlier is not None else runs / f".{uuid.uuid4().hex[:6]}-{LOG}"
    # First, so that it is there once Spark is.
    hire_early(graph)
    compiling = Precompilation()
    session = check_session(given) if given is not None else _own_session(graph, options, log)
    try:
        check_connector(session, graph)
        folder, resume = earlier or open_folder(graph, options)
        if given is None:
            JvmLog.move(folder.path)
        with calling_off(folder, resume=resume, clock=options.clock) as held:
            # First the lease: nothing of a run that is alive may be changed. Then the sweep: the run to take up may
            # look as dead as others.
            one_host = is_one_host(session)
            housing, lease = take_hold(folder, options.pages, options.page_limit, one_host=one_host)
            held.callback(lease.release)
            sweep(page_root(), clock=options.clock)
            accept_changes(folder, graph, ignore_state=options.ignore_state, fresh=options.fresh).make()
            options = replace(options, store=settle_store(folder.path, options.store))
            tasks = options.parallelism or session.sparkContext.defaultParallelism
            active = run_alone(folder.path, graph.groups, options.clock())
            stages = stages_of(alone(layout_of(graph), active))
            share = share_of(session, tasks, stages, resident=options.resident)
            held.callback(share.release)
            layout = compile_graph(
                graph, buckets=settle_buckets(folder, options.buckets, tasks), tasks=share.tasks
            )
            keep_state_layout(folder, layout)
            folder.describe(
                graph.name, options_of(layout, housing, options), options.notes or {}, **spark_of(session)
            )
            folder.event("resumed" if resume else "started")
            compiling.tell(folder.event)
            if options.resident is None:
                share.tell(folder.event, tasks)
            launch = Launch(
                graph=graph, session=session, folder=folder, resume=resume, options=options, stays=share.stays
            )
            plans = alone(layout, active)
            crew = Crew(launch, plans, housing)
            crew.begin(names := [plan.name for plan in plans], resume=names if resume else ())
            for error in crew.errors.values():
                crew.halt()
                raise error
            if not resume:
                folder.be_latest()
        return Run(
            layout=layout, crew=crew, session=session, owns_session=given is None, folder=folder, lease=lease,
            housing=housing, share=share, clock=options.clock,
        )  # fmt: skip
    except BaseException:
        if given is None:
            session.stop()
        raise


def _own_session(graph: Graph, options: RunOptions, log: Path) -> SparkSession:
    config = session_config(graph, options.config or {})
    return make_session(options.master, config, log, elements=len(layout_of(graph).plans))


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


def settle(graph: Graph, options: RunOptions) -> RunOptions:
    """Refuse what cannot be run before Spark starts, which takes seconds; return the options as they are in effect."""
    options = replace(options, at_end=_settle_end(options))
    layout = compile_graph(graph, buckets=options.buckets or 1, tasks=options.parallelism or 1)
    if options.interval is None:
        _check_end(layout)
        if options.folder is None:
            check_files(graph)
    if options.flush:
        _check_flush(layout)
    return options


def layout_of(graph: Graph) -> Layout:
    """Lay out an application, as far as that does not depend on where it runs."""
    return compile_graph(graph, buckets=1, tasks=1)


def alone(layout: Layout, active: Mapping[str, str]) -> tuple[Plan, ...]:
    """Return the plans of a run in one process, in which one replica of each group runs."""
    return tuple(plan for plan in layout.plans if plan.group is None or active[plan.group] == plan.replica)


def stages_of(plans: Iterable[Plan]) -> int:
    """Count the processing elements whose tasks are to stay."""
    return sum(not plan.ingests for plan in plans)


def hire_early(graph: Graph) -> None:
    """Start the agent of this process, if there will be anything to save."""
    if any(plan.protected for plan in layout_of(graph).plans):
        hire()


def _settle_end(options: RunOptions) -> Literal["flush"] | None:
    """Return what is done at the end of the input: as asked, or as the run to take up began.

    Offsets and channels of a run that flushes say more than those of one that does not.
    """
    about = read_about(Path(options.folder)) if options.folder is not None else None
    if about is None:
        return options.at_end
    began: Literal["flush"] | None = about["options"].get("at_end")
    if options.at_end not in (None, began):
        raise RunError(
            f"the run in {options.folder} was started without at_end=, and goes on as it began. Leave out "
            f"at_end={options.at_end!r}, or start a new run"
        )
    return began


def settle_buckets(folder: RunFolder, asked: int | None, tasks: int) -> int:
    """Return the number of buckets: what was asked for, what the run began with, or enough for its tasks."""
    layout = folder.state_layout()
    return asked or (int(layout["buckets"]) if layout else max(8, 2 * tasks))


def keep_state_layout(folder: RunFolder, layout: Layout) -> None:
    """Write down how state is cut up: it can only be taken up again cut in the same way."""
    keyed = [plan for plan in layout.plans if plan.keyed]
    folder.keep_state_layout(
        {
            "elements": elements_of(layout),
            "buckets": max(plan.buckets for plan in keyed or layout.plans),
            "operators": describe_state(layout.graph),
            "about": describe_operators(layout.graph),
            "groups": describe_members(layout),
        }
    )


def spark_of(session: SparkSession) -> dict[str, str]:
    """Say on which Spark a session runs."""
    assert session._jvm is not None
    return {
        "master": session.sparkContext.master or "",
        "java": str(session._jvm.System.getProperty("java.version")),
    }


def check_files(graph: Graph) -> None:
    """Refuse a new run that would not wait for its files, and whose files are not there."""
    for source in graph.of_kind(Source):
        files = source.connector
        if not isinstance(files, Files) or files.last_line is not None:
            continue
        lacking = [pattern for pattern in files.patterns if not list_files([pattern], files.format)]
        if lacking:
            raise GraphError(
                f"source '{source.name}' ({source.location}): no {files.format} file matches {lacking[0]}. Check the "
                f"path (it is looked for in {Path.cwd()}), or wait for files with trigger="
            )


def _check_end(layout: Layout) -> None:
    """Refuse a run without trigger that would never end."""
    for source in layout.graph.of_kind(Source):
        if isinstance(source.connector, Generated) and source.connector.limit is None:
            raise GraphError(
                f"{source}: {source.connector} never ends. Give trigger= and stop the run yourself"
            )


def _check_flush(layout: Layout) -> None:
    """Refuse to flush what cannot be flushed at the end of the input."""
    for operator in layout.graph:
        if operator.unflushable is not None:
            problem, do = operator.unflushable
            raise GraphError(f"{operator} ({operator.location}): {problem}. {do}")
    if any(plan.ingests for plan in layout.plans):
        raise GraphError(
            "at_end='flush' is for sources that Spark does not read: not for its DataFrames, nor Kafka"
        )


def options_of(layout: Layout, housing: Housing, options: RunOptions) -> dict[str, Any]:
    """List what a run was told, or settled for, as its folder keeps it."""
    return {
        "batch_rows": options.batch_rows,
        "buckets": max(plan.buckets for plan in layout.plans),
        "parallelism": max(plan.tasks for plan in layout.plans),
        "trigger": options.interval,
        "pages": housing.state,
        "page_limit": housing.limit,
        "store": options.store,
        "at_end": options.at_end,
    }


def open_folder(graph: Graph, options: RunOptions) -> tuple[RunFolder, bool]:
    """Make a run's folder, or open that of the run to take up; say which."""
    if options.folder is None:
        return RunFolder.create(Path(options.runs), graph.name, options.clock), False
    opened = RunFolder.reopen(Path(options.folder), graph.name, options.clock)
    if opened.ended:
        raise RunError(
            f"the run in {opened.path} has ended: its state is gone. Start a new one without folder="
        )
    return opened, True
