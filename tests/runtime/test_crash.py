"""Processes die by SIGKILL at chosen moments, and the output is that of a run in which none did."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import (
    EVENTS,
    Feed,
    Programs,
    bargain_twice,
    lines_of,
    on_record,
    only_run,
    page_folder,
    read_parts,
    wait_until,
    whole,
)

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.runtime import shares
from riprap.runtime.resident import rounds
from riprap.state.leases import sweep
from riprap.state.pages import page_root

BATCH = 4_000
ROLL = 500  # rows: a file gathers two batches or so
DRIVER_STEPS = ["gathered", "recorded", "published", "counted", "collected"]
CLUSTER = "local-cluster[2,1,1024]"

Parts = dict[tuple[int, int], pa.Table]


def job(feed: Feed, out: Path, **options: Any) -> dict[str, Any]:
    options = {"batch_rows": BATCH, "buckets": 8, "parallelism": 2, **options}
    return {"feed": str(feed.folder), "out": str(out), "roll_rows": ROLL, "options": options}


def outputs(out: Path) -> tuple[Parts, Parts]:
    return read_parts(out / "rolled"), read_parts(out / "each")


def take_up(spark: SparkSession, feed: Feed, out: Path, folder: Path) -> None:
    rolled = rr.parquet(out / "rolled", roll_rows=ROLL, roll="1h")
    app = bargain_twice(feed.folder, rolled, rr.parquet(out / "each", roll=0))
    with app.run(spark=spark, folder=folder, batch_rows=BATCH, buckets=8, parallelism=2) as run:
        run.wait()


@pytest.fixture(scope="module")
def unharmed(
    spark: SparkSession, feed: Feed, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Parts, Parts]:
    """Return the files of a run without faults."""
    out = tmp_path_factory.mktemp("unharmed")
    rolled = rr.parquet(out / "rolled", roll_rows=ROLL, roll="1h")
    app = bargain_twice(feed.folder, rolled, rr.parquet(out / "each", roll=0))
    with app.run(spark=spark, batch_rows=BATCH, buckets=8, parallelism=2, runs=out / "runs") as run:
        run.wait()
    rolled_parts, each_parts = outputs(out)
    assert whole(each_parts).equals(feed.bargains)
    assert len(each_parts) == EVENTS // BATCH
    assert 1 < len(rolled_parts) < len(each_parts)
    return rolled_parts, each_parts


@pytest.fixture(scope="module")
def killed_drivers(
    programs: Programs, feed: Feed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run drivers that die in the third batch, each at another step; return the folder that has one for each."""
    root = tmp_path_factory.mktemp("killed")
    started = []
    for step in DRIVER_STEPS:
        work = root / step
        jobs = [job(feed, work / "out", master="local[1]", runs=str(work / "runs"))]
        started.append(programs.start("find_bargains.py", work, jobs, crash_at=f"{step}:2"))
    for program in started:
        programs.finish(program, code=-signal.SIGKILL)
    yield root
    for step in DRIVER_STEPS:
        shutil.rmtree(root / step / "runs", ignore_errors=True)
    sweep(page_root())


