"""Cuts that sinks hold up: files are written before their time, then the element fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import events, still_running
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.runtime import file_publisher
from riprap.runtime.checkpointing.cut_log import CutLog
from riprap.runtime.late_cuts import LateCuts


def test_who_is_late_is_hurried_then_told_then_an_error() -> None:
    now, told = [0.0], list[tuple[str, dict[str, Any]]]()
    quick, slow = SimpleNamespace(published=9), SimpleNamespace(published=3)

    def tell(kind: str, **details: Any) -> None:
        told.append((kind, details))

    late = LateCuts("sums", 10.0, {"quick": quick, "slow": slow}, tell, lambda: now[0])

    def look(time: float, cut: int = 5) -> None:
        now[0] = time
        late.look(cut)

    look(0.0)
    look(10.0)
    assert told == []
    look(10.5)
    look(20.0)
    ((kind, details),) = told
    assert (kind, details["element"], details["batch"]) == ("cut late", "sums", 5)
    assert "'slow' has not had all up to it" in details["message"]
    with pytest.raises(rr.RunError, match=r"after batch 5 is not complete after 20\.5 s: 'slow' still lacks"):
        look(20.5)


def test_a_cut_that_gets_complete_is_not_late() -> None:
    now, told = [0.0], list[str]()
    sink = SimpleNamespace(published=3)
    late = LateCuts("sums", 10.0, {"sink": sink}, lambda kind, **_: told.append(kind), lambda: now[0])
    late.look(5)
    now[0], sink.published = 8.0, 5
    late.look(5)
    now[0], sink.published = 15.0, 5
    late.look(7)
    now[0] = 24.0
    late.look(7)
    assert told == []
    now[0] = 25.5
    late.look(7)
    assert told == ["cut late"]


def test_a_file_is_written_early_for_a_cut_that_waits_for_it(spark: SparkSession, tmp_path: Path) -> None:
    app = rr.Application("early")
    protect = rr.consistent(period="200ms", drain_timeout="2s")
    numbers = app.source("numbers", rr.rate(500), protect=protect)
    sums = app.aggregate("sums", numbers, window=rr.sliding(tuples=5), select="sum(value) as t")
    app.sink("out", sums, rr.parquet(tmp_path / "out", roll="1h"))
    options: dict[str, Any] = {"batch_rows": 50, "buckets": 2, "parallelism": 1, "trigger": "50ms"}
    with app.run(spark=spark, runs=tmp_path / "runs", **options) as run:
        # Of itself no file is due while the run goes on, and without one no cut is complete.
        wait_until(lambda: still_running(run) and len(CutLog(run.folder, "numbers").read()) >= 2)
        run.stop()
        found = [row["t"] for row in run.table("out").to_pylist()]
    assert found == [sum(range(max(0, n - 4), n + 1)) for n in range(len(found))]
    assert events(run.folder, "cut late")


def test_a_file_whose_user_did_not_say_how_long_ends_with_each_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_publisher, "_ROLL_SECONDS", 3600.0)
    app = rr.Application("each_cut")
    numbers = app.source("numbers", rr.rate(500), protect=rr.consistent(period="200ms", drain_timeout="1h"))
    sums = app.aggregate("sums", numbers, window=rr.sliding(tuples=5), select="sum(value) as t")
    app.sink("out", sums, rr.parquet(tmp_path / "out"))
    options: dict[str, Any] = {"batch_rows": 50, "buckets": 2, "parallelism": 1, "trigger": "50ms"}
    with app.run(spark=spark, runs=tmp_path / "runs", **options) as run:
        wait_until(lambda: still_running(run) and len(CutLog(run.folder, "numbers").read()) >= 3)
        run.stop()
        found = [row["t"] for row in run.table("out").to_pylist()]
    assert found == [sum(range(max(0, n - 4), n + 1)) for n in range(len(found))]
    assert not events(run.folder, "cut late")
    # Not every batch has a file of its own.
    assert len(list((tmp_path / "out").glob("part-*"))) < len(found) / 50


def test_without_state_a_file_ends_with_each_period(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_publisher, "_ROLL_SECONDS", 3600.0)
    app = rr.Application("each_period")
    numbers = app.source("numbers", rr.rate(500), protect=rr.consistent(period="200ms"))
    odd = app.functor("odd", numbers, where="value % 2 = 1")
    app.sink("out", odd, rr.parquet(tmp_path / "out"))
    options: dict[str, Any] = {"batch_rows": 50, "parallelism": 1, "trigger": "50ms"}
    with app.run(spark=spark, runs=tmp_path / "runs", **options) as run:
        wait_until(lambda: still_running(run) and len(list((tmp_path / "out").glob("part-*"))) >= 3)
        run.stop()
        found = [row["value"] for row in run.table("out").to_pylist()]
    assert found == [*range(1, 2 * len(found), 2)]
    assert not events(run.folder, "cut late")
