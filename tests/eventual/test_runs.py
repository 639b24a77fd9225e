"""Runs on Spark that are left with an operator that records its windows: nothing is missing, and nothing doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.eventual.building import expected, tumbling
from tests.runtime.checkpointing.leaving import events, lines_so_far
from tests.runtime.checkpointing.test_regions import leave

import riprap as rr

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
