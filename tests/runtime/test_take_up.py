"""A run that was left can be taken up again, in other circumstances too; and what cannot is refused."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import EVENTS, Feed, lines_of, read_parts, wait_until, whole

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.graph.connectors import SourceConnector

BATCH = 1_000

# What the runs that are not taken up leave in shared memory is swept.
pytestmark = pytest.mark.usefixtures("runs")


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def leave(
    spark: SparkSession, feed: str | Path | SourceConnector, out: Path, *, tuples: int, **options: Any
) -> Path:
    """Start a run and leave it once it has taken in some tuples; return its folder."""
    app = bargain(feed, rr.parquet(out / "found", roll=0))
    options = {"batch_rows": BATCH, "runs": out / "runs", **options}
    run = app.run(spark=spark, **options)
    with contextlib.suppress(LeftError), run:
        wait_until(lambda: run.progress().tuples_in >= tuples)
        raise LeftError
    return run.folder


def take_up(
    spark: SparkSession, feed: Path | SourceConnector, out: Path, folder: Path, **options: Any
) -> rr.Run:
    app = bargain(feed, rr.parquet(out / "found", roll=0))
    with app.run(spark=spark, folder=folder, batch_rows=BATCH, **options) as run:
        assert run.wait(timeout=120), "the run did not end"
    return run


def test_with_more_cores_than_buckets(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    folder = leave(spark, feed.folder, tmp_path, tuples=2 * BATCH, buckets=2, parallelism=2)

    run = take_up(spark, feed.folder, tmp_path, folder, parallelism=4)

    assert (run.layout.plans[0].buckets, run.layout.plans[0].tasks) == (2, 2)
    assert whole(read_parts(tmp_path / "found")).equals(feed.bargains)


def test_stopped_in_good_order_it_goes_on_as_if_it_had_not_been(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    # It would take ten seconds, and is stopped long before.
    paced = rr.files(feed.folder, rate=EVENTS / 10)
    app = bargain(paced, rr.parquet(tmp_path / "found", roll=0))
    with app.run(spark=spark, batch_rows=BATCH, runs=tmp_path / "runs") as run:
        wait_until(lambda: run.progress().tuples_in >= BATCH or not run.running)
        run.stop(resume=True)
    assert [e["event"] for e in lines_of(run.folder / "events.jsonl")] == ["started", "stopped"]
    stopped_at = run.progress().tuples_in
    assert stopped_at < EVENTS
    found = [seq for seq in feed.bargains["seq"].to_pylist() if seq < stopped_at]
    assert whole(read_parts(tmp_path / "found"))["seq"].to_pylist() == found, "all that was computed is there"

    # A start that is refused changes nothing about it, and says that it is there.
    newest = tmp_path / "runs" / "bargain" / "latest"
    with pytest.raises(rr.RunError, match=r"(?s)holds \d+ files.*take it up with folder='.*/bargain/latest'"):
        app.run(spark=spark, runs=tmp_path / "runs")
    assert newest.resolve() == run.folder

    again = take_up(spark, feed.folder, tmp_path, newest)
    assert whole(read_parts(tmp_path / "found")).equals(feed.bargains)
    assert again.progress().tuples_in == EVENTS, "counted from the beginning"
    assert again.progress().tuples_out == {"Sink": feed.bargains.num_rows}


def test_with_another_number_of_tasks_after_hours(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    folder = leave(spark, feed.folder, tmp_path, tuples=2 * BATCH, buckets=8, parallelism=2)

    take_up(spark, feed.folder, tmp_path, folder, parallelism=3, clock=lambda: time.time() + 7200)

    assert whole(read_parts(tmp_path / "found")).equals(feed.bargains)


def test_a_paced_run_that_had_read_everything(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    paced = rr.files(feed.folder, rate=1e6)
    folder = leave(spark, paced, tmp_path, tuples=EVENTS, batch_rows=EVENTS)

    take_up(spark, paced, tmp_path, folder)

    assert whole(read_parts(tmp_path / "found")).equals(feed.bargains)


def test_an_application_that_would_misread_the_state_is_refused(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    folder = leave(spark, feed.folder, tmp_path, tuples=BATCH)
    app = rr.Application("bargain")
    source = app.source("Source", rr.files(feed.folder), position="seq")
    sums = app.aggregate(
        "Aggregator", source, by="ticker", window=rr.sliding(tuples=7), select="sum(size) as n"
    )
    app.sink("Sink", sums, rr.memory())

    with pytest.raises(
        rr.RunError, match=r"(?s)cannot take up:.*'Aggregator' has changed: .*'BargainIndex' is gone: "
    ):
        app.run(spark=spark, folder=folder)


def test_a_run_that_failed_unwatched_says_so_when_it_is_left(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    app = rr.Application("failing")
    source = app.source("Source", rr.files(feed.folder), position="seq")
    app.sink("Sink", app.functor("ratio", source, select="1 / (seq - 5000) as r"), rr.memory())

    with (
        pytest.raises(
            rr.OperatorError, match=r"'ratio' .* at position 5000 of source 'Source': .*division by zero"
        ),
        app.run(spark=spark, trigger="100ms", batch_rows=BATCH, runs=tmp_path / "runs") as run,
    ):
        wait_until(lambda: not run.running)
    assert '"failed"' in (run.folder / "events.jsonl").read_text()
