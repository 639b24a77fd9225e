"""Run a campaign: what its trials and golden runs score is written down as it comes, and taken up again."""

from __future__ import annotations

import contextlib
import inspect
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from riprap.application import Application
from riprap.drawing import draw_svg
from riprap.faults.campaign import Campaign
from riprap.faults.curves import over_time
from riprap.faults.evaluation import Criticality, evaluate
from riprap.faults.folder import CampaignFolder, fingerprint
from riprap.faults.jobs import Shared, list_jobs, on_spark, session_for
from riprap.faults.outputs import Form
from riprap.faults.scored_trials import (
    GoldenScored,
    Scored,
    affected_sets,
    check_score,
    place_id,
    score_trial,
)
from riprap.faults.setup import Setup
from riprap.faults.streaming_time import streaming_seconds
from riprap.graph.faults import Crash
from riprap.graph.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ShowProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a campaign found, and where it is written down; ``earlier`` if all of it was known before."""

    folder: Path
    criticalities: tuple[Criticality, ...]
    warnings: tuple[str, ...]
    result: Mapping[str, Any]
    earlier: bool = False


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
    show: ShowProgress = lambda doing, share: None,
) -> Findings:
    """Inject the faults of a campaign, and say how critical operators are.

    What is known is in ``folder``, by default one in ``root`` that is named after the campaign and what it is about;
    the same campaign goes on where it stopped. Without the ``shortcut`` every trial replays all tuples. With
    ``compare`` the application is also run once through the streaming runtime, to say how long all runs would take that
    way. ``show`` hears what is being done, and the share of all work that is.
    """
    graph = application.graph() if isinstance(application, Application) else application
    began = time.perf_counter()
    show("reading the feed", 0.0)
    setup = Setup.of(graph, campaign)
    about = _about(graph, setup)
    called = name if shortcut else f"{name}-replayed"
    path = (
        Path(folder) if folder is not None else Path(root) / graph.name / f"{called}-{about['fingerprint']}"
    )
    with CampaignFolder.open(path.absolute(), about) as home:
        if folder is None:
            home.be_latest()
        earlier = home.result is not None
        if not earlier:
            (home.path / "graph.svg").write_text(draw_svg(graph), encoding="utf-8")
            with session_for(spark, master, home.path / "spark.log") as session:
                seconds = _carry_out(setup, home, session, shortcut=shortcut, show=show, began=began)
                if compare:
                    show("one run through the streaming runtime", 1.0)
                streaming = streaming_seconds(graph, session) if compare else None
            home.finish(_result(setup, home, took=seconds, streaming=streaming))
        result = home.result
        assert result is not None
        criticalities = evaluate(setup.campaign, home.trials(), home.golden())
    return Findings(home.path, criticalities, tuple(result["warnings"]), result, earlier)


def repeat(
    application: Application | Graph, campaign: Campaign, trial: str, *, shortcut: bool = True
) -> Scored:
    """Run one trial of a campaign again, by its name, here and without Spark."""
    graph = application.graph() if isinstance(application, Application) else application
    setup = Setup.of(graph, campaign)
    task = setup.campaign.task(trial)
    first = setup.seeded(0)
    place = place_id(task.model, task.targets, task.offset)
    affected = affected_sets(first, setup.campaign, only=place)
    seed = setup.seed_of(task.repetition)
    seeded = first if seed == 0 else setup.seeded(seed, first.right)
    return score_trial(seeded, task, affected, shortcut=shortcut)


def _carry_out(
    setup: Setup,
    home: CampaignFolder,
    session: SparkSession,
    *,
    shortcut: bool,
    show: ShowProgress,
    began: float,
) -> float:
    """Do what is left of a campaign; return how long it took."""
    campaign = setup.campaign
    show("the golden run", 0.0)
    at = time.perf_counter()
    first = setup.seeded(0)
    check_score(first)
    golden_seconds = time.perf_counter() - at
    at = time.perf_counter()
    affected = affected_sets(first, campaign)
    trial_seconds = (time.perf_counter() - at) / max(1, len(affected))
    compares = getattr(campaign.score, "compares", False)
    shared = Shared(setup, affected, first.right if compares else None, shortcut)
    # It is large, and others have their own.
    del first
    jobs = list_jobs(setup, home)
    seconds = {job: golden_seconds if job.golden else trial_seconds * len(job.tasks) for job in jobs}
    ahead, passed = sum(seconds.values()), 0.0
    with contextlib.closing(on_spark(session, shared, jobs)) as coming:
        for done in coming:
            home.add_trials(done.trials)
            home.add_golden(done.golden)
            passed += seconds[done.job]
            show("golden runs" if done.job.golden else "trials", passed / ahead)
    return time.perf_counter() - began


def _result(setup: Setup, home: CampaignFolder, *, took: float, streaming: float | None) -> dict[str, Any]:
    campaign, trials, golden = setup.campaign, home.trials(), home.golden()
    criticalities = evaluate(campaign, trials, golden)
    runs = len(trials) + len(golden)
    return {
        "application": setup.user.name,
        "operators": [
            {**c.to_json(), "stateful": any(setup.user[name].stateful for name in c.targets)}
            for c in criticalities
        ],
        "warnings": [*warnings_of(campaign, criticalities, trials, golden), *left_out(setup.form)],
        "rows": sum(part.rows for part in setup.feed.rows.values()),
        "sections": max(len(run.local) for run in golden),
        "outages": [str(outage) for outage in campaign.outages],
        "took": took,
        "trials": len(trials),
        "golden": len(golden),
        "replayed": sum(t.replayed for t in trials),
        "streaming": {"seconds": streaming, "all": streaming * runs} if streaming is not None else None,
        "curves": over_time(campaign, criticalities, trials, golden),
    }


def left_out(form: Form | None) -> Iterator[str]:
    """Say so where the stream ends inside a section."""
    if form is not None and form.rest:
        what = "positions" if form.by is None else form.by
        yield (
            f"the stream ends inside a section, of which it has {form.rest:,} of {form.length:,} ({what}): that is no "
            "whole section, and R and I are made of those before it"
        )


def _about(graph: Graph, setup: Setup) -> dict[str, Any]:
    feed = {name: _digest(rows.columns) for name, rows in setup.feed.rows.items()}
    tables = {
        name: _digest(dict(zip(t.column_names, t.columns, strict=True))) for name, t in setup.tables.items()
    }
    code = {o.name: _code(o.written_by) for o in graph if o.written_by is not None}
    own: dict[str, object] = {f"model {name}": model for name, model in setup.campaign.models.items()}
    own |= {
        f"protection of {name}": m.protection
        for name, m in setup.campaign.models.items()
        if isinstance(m, Crash)
    }
    own |= {f"policy of {o.name}": o.protect for o in graph}
    for name, value in own.items():
        if not type(value).__module__.startswith(("riprap.", "builtins")):
            code[name] = _code(type(value))
    return {
        "application": graph.name,
        "fingerprint": fingerprint(graph, setup.campaign, {"feed": feed, "tables": tables, "code": code}),
        "campaign": setup.campaign.describe(),
        "targets": [
            {"model": model, "name": t.name, "why": t.why, "stands_for": list(t.stands_for)}
            for model, targets in setup.chosen.items()
            for t in targets
        ],
        "feed": feed,
        "versions": {
            "riprap": version("riprap"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "scipy")},
        },
    }


def _digest(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Say what was read: how many rows, and a digest of them."""
    digest, rows = xxhash.xxh3_128(), 0
    for name, column in columns.items():
        digest.update(name.encode())
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            plain = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
            rows = len(column)
            for buffer in plain.buffers():
                if buffer is not None:
                    digest.update(memoryview(buffer))
    return {"rows": rows, "digest": digest.hexdigest()}