@pytest.mark.parametrize("step", DRIVER_STEPS)
def test_a_killed_driver_is_taken_up(
    spark: SparkSession, feed: Feed, unharmed: tuple[Parts, Parts], killed_drivers: Path, step: str
) -> None:
    work = killed_drivers / step
    folder = only_run(work / "runs")
    assert (work / "crashed").exists()
    # Sinks are behind: the batches after it may be on record by the time it is published.
    recorded = on_record(folder)
    assert recorded == 1 if step == "gathered" else 2 <= recorded <= 5
    assert list((page_folder(folder) / "state").glob("*/*.page")), "state pages outlive their driver"

    take_up(spark, feed, work / "out", folder)

    rolled, each = outputs(work / "out")
    assert each == unharmed[1]
    assert rolled == unharmed[0]
    assert [e["event"] for e in lines_of(folder / "events.jsonl")] == ["started", "resumed", "ended"]
    computed = [m["batch"] for m in lines_of(folder / "metrics.jsonl") if not m["repeated"]]
    assert len(set(computed)) == len(computed), "a batch on record is not computed again"
    batches = [m["batch"] for m in lines_of(folder / "metrics.jsonl")]
    assert sorted(set(batches)) == list(range(EVENTS // BATCH)), "every batch has a line"
    assert batches.count(2) == (2 if step == "counted" else 1)
    newest = lines_of(folder / "metrics.jsonl")[-1]
    assert newest["total"] == {"in": EVENTS, "out": dict.fromkeys(("Sink", "Second"), len(feed.bargains))}
    assert not page_folder(folder).exists()


@pytest.mark.parametrize(
    "step",
    [
        "read",
        "shared",
        "computed",
        pytest.param("paged", marks=pytest.mark.slow),
        pytest.param("answered", marks=pytest.mark.slow),
    ],
)
def test_a_killed_python_worker_changes_nothing(
    spark: SparkSession,
    feed: Feed,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    if step == "shared":
        monkeypatch.setattr(shares, "LEAST_REPEATED", BATCH)
    if step == "read":
        monkeypatch.setattr(rounds, "LEAST_AHEAD", 1)
    # Workers get their environment from Spark's context, which the driver's own does not reach.
    monkeypatch.setitem(spark.sparkContext.environment, "RIPRAP_CRASH_AT", f"{step}:2")
    monkeypatch.setitem(spark.sparkContext.environment, "RIPRAP_CRASH_ONCE", str(tmp_path / "crashed"))
    with bargain(feed.folder, rr.memory()).run(spark=spark, runs=runs, batch_rows=BATCH) as run:
        run.wait()
        assert (tmp_path / "crashed").exists()
        assert run.table("Sink").equals(feed.bargains)


def stopped(marker: Path) -> psutil.Process:
    """Wait for a process that stands still at its step."""
    wait_until(lambda: marker.exists() and marker.read_text())
    process = psutil.Process(int(marker.read_text()))
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    return process


def test_a_worker_whose_daemon_is_killed_changes_nothing(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "stopped"
    for name, value in {"AT": "paged:2", "ONCE": str(marker), "BY": "SIGSTOP"}.items():
        monkeypatch.setitem(spark.sparkContext.environment, f"RIPRAP_CRASH_{name}", value)
    with bargain(feed.folder, rr.memory()).run(spark=spark, runs=runs, batch_rows=BATCH) as run:
        worker = stopped(marker)
        daemon = worker.parent()
        assert daemon is not None
        assert " pyspark.worker" in " ".join(daemon.cmdline())
        daemon.kill()
        worker.resume()
        run.wait()
        assert run.table("Sink").equals(feed.bargains)
    # It may wait for more work of Spark's, which does not know that nobody could fork its successor.
    worker.kill()


def test_a_killed_executor_and_a_worker_that_outlives_it_change_nothing(
    programs: Programs, feed: Feed, unharmed: tuple[Parts, Parts], runs: Path, tmp_path: Path
) -> None:
    """The worker has left its pages, stands still, loses its executor, and would answer once another has."""
    work = tmp_path / "work"
    config = {
        f"spark.executorEnv.RIPRAP_CRASH_{name}": value
        for name, value in {"AT": "answered:2", "ONCE": str(work / "stopped"), "BY": "SIGSTOP"}.items()
    }
    jobs = [job(feed, tmp_path / "out", master=CLUSTER, runs=str(runs), config=config)]
    program = programs.start("find_bargains.py", work, jobs)
    zombie = stopped(work / "stopped")
    backend = next(p for p in zombie.parents() if p.pid in executors(program.pid))
    backend.kill()
    wait_until(lambda: on_record(only_run(runs)) >= 2)
    # Its daemon may have ended it when the executor went.
    with contextlib.suppress(psutil.NoSuchProcess):
        zombie.resume()
    programs.finish(program)
    assert json.loads((tmp_path / "out" / "outcome.json").read_text())["error"] is None
    assert outputs(tmp_path / "out") == unharmed
    assert not psutil.wait_procs([zombie], 30)[1]


@pytest.mark.slow
def test_executors_that_share_no_pages_never_give_wrong_output(
    programs: Programs, feed: Feed, unharmed: tuple[Parts, Parts], runs: Path, tmp_path: Path
) -> None:
    # Without shared pages a task that runs where its bucket was not before cannot find its state. Spark then tries
    # it elsewhere, up to four times. So the run either gets through by luck with the right output, or it stops with
    # a MissingPageError and what it published is a beginning of the right output.
    jobs = [job(feed, tmp_path / "out", master=CLUSTER, runs=str(runs), pages="pages/{executor}")]
    programs.finish(programs.start("find_bargains.py", tmp_path / "work", jobs))
    outcome = json.loads((tmp_path / "out" / "outcome.json").read_text())
    rolled, each = outputs(tmp_path / "out")
    if outcome["error"] is None:
        assert (rolled, each) == unharmed
    else:
        assert outcome["error"] == "MissingPageError"
        assert "state page '" in outcome["message"]
        assert each == {batches: unharmed[1][batches] for batches in each}
        assert sorted(each) == sorted(unharmed[1])[: len(each)]
        assert rolled == {batches: unharmed[0][batches] for batches in rolled}


@pytest.mark.parametrize("harm", ["removed", pytest.param("cut short", marks=pytest.mark.slow)])
def test_a_missing_page_stops_the_run(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path, harm: str
) -> None:
    def damage(batch: int, table: pa.Table) -> None:
        if batch == 2:
            # Those who left small pages still know them, and would go on and leave new ones.
            computing = workers(os.getpid())
            for worker in computing:
                worker.suspend()
            while any(worker.status() != psutil.STATUS_STOPPED for worker in computing):
                time.sleep(0.01)
            for page in (tmp_path / "pages").glob("**/*.page"):
                with contextlib.suppress(FileNotFoundError):  # collected meanwhile
                    if harm == "removed":
                        page.unlink()
                    else:
                        os.truncate(page, 100)
            for worker in computing:
                worker.kill()

    app = bargain(feed.folder, rr.callback(damage))
    run = app.run(spark=spark, runs=runs, batch_rows=1_000, pages=tmp_path / "pages")
    with pytest.raises(rr.MissingPageError, match="state page '0000-000000000"), run:
        run.wait()
    # Sinks are behind: it may have come a little further before the pages were gone.
    assert 2 <= on_record(run.folder) <= 6


def workers(driver: int) -> list[psutil.Process]:
    """Return the Python processes that compute for a driver: children of the one that forks them."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent is not None and "riprap.runtime.worker_daemon" in parent.cmdline():
                found.append(process)
    return found


def executors(driver: int) -> list[int]:
    """Return the processes of a driver's executors."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        # Spark's short-lived helpers may be gone by now.
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process.pid)
    return found
