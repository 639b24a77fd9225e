"""A run as its user sees it: its folder, its progress, ending it, taking it up, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import EVENTS, Feed, bargain_twice, lines_of, on_record, page_folder, wait_until

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.runtime.folder import RunFolder
from riprap.runtime.resident.stage import ResidentStage

NUMBERS = pa.table({"k": [i % 5 for i in range(600)], "n": list(range(600))})


def sums(source: pa.Table, sink: Any, *, name: str = "sums") -> rr.Application:
    """Describe sums over the last ten numbers of each key."""
    app = rr.Application(name)
    numbers = app.source("numbers", rr.rows(source))
    app.sink(
        "out", app.aggregate("sum", numbers, by="k", window=rr.sliding(tuples=10), select="sum(n) as s"), sink
    )
    return app


def expected_sums(numbers: pa.Table) -> list[dict[str, int]]:
    windows: dict[int, list[int]] = {}
    found = []
    for row in numbers.to_pylist():
        window = windows.setdefault(row["k"], [])
        window.append(row["n"])
        found.append({"k": row["k"], "s": sum(window[-10:])})
    return found


def interrupt(run: rr.Run) -> None:
    """Leave a run by an exception once it has got somewhere, as a user's program may."""

    def leave() -> None:
        with run:
            wait_until(lambda: run.progress().batches >= 1 or not run.running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()


def test_the_folder_tells_what_was_run(spark: SparkSession, feed: Feed, runs: Path) -> None:
    with bargain(feed.folder, rr.memory()).run(spark=spark, runs=runs, batch_rows=9_000, buckets=6) as run:
        run.wait()
    assert (runs / "bargain" / "latest").resolve() == run.folder
    about = json.loads((run.folder / "run.json").read_text())
    assert about["format"] == "riprap-run/1"
    assert about["application"] == "bargain"
    assert about["master"] == spark.sparkContext.master
    assert about["options"]["batch_rows"] == 9_000
    assert about["options"]["buckets"] == 6
    assert {"riprap", "pyspark", "pyarrow"} <= about["versions"].keys()
    events = lines_of(run.folder / "events.jsonl")
    assert [e["event"] for e in events] == ["started", "ended"]
    assert events[-1]["tuples_in"] == EVENTS
    assert events[-1]["tuples_out"] == {"Sink": feed.bargains.num_rows}
    metrics = lines_of(run.folder / "metrics.jsonl")
    assert metrics == list(RunFolder(run.folder, lambda: 0.0).read_metrics())
    assert [m["batch"] for m in metrics] == [0, 1, 2]
    assert [m["rows"] for m in metrics] == [9_000, 9_000, 6_000]
    assert not any(m["repeated"] for m in metrics)
    trades = feed.table["kind"].to_pylist().count("trade")
    assert sum(m["operators"]["Aggregator"]["in"] for m in metrics) == trades
    assert sum(m["operators"]["BargainIndex"]["out"] for m in metrics) == feed.bargains.num_rows
    assert all(m["operators"]["Aggregator"]["state_bytes"] > 0 for m in metrics)
    assert all(m["latency"]["oldest"] > 0 for m in metrics)


def test_no_pages_stay_after_a_run(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    with sums(NUMBERS, rr.memory()).run(spark=spark, runs=runs, pages=tmp_path / "pages") as run:
        assert not page_folder(run.folder).exists(), "all pages go where the user says"
        run.wait()
        assert run.table("out").to_pylist() == expected_sums(NUMBERS)
    assert (run.folder / "ended").exists()
    assert not (run.folder / "results").exists()
    assert not list((tmp_path / "pages").iterdir()), "a page folder of the user's choice is emptied too"


def test_a_dead_runs_pages_are_swept_once_its_folder_is_gone(spark: SparkSession, runs: Path) -> None:
    run = sums(NUMBERS, rr.memory()).run(spark=spark, runs=runs, batch_rows=100)
    interrupt(run)
    assert [e["event"] for e in lines_of(run.folder / "events.jsonl")] == ["started", "interrupted"]

    def run_another() -> None:
        with sums(NUMBERS, rr.memory(), name="another").run(spark=spark, runs=runs) as another:
            another.wait()

    run_another()
    assert page_folder(run.folder).exists(), "the run could still be taken up"
    shutil.rmtree(run.folder)
    run_another()
    assert not page_folder(run.folder).exists()


@pytest.mark.slow
def test_pages_do_not_grow_with_the_number_of_batches(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    pages, results = [], []

    def count(batch: int, table: pa.Table) -> None:
        pages.append(len(list((tmp_path / "pages").glob("*/*/*"))))
        results.append(len(list((runs / "sums" / "latest").glob("results/*/*"))))

    app = sums(NUMBERS, rr.callback(count))
    with app.run(spark=spark, runs=runs, batch_rows=10, buckets=4, pages=tmp_path / "pages") as run:
        run.wait()
        assert len(pages) == 60
        assert on_record(run.folder) == 59
        assert len(list(run.folder.glob("elements/sums/ledger/*.json"))) <= 5
    # Two tasks; of each, the pages that a few records name, and those of the batches that are under way.
    assert max(pages) < 30
    assert max(results) < 16


def test_waiting_and_progress(spark: SparkSession, feed: Feed, runs: Path) -> None:
    with bargain(rr.rows(feed.table, rate=20_000), rr.memory()).run(spark=spark, runs=runs) as run:
        assert not run.wait(timeout=0.0)
        assert run.running
        wait_until(lambda: run.progress().tuples_in > 0 or not run.running)
        early = run.progress()
        assert run.wait()
        assert not run.running
        late = run.progress()
        assert run.wait(), "waiting again changes nothing"
    assert 0 < early.tuples_in <= late.tuples_in == EVENTS
    assert late.tuples_out == {"Sink": feed.bargains.num_rows}
    assert late.batches >= early.batches
    assert late.latency > 0
    assert late.state_bytes > 0
    assert late.seconds >= EVENTS / 20_000
    with pytest.raises(rr.RunError, match="no sink 'Sinc'; there are: Sink"):
        run.table("Sinc")


def test_stopping_finishes_the_batch_at_hand(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halting, stop = threading.Event(), ResidentStage.stop

    def told_to_stop(stage: ResidentStage) -> None:
        stage._over.set()
        halting.set()
        stop(stage)

    # A sink that is behind, and so holds the batches up, until the run is stopped: that does not wait for it.
    monkeypatch.setattr(ResidentStage, "stop", told_to_stop)
    behind = rr.callback(lambda batch, table: wait_until(halting.is_set))
    app = bargain_twice(feed.folder, rr.parquet(tmp_path / "out"), behind)
    run = app.run(spark=spark, runs=runs, batch_rows=1_000)
    wait_until(lambda: on_record(run.folder) >= 1 or not run.running)
    run.stop()
    assert not run.running
    assert run.wait(), "stopping is not a failure"
    run.stop()
    batches = on_record(run.folder) + 1
    assert batches == run.progress().batches < EVENTS // 1_000
    assert run.table("Sink").equals(feed.bargains_between(0, batches * 1_000))
    assert [e["event"] for e in lines_of(run.folder / "events.jsonl")] == ["started", "ended"]
    assert not page_folder(run.folder).exists()


def failing(table: pa.Table, function: Any) -> rr.Application:
    """Describe sums of what a user's function makes of numbers."""
    app = rr.Application("failing")
    app.function("risky", function, returns="bigint")
    numbers = app.source("numbers", rr.rows(table))
    risky = app.functor("risk", numbers, select="k, risky(n) as n")
    app.sink(
        "out",
        app.aggregate("sum", risky, by="k", window=rr.sliding(tuples=10), select="sum(n) as s"),
        rr.memory(),
    )
    return app


def test_user_code_that_raises_stops_the_run(spark: SparkSession, runs: Path) -> None:
    def risky(n: pa.Array) -> pa.Array:
        if 345 in n.to_pylist():
            raise RuntimeError("345 is unlucky")
        return n

    app = failing(NUMBERS, risky)
    line = app.graph()["risk"].location.line
    run = app.run(spark=spark, runs=runs, batch_rows=100)
    with pytest.raises(rr.OperatorError) as caught, run:
        run.wait()
    message = str(caught.value)
    assert message.startswith(
        f"Functor 'risk' ({__file__}:{line}) failed at position 345 of source 'numbers': "
    )
    assert "345 is unlucky" in message
    assert on_record(run.folder) == 2

    # The same session takes the run up with the code mended, and goes on where it stopped.
    with failing(NUMBERS, lambda n: n).run(spark=spark, folder=run.folder, batch_rows=150) as again:
        again.wait()
        assert again.table("out").to_pylist() == expected_sums(NUMBERS)[300:]
        rows = [m["rows"] for m in lines_of(run.folder / "metrics.jsonl")]
    # The batch that failed left no trace: those after it are of the new size.
    assert rows == [100, 100, 100, 150, 150]


def test_a_division_by_zero_stops_the_run(spark: SparkSession, runs: Path) -> None:
    app = rr.Application("dividing")
    numbers = app.source("numbers", rr.rows(NUMBERS))
    app.sink("out", app.functor("divide", numbers, select="k, 100 div (n - 250) as q"), rr.memory())
    line = app.graph()["divide"].location.line
    with (
        pytest.raises(rr.OperatorError) as caught,
        app.run(spark=spark, runs=runs, batch_rows=100) as run,
    ):
        run.wait()
    assert str(caught.value).startswith(
        f"Functor 'divide' ({__file__}:{line}) failed at position 250 of source 'numbers': "
    )
    assert "division by zero" in str(caught.value).lower()


def test_what_cannot_be_taken_up_is_refused(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    def take_up(app: rr.Application, folder: Path, **options: Any) -> rr.Run:
        return app.run(spark=spark, folder=folder, **options)

    run = sums(NUMBERS, rr.memory()).run(spark=spark, runs=runs, batch_rows=100, buckets=8)
    with pytest.raises(rr.RiprapError, match="is alive: process"):
        take_up(sums(NUMBERS, rr.memory()), run.folder, buckets=8)
    interrupt(run)
    with pytest.raises(rr.RunError, match=r"has 8 buckets, not 4: the number is fixed.*Give buckets=8"):
        take_up(sums(NUMBERS, rr.memory()), run.folder, buckets=4)
    with pytest.raises(rr.RunError, match="is a run of 'sums', not of 'other'"):
        take_up(sums(NUMBERS, rr.memory(), name="other"), run.folder)
    with pytest.raises(rr.RunError, match=r"is not a run folder: it has no run\.json"):
        take_up(sums(NUMBERS, rr.memory()), tmp_path)
    # None of these harmed it. The link to the newest run is as good as its folder.
    with take_up(sums(NUMBERS, rr.memory()), runs / "sums" / "latest", buckets=8) as again:
        again.wait()
    assert [e["event"] for e in lines_of(run.folder / "events.jsonl")][-2:] == ["resumed", "ended"]
    with pytest.raises(rr.RunError, match="has ended: its state is gone"):
        take_up(sums(NUMBERS, rr.memory()), run.folder, buckets=8)


def test_a_run_of_its_own_session_refuses_a_second_one(spark: SparkSession, runs: Path) -> None:
    with pytest.raises(rr.RunError, match=r"hand it over with app\.run\(spark=session\)"):
        sums(NUMBERS, rr.memory()).run(runs=runs)
    with pytest.raises(rr.GraphError, match="give spark= or master= and config=, not both"):
        sums(NUMBERS, rr.memory()).run(spark=spark, master="local[1]", runs=runs)
    with pytest.raises(rr.RunError, match="spark= takes a SparkSession, got 7"):
        sums(NUMBERS, rr.memory()).run(spark=7, runs=runs)
    assert not runs.exists()