def _code(made_by: Any) -> str:
    """Return the text of what a user wrote, or its name where there is none."""
    try:
        return inspect.getsource(made_by)
    except (OSError, TypeError):
        return str(getattr(made_by, "__qualname__", made_by))


def warnings_of(
    campaign: Campaign,
    criticalities: Sequence[Criticality],
    trials: Sequence[Scored],
    golden: Sequence[GoldenScored],
) -> Iterator[str]:
    """Say what a reader should know before believing the metrics."""
    failed = [trial for trial in trials if trial.error]
    if failed:
        yield f"{len(failed)} trials are unknown; {failed[0].id} because: {failed[0].error}"
    bad = [run for run in golden if run.error]
    if bad:
        yield f"{len(bad)} golden runs failed and do not count; number {bad[0].seed} because: {bad[0].error}"
    several = len(campaign.models) > 1

    def named(some: Sequence[Criticality]) -> str:
        return ", ".join(f"{c.name} ({c.model})" if several else c.name for c in some)

    blind = [c for c in criticalities if not c.notices and c.verdict != "unknown"]
    if blind:
        yield (
            f"the score '{campaign.score.name}' does not notice faults at {named(blind)}: by Kolmogorov-Smirnov tests "
            "no section differs from golden runs. Take another score, or longer outages, before you believe they do "
            "no harm"
        )
    still = [c for c in criticalities if not c.varies and c.verdict != "unknown"]
    if still:
        yield (
            f"repetitions do not vary at all at {named(still)}: nothing there is left to chance, so an analysis of "
            "variance would mean nothing"
        )
    if campaign.repetitions == 1:
        yield "with one repetition nothing can be said about chance: give repetitions= and interleave= for that"
