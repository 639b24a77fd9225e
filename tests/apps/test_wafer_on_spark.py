"""Wafer yield over files, on Spark: three processing elements give what a plain loop gives, also when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.apps.test_wafer import loop, lots_of
from tests.runtime.harness import only_run, read_parts, whole

import riprap as rr
from riprap.apps.wafer import wafer
from riprap.apps.wafer_feed import make_wafers, write_wafers
from riprap.apps.wafer_outage import Outage, predict
from riprap.graph.graph import Restart

WAFERS = 620


@pytest.mark.parametrize("batch_rows", [131, 10_000])
def test_it_gives_what_a_loop_gives(spark: SparkSession, tmp_path: Path, batch_rows: int) -> None:
    write_wafers(tmp_path / "feed", WAFERS, seed=9)
    predictions = loop(make_wafers(WAFERS, seed=9).to_pylist())
    app = wafer(tmp_path / "feed", rr.memory(), predictions=rr.memory())

    with app.run(spark=spark, runs=tmp_path / "runs", batch_rows=batch_rows) as run:
        run.wait()
        assert run.table("Predictions").to_pylist() == predictions
        assert run.table("Sink").to_pylist() == lots_of(predictions)


PROGRAM = """
import sys
import riprap as rr
from riprap.apps.wafer import wafer

app = wafer("feed", rr.parquet("lots"), rate=200, restart=sys.argv[1], predictions=rr.parquet("predictions"))
"""


@pytest.mark.parametrize("restart", ["resume", "live"])
def test_it_is_killed_and_taken_up(spark: SparkSession, tmp_path: Path, runs: Path, restart: Restart) -> None:
    write_wafers(tmp_path / "feed", WAFERS, seed=9)
    ends = "with app.run(runs=sys.argv[2]) as run: run.wait()"
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM + ends, restart, str(runs)],
        cwd=tmp_path,
        env={
            **os.environ,
            "RIPRAP_CRASH_AT": "recorded:0:model",
            "RIPRAP_CRASH_ONCE": str(tmp_path / "crashed"),
        },
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    lots, predictions = tmp_path / "lots", tmp_path / "predictions"
    app = wafer(
        tmp_path / "feed", rr.parquet(lots), rate=200, restart=restart, predictions=rr.parquet(predictions)
    )
    with app.run(spark=spark, folder=only_run(runs)) as run:
        run.wait()

    found = whole(read_parts(predictions)).to_pylist()
    wafers = make_wafers(WAFERS, seed=9).to_pylist()
    # The model had its state: pages outlive the process. Live, it has lost what came while it was down.
    here = [row["wafer"] for row in found]
    crash = next((n for n, wafer in enumerate(here) if wafer != n + 1), len(here))
    lost = WAFERS - len(here)
    assert crash > 0
    assert lost == 0 or restart == "live"
    expected = predict(wafers, Outage(crash=crash, back=crash + lost, saved=crash))
    assert [(row["wafer"], row["predicted"]) for row in found] == [(p.wafer, p.predicted) for p in expected]
    assert whole(read_parts(lots)).to_pylist() == lots_of(found)
