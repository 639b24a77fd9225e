"""The work of a campaign as Spark tasks: a few trials of one seed, or a golden run.

Several jobs are handed to Spark at a time. A worker keeps the golden run it had last, so that jobs of one seed after
the other share it.
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riprap.faults.campaign import Task
from riprap.faults.folder import CampaignFolder
from riprap.faults.outputs import Right
from riprap.faults.scored_trials import Affected, GoldenScored, Scored, score_golden, score_trial
from riprap.faults.setup import Seeded, Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Trials of a job: few enough to see progress and to lose little, enough that Spark's share is small.
_TRIALS = 12
# More than there is room for, so that no core waits for us.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Shared:
    """What all jobs need."""

    setup: Setup
    affected: Affected
    reference: Right | None
    shortcut: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Trials that start from the golden run of a seed, or without any that golden run itself."""

    seed: int
    tasks: tuple[Task, ...] = ()

    @property
    def golden(self) -> bool:
        return not self.tasks


@dataclass(frozen=True, slots=True)
class Done:
    """A job that is done, and what came of it."""

    job: Job
    trials: tuple[Scored, ...] = ()
    golden: tuple[GoldenScored, ...] = ()


def list_jobs(setup: Setup, home: CampaignFolder) -> list[Job]:
    """List the jobs that are left, those of one seed after the other. What is unknown is tried again."""
    done = {trial.id for trial in home.trials() if not trial.error}
    seeds = {run.seed for run in home.golden() if not run.error}
    campaign = setup.campaign
    left: dict[int, list[Task]] = {}
    for task in campaign.tasks():
        if task.id not in done:
            left.setdefault(setup.seed_of(task.repetition), []).append(task)
    jobs = []
    # Repetitions are compared with the golden run of their own seed, so those there must be.
    many = max(campaign.golden, campaign.repetitions) if campaign.interleave is not None else 1
    for seed in range(many):
        tasks = left.get(seed, [])
        jobs += [Job(seed, tuple(tasks[at : at + _TRIALS])) for at in range(0, len(tasks), _TRIALS)]
        if seed not in seeds:
            jobs.append(Job(seed))
    return jobs


@contextlib.contextmanager
def session_for(spark: SparkSession | None, master: str | None, log: Path) -> Iterator[SparkSession]:
    """Give the session there is, or one of our own, whose JVM and workers write to ``log``."""
    from riprap.runtime.session import make_session

    if spark is not None:
        yield spark
        return
    session = make_session(master, log=log)
    try:
        yield session
    finally:
        session.stop()


def on_spark(session: SparkSession, shared: Shared, jobs: Sequence[Job]) -> Generator[Done]:
    """Have jobs done by Spark, as many at a time as it has room for and some more; what is done comes first."""
    if not jobs:
        return
    from pyspark import cloudpickle

    context = session.sparkContext
    # Spark's own way to send it cannot take a function that is defined inside another.
    broadcast = context.broadcast(cloudpickle.dumps(shared))  # type: ignore[no-untyped-call]
    group = f"riprap-campaign-{uuid.uuid4().hex}"
    most = context.defaultParallelism + _AHEAD
    waiting: dict[Future[Done], Job] = {}
    queue = list(reversed(jobs))
    with ThreadPoolExecutor(most) as pool:
        try:
            while queue or waiting:
                while queue and len(waiting) < most:
                    job = queue.pop()
                    waiting[pool.submit(_hand_over, context, group, broadcast, job)] = job
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for each in ready:
                    del waiting[each]
                    yield each.result()
        finally:
            if waiting:
                context.cancelJobGroup(group)
            broadcast.unpersist()


def _hand_over(context: Any, group: str, broadcast: Any, job: Job) -> Done:
    context.setJobGroup(group, "riprap inject")
    done: list[Done] = context.parallelize([job], 1).map(lambda job: work(group, broadcast, job)).collect()
    return done[0]


# What this worker was told last, by group of jobs; and the golden run it had last, by seed.
_shared: dict[str, Shared] = {}
_last: dict[int, Seeded] = {}


def work(group: str, broadcast: Any, job: Job) -> Done:
    """Do a job: in a worker. What fails is unknown, and says why."""
    if group not in _shared:
        _shared.clear()
        _last.clear()
        _shared[group] = pickle.loads(broadcast.value)
    shared = _shared[group]
    try:
        if job.golden:
            seeded = _last.get(job.seed) or shared.setup.seeded(job.seed, shared.reference, bare=True)
            return Done(job, golden=(score_golden(seeded, shared.affected),))
        if job.seed not in _last:
            _last.clear()
            _last[job.seed] = shared.setup.seeded(job.seed, shared.reference)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if job.golden:
            return Done(job, golden=(GoldenScored(seed=job.seed, error=why),))
        return Done(job, trials=tuple(Scored(id=task.id, error=why) for task in job.tasks))
    seeded = _last[job.seed]
    scored = (score_trial(seeded, task, shared.affected, shortcut=shared.shortcut) for task in job.tasks)
    return Done(job, trials=tuple(scored))
