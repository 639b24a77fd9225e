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
from riprap.testing import crash_at

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

app = wafer("feed", rr.parquet("lots"), rate=100, restart="resume", predictions=rr.parquet("predictions"))
with app.run(runs=sys.argv[1]) as run:
    run.wait()
"""


@pytest.mark.slow
def test_it_is_killed_and_taken_up(spark: SparkSession, tmp_path: Path, runs: Path) -> None:
    write_wafers(tmp_path / "feed", WAFERS, seed=9)
    crashing = crash_at("recorded", 0, "model", marker=tmp_path / "crashed")
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(runs)],
        cwd=tmp_path,
        env={**os.environ, **crashing},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    lots, predictions = tmp_path / "lots", tmp_path / "predictions"
    app = wafer(
        tmp_path / "feed", rr.parquet(lots), rate=100, restart="resume", predictions=rr.parquet(predictions)
    )
    with app.run(spark=spark, folder=only_run(runs)) as run:
        run.wait()

    # The model goes on with what it had learned: pages outlive the process.
    expected = loop(make_wafers(WAFERS, seed=9).to_pylist())
    assert whole(read_parts(predictions)).to_pylist() == expected
    assert whole(read_parts(lots)).to_pylist() == lots_of(expected)
