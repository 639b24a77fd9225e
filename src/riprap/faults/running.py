"""Run a campaign on Spark: trials and golden runs are tasks, and what they score is written down as it comes.

A job is a few trials of one seed, or a golden run; several are handed to Spark at a time. A worker keeps the golden run
it had last, so that jobs of one seed after the other share it.
"""

from __future__ import annotations

import contextlib
import pickle
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from riprap.drawing import draw_svg
from riprap.faults.campaign import Campaign, Task
from riprap.faults.curves import over_time
from riprap.faults.evaluation import Criticality, evaluate
from riprap.faults.folder import CampaignFolder, fingerprint
from riprap.faults.outputs import Right
from riprap.faults.scoring import (
    Affected,
    GoldenScored,
    Scored,
    affected_sets,
    check_score,
    score_golden,
    score_trial,
)
from riprap.faults.setup import Seeded, Setup
from riprap.faults.streaming import streaming_seconds
from riprap.graph.application import Application
from riprap.graph.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Trials of a job: few enough to see progress and to lose little, enough that Spark's share is small.
_TRIALS = 12
_AHEAD = 2

Show = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all jobs need."""

    fingerprint: str
    setup: Setup
    affected: Affected
    reference: Right | None
    shortcut: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Trials of one seed, or without any its golden run."""

    seed: int
    tasks: tuple[Task, ...] = ()

    @property
    def golden(self) -> bool:
        return not self.tasks


@dataclass(frozen=True, slots=True)
class Findings:
    """What a campaign found, and where it is written down."""

    folder: Path
    criticalities: tuple[Criticality, ...]
    warnings: tuple[str, ...]
    result: Mapping[str, Any]


def inject(
    application: Application | Graph,
    campaign: Campaign,
    *,
    folder: Path | str | None = None,
    name: str = "campaign",
    root: Path | str = "campaigns",
    spark: SparkSession | None = None,
    master: str | None = None,
    shortcut: bool = True,
    compare: bool = True,
    show: Show = lambda doing, share: None,
) -> Findings:
    """Inject the faults of a campaign, and say how critical operators are.

    What is known is in ``folder``, by default one in ``root`` that is named after the campaign and what it is
    about; the same campaign goes on where it stopped. Without the ``shortcut`` every trial replays all tuples. With
    ``compare`` the application is also run once through the streaming runtime, to say how long all runs would take
    that way. ``show`` hears what is being done, and the share of all work that is.
    """
    graph = application.graph() if isinstance(application, Application) else application
    began = time.perf_counter()
    show("reading the feed", 0.0)
    setup = Setup.of(graph, campaign)
    campaign = setup.campaign
    print_of = fingerprint(graph, campaign, _about_feed(setup))
    path = Path(folder) if folder is not None else Path(root) / graph.name / f"{name}-{print_of}"
    known = CampaignFolder.open(path.absolute(), _about(graph, setup, print_of))
    if folder is None:
        known.be_latest()
    (known.path / "graph.svg").write_text(draw_svg(graph), encoding="utf-8")
    done = known.result
    if done is None:
        _carry_out(graph, setup, known, print_of, spark, master, shortcut, compare, show, began)
    trials, golden = known.trials(), known.golden()
    criticalities = evaluate(campaign, trials, golden)
    result = known.result
    assert result is not None
    return Findings(known.path, criticalities, tuple(result["warnings"]), result)


def repeat(
    application: Application | Graph, campaign: Campaign, trial: str, *, shortcut: bool = True
) -> Scored:
    """Run one trial of a campaign again, by its name, here and without Spark."""
    graph = application.graph() if isinstance(application, Application) else application
    setup = Setup.of(graph, campaign)
    task = setup.campaign.task(trial)
    first = setup.seeded(0)
    affected = affected_sets(first, setup.campaign)
    seeded = first if task.repetition == 0 else setup.seeded(task.repetition, first.right)
    return score_trial(seeded, task, affected, shortcut=shortcut)


