"""Runs on Spark that are left with an operator that records its windows: nothing is missing, and nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.eventual.building import expected, several, tumbling
from tests.runtime.checkpointing.leaving import events, lines_so_far
from tests.runtime.checkpointing.test_regions import leave

import riprap as rr
from riprap.cli import main

ROWS = 12_000
OPTIONS: dict[str, Any] = {"batch_rows": 100, "buckets": 4, "parallelism": 2}
LOSSES = ("state lost", "results lost", "results differ", "records lost", "warning")


def computed(batches: int, *, element: str = "total") -> Callable[[rr.Run], bool]:
    """Say whether an element has so many batches behind it."""

    def so(run: rr.Run) -> bool:
        lines = [line for line in lines_so_far(run.folder / "metrics.jsonl") if line["element"] == element]
        return bool(lines) and lines[-1]["batch"] >= batches

    return so


def test_nothing_is_lost_with_the_host_twice(spark: SparkSession, tmp_path: Path) -> None:
    app = tumbling(tmp_path / "out", ROWS, extent=1_200, replay=3_000)
    folder = leave(app, spark, computed(30), runs=tmp_path / "runs", **OPTIONS)
    leave(app, spark, computed(70), folder=folder, **OPTIONS)
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
        assert run.table("out").to_pylist() == expected(ROWS)
    assert [e["operator"] for e in events(folder, "restored from its log")] == ["total", "total"]
    assert not [e for kind in LOSSES for e in events(folder, kind)]


@pytest.mark.slow
def test_joins_deduplication_and_variables_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sinks = ("both_out", "once_out", "counts_out")
    with several(tmp_path / "golden", 6_000, None).run(
        spark=spark, runs=tmp_path / "golden-runs", **OPTIONS
    ) as run:
        run.wait()
        golden = {sink: run.table(sink).to_pylist() for sink in sinks}
    app = several(tmp_path / "out", 6_000, rr.eventual(replay=1_500, share="20%"))
    folder = leave(app, spark, computed(20, element="both"), runs=tmp_path / "runs", **OPTIONS)
    leave(app, spark, computed(40, element="counts"), folder=folder, **OPTIONS)
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
        assert {sink: run.table(sink).to_pylist() for sink in sinks} == golden
    assert {e["operator"] for e in events(folder, "restored from its log")} == {"both", "once", "counts"}
    assert not [e for kind in LOSSES for e in events(folder, kind)]


def test_the_command_says_how_windows_stand(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tumbling(tmp_path / "out", ROWS, extent=1_200)
    folder = leave(app, spark, computed(5), runs=tmp_path / "runs", wipe=False, **OPTIONS)
    assert main(["state", "list", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "total: no checkpoints, its open windows are recorded in its output log:" in shown
    assert "entries, to compute again" in shown
    assert main(["state", "list", str(folder), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["operators"]
    assert told["operator"] == "total"
    assert told["windows"]["open"] > 0
