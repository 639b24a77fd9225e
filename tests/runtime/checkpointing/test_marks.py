"""A region whose start says when a cut is made: after each file, and at no other place."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import lines_so_far, manifests
from tests.runtime.checkpointing.scanned import (
    BATCH,
    FILES,
    expected,
    file_ends,
    put_out,
    scanned,
    write_files,
)
from tests.runtime.harness import wait_until

import riprap as rr

BY_FILE = rr.consistent(trigger="operator")
OPTIONS: dict[str, Any] = {"batch_rows": BATCH, "buckets": 4, "parallelism": 2}


def rows_upto(folder: Path) -> dict[str, dict[int, int]]:
    """Return for each operator how many rows it had up to each batch, as its lines of metrics say."""
    rows: dict[str, dict[int, int]] = {"total": {}, "times": {}}
    for line in lines_so_far(folder / "metrics.jsonl"):
        for name in rows.keys() & line["operators"].keys():
            upto = rows[name]
            upto[line["batch"]] = upto.get(line["batch"] - 1, 0) + line["operators"][name]["in"]
    return rows


def cuts_seen(folder: Path) -> dict[str, set[int]]:
    """Return for each operator after how many rows it was saved, as far as its lines of metrics tell."""
    rows, seen = rows_upto(folder), defaultdict(set)
    for line in lines_so_far(folder / "metrics.jsonl"):
        for name, status in line.get("checkpoints", {}).items():
            if status["batch"] >= 0:
                seen[name].add(rows[name][status["batch"]])
    return seen


def cut_after(folder: Path) -> set[int]:
    """Return after how many rows the operators were saved last."""
    rows = rows_upto(folder)
    return {rows[name].get(m.batch, -1) for name in rows for m in manifests(folder, name)[:1]}


def test_a_cut_is_made_after_each_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    app = scanned(tmp_path / "in", tmp_path / "out", BY_FILE)
    with app.run(spark=spark, trigger="10ms", runs=tmp_path / "runs", **OPTIONS) as run:
        after = 0
        for name, rows in FILES.items():
            write_files(tmp_path / "in", {name: rows}, after=after)
            after += rows
            wait_until(lambda rows=after: run.running and cut_after(run.folder) == {rows}, seconds=60)
        run.stop()
    assert cuts_seen(run.folder).keys() == {"total", "times"}
    for seen in cuts_seen(run.folder).values():
        assert seen <= file_ends()
        assert len(seen) > 3
    assert put_out(tmp_path / "out") == expected(after)