def _carry_out(
    graph: Graph,
    setup: Setup,
    known: CampaignFolder,
    print_of: str,
    spark: SparkSession | None,
    master: str | None,
    shortcut: bool,
    compare: bool,
    show: Show,
    began: float,
) -> None:
    campaign = setup.campaign
    show("the golden run", 0.0)
    at = time.perf_counter()
    first = setup.seeded(0)
    check_score(first)
    golden_seconds = time.perf_counter() - at
    at = time.perf_counter()
    affected = affected_sets(first, campaign)
    trial_seconds = (time.perf_counter() - at) / max(1, len(affected))
    shared = Shared(print_of, setup, affected, first.right if _compares(campaign) else None, shortcut)
    jobs = _jobs(campaign, known)
    ahead = sum(golden_seconds if job.golden else trial_seconds * len(job.tasks) for job in jobs)
    passed = 0.0
    session_seconds = 0.0
    with _session(spark, master) as session:
        for job, trials, run in _on_spark(session, shared, jobs):
            known.add_trials(trials)
            known.add_golden([run] if run is not None else [])
            passed += golden_seconds if job.golden else trial_seconds * len(job.tasks)
            show("golden runs" if job.golden else "trials", min(1.0, passed / ahead) if ahead else 1.0)
        took = time.perf_counter() - began
        if compare:
            show("one run through the streaming runtime", 1.0)
            session_seconds = streaming_seconds(graph, session)
    trials, golden = known.trials(), known.golden()
    criticalities = evaluate(campaign, trials, golden)
    runs = len(trials) + len(golden)
    known.finish(
        {
            "application": graph.name,
            "operators": [c.to_json() for c in criticalities],
            "warnings": list(warnings_of(campaign, criticalities, trials)),
            "rows": sum(part.rows for part in setup.feed.rows.values()),
            "sections": first.right.form.count,
            "outages": [str(outage) for outage in campaign.outages],
            "took": took,
            "trials": len(trials),
            "golden": len(golden),
            "replayed": sum(t.replayed for t in trials),
            "streaming": {"seconds": session_seconds, "all": session_seconds * runs} if compare else None,
            "curves": over_time(campaign, criticalities, trials, golden),
        }
    )


def _jobs(campaign: Campaign, known: CampaignFolder) -> list[Job]:
    """List the jobs that are left, those of one seed after the other."""
    there = {trial.id for trial in known.trials()}
    seeds = {run.seed for run in known.golden()}
    left: dict[int, list[Task]] = {}
    for task in campaign.tasks():
        if task.id not in there:
            left.setdefault(task.repetition, []).append(task)
    found = []
    # The last repetitions need their golden runs too, whether or not those count.
    for seed in range(max(campaign.golden, campaign.repetitions)):
        tasks = left.get(seed, [])
        found += [Job(seed, tuple(tasks[at : at + _TRIALS])) for at in range(0, len(tasks), _TRIALS)]
        if seed not in seeds:
            found.append(Job(seed))
    return found


def _on_spark(
    session: SparkSession, shared: Shared, jobs: Sequence[Job]
) -> Iterator[tuple[Job, list[Scored], GoldenScored | None]]:
    """Have jobs done by Spark, as many at a time as it has room for and some more; what is done comes first."""
    if not jobs:
        return
    from pyspark import cloudpickle

    context = session.sparkContext
    # Spark's own way to send it cannot take a function that is defined inside another.
    told = context.broadcast(cloudpickle.dumps(shared))
    group = f"riprap-campaign-{shared.fingerprint}-{uuid.uuid4().hex[:6]}"
    waiting: dict[Future[Any], Job] = {}
    queue = list(reversed(jobs))
    with ThreadPoolExecutor(context.defaultParallelism + _AHEAD) as pool:

        def hand_over() -> None:
            while queue and len(waiting) < context.defaultParallelism + _AHEAD:
                job = queue.pop()
                waiting[pool.submit(_hand_over, context, group, shared.fingerprint, told, job)] = job

        try:
            hand_over()
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for each in ready:
                    job = waiting.pop(each)
                    trials, run = each.result()
                    yield job, trials, run
                hand_over()
        finally:
            queue.clear()
            if waiting:
                context.cancelJobGroup(group)
            told.unpersist()


