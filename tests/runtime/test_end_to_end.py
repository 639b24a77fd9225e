"""Whole runs of Bargain Discovery give, row for row and bit for bit, what a program over single tuples gives."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from tests.runtime.harness import Feed, Programs, read_parts, whole

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.market import FEED_SCHEMA


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, {"batch_rows": 7_919}),
        (2, {"batch_rows": 100_000, "buckets": 1, "parallelism": 1}),
        (3, {"batch_rows": 5_003, "buckets": 13, "parallelism": 5}),
        (3, {"batch_rows": 5_003, "buckets": 64, "parallelism": 3}),
    ],
)
def test_output_is_that_of_single_tuples(
    spark: SparkSession, feed_of: Callable[[int], Feed], runs: Path, seed: int, options: dict[str, Any]
) -> None:
    feed = feed_of(seed)
    with bargain(feed.folder, rr.memory()).run(spark=spark, runs=runs, **options) as run:
        run.wait()
        assert run.table("Sink").equals(feed.bargains)
        assert run.progress().tuples_in == feed.table.num_rows


def test_a_spark_file_stream_gives_the_same(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path
) -> None:
    # Spark reads files in order of age, so they get different ones.
    folder = tmp_path / "feed"
    shutil.copytree(feed.folder, folder)
    for age, path in enumerate(sorted(folder.iterdir(), reverse=True)):
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    schema = from_arrow_schema(FEED_SCHEMA)

    def stream(session: SparkSession) -> Any:
        return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))

    app = bargain(rr.from_spark(stream, schema=FEED_SCHEMA), rr.memory())
    with app.run(spark=spark, runs=runs) as run:
        run.wait()
        assert run.table("Sink").equals(feed.bargains)
        assert run.progress().batches == 4


@pytest.mark.slow
def test_every_master_gives_the_same(programs: Programs, feed: Feed, runs: Path, tmp_path: Path) -> None:
    cluster = "local-cluster[2,1,1024]"
    work = tmp_path / "work"
    # Relative paths mean the same to executors, which start in folders of their own.
    jobs = [
        {
            "feed": os.path.relpath(feed.folder, work),
            "out": master,
            "roll_rows": 500,
            "options": {"master": master, "batch_rows": 7_919, "runs": str(runs)},
        }
        for master in ("local[1]", "local[2]", cluster)
    ]
    programs.finish(programs.start("find_bargains.py", work, jobs))
    for job in jobs:
        folder = work / job["out"]
        assert json.loads((folder / "outcome.json").read_text())["error"] is None
        assert whole(read_parts(folder / "each")).equals(feed.bargains), job
        assert whole(read_parts(folder / "rolled")).equals(feed.bargains), job