def _hand_over(
    context: Any, group: str, campaign: str, told: Any, job: Job
) -> tuple[list[Scored], GoldenScored | None]:
    context.setJobGroup(group, "riprap inject")
    found: list[tuple[list[Scored], GoldenScored | None]] = (
        context.parallelize([job], 1).map(lambda job: work(campaign, told, job)).collect()
    )
    return found[0]


# What this worker was told last, by campaign; and the golden run it had last, by campaign and seed.
_told: dict[str, Shared] = {}
_last: dict[tuple[str, int], Seeded] = {}


def work(campaign: str, told: Any, job: Job) -> tuple[list[Scored], GoldenScored | None]:
    """Do a job: in a worker."""
    if campaign not in _told:
        _told.clear()
        _last.clear()
        _told[campaign] = pickle.loads(told.value)
    shared, key = _told[campaign], (campaign, job.seed)
    if job.golden:
        seeded = _last.get(key) or shared.setup.seeded(job.seed, shared.reference, bare=True)
        return [], score_golden(seeded, shared.affected)
    if key not in _last:
        _last.clear()
        _last[key] = shared.setup.seeded(job.seed, shared.reference)
    return [score_trial(_last[key], t, shared.affected, shortcut=shared.shortcut) for t in job.tasks], None


@contextlib.contextmanager
def _session(spark: SparkSession | None, master: str | None) -> Iterator[SparkSession]:
    from riprap.runtime.session import make_session

    if spark is not None:
        yield spark
        return
    session = make_session(master)
    try:
        yield session
    finally:
        session.stop()


def _compares(campaign: Campaign) -> bool:
    return bool(getattr(campaign.score, "compares", False))


def _about(graph: Graph, setup: Setup, print_of: str) -> dict[str, Any]:
    return {
        "application": graph.name,
        "fingerprint": print_of,
        "campaign": setup.campaign.describe(),
        "targets": [{"name": t.name, "why": t.why, "stands_for": list(t.stands_for)} for t in setup.placed],
        "feed": _about_feed(setup),
        "versions": {
            "riprap": version("riprap"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "scipy")},
        },
    }


def _about_feed(setup: Setup) -> dict[str, Any]:
    """Say what was read: how many rows of each source, and a digest of them."""
    told = {}
    for name, rows in setup.feed.rows.items():
        digest = xxhash.xxh3_128()
        for column in rows.columns.values():
            for buffer in column.buffers():
                if buffer is not None:
                    digest.update(memoryview(buffer))
        told[name] = {"rows": rows.rows, "digest": digest.hexdigest()}
    return told


def warnings_of(
    campaign: Campaign, criticalities: Sequence[Criticality], trials: Sequence[Scored]
) -> Iterator[str]:
    """Say what a reader should know before believing the metrics."""
    failed = [trial for trial in trials if trial.error]
    if failed:
        yield f"{len(failed)} trials are unknown, the first because: {failed[0].error}"
    blind = [c.name for c in criticalities if not c.notices and c.verdict != "unknown"]
    if blind:
        yield (
            f"the score '{campaign.score.name}' does not notice faults at {', '.join(blind)}: by a "
            "Kolmogorov-Smirnov test no section differs from golden runs. Take another score, or longer outages, "
            "before you believe they do no harm"
        )
    still = [c.name for c in criticalities if not c.varies]
    if still:
        yield (
            f"repetitions do not vary at all at {', '.join(still)}: nothing there is non-deterministic, so an "
            "analysis of variance means nothing"
        )
    if any(c.anova.outcome == "constant" for c in criticalities) and campaign.repetitions == 1:
        yield "with one repetition nothing can be said about chance: give repetitions= and interleave= for that"
