"""A region whose start says when a cut is made: after each file, and at no other place."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import events, lines_so_far, lose_host, manifests
from tests.runtime.checkpointing.scanned import (
    BATCH,
    FILES,
    expected,
    file_ends,
    put_out,
    rolled,
    scanned,
    write_files,
)
from tests.runtime.harness import Programs, only_run, wait_until

import riprap as rr
from riprap.runtime.agent.lock import await_saver

BY_FILE = rr.consistent(trigger="operator")
OPTIONS: dict[str, Any] = {"batch_rows": BATCH, "buckets": 4, "parallelism": 2}


def rows_upto(out: Path) -> dict[str, dict[int, int]]:
    """Return for each operator how many rows it had up to each batch, as the file of the batch says."""
    return {
        name: {
            int(file.stem.split("-")[2]): max(pq.read_table(file)["seq"].to_pylist()) + 1
            for file in (out / sink).glob("part-*.parquet")
        }
        for name, sink in {"total": "totals", "times": "largest"}.items()
    }


def cuts_seen(folder: Path, out: Path) -> dict[str, set[int]]:
    """Return for each operator after how many rows it was saved, as far as its lines of metrics tell."""
    rows, seen = rows_upto(out), defaultdict(set)
    for line in lines_so_far(folder / "metrics.jsonl"):
        for name, status in line.get("checkpoints", {}).items():
            if status["batch"] >= 0:
                seen[name].add(rows[name][status["batch"]])
    return seen


def cut_after(folder: Path, out: Path) -> set[int]:
    """Return after how many rows the operators were saved last."""
    rows = rows_upto(out)
    return {rows[name].get(m.batch, -1) for name in rows for m in manifests(folder, name)[:1]}


def test_a_cut_is_made_after_each_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    app = scanned(tmp_path / "in", tmp_path / "out", BY_FILE)
    with app.run(spark=spark, trigger="10ms", runs=tmp_path / "runs", **OPTIONS) as run:
        after = 0
        for name, rows in FILES.items():
            write_files(tmp_path / "in", {name: rows}, after=after)
            after += rows
            wait_until(
                lambda rows=after: run.running and cut_after(run.folder, tmp_path / "out") == {rows},
                seconds=60,
            )
        run.stop()
    cuts = cuts_seen(run.folder, tmp_path / "out")
    assert cuts.keys() == {"total", "times"}
    for seen in cuts.values():
        assert seen <= file_ends()
        assert len(seen) > 3
    assert put_out(tmp_path / "out") == expected(after)


@pytest.mark.parametrize(
    "deaths",
    [
        # Whether there is a batch to compute again depends on how far it came: nothing is killed at that.
        ("parent@checkpoint-manifest:3:times", "restore-recorded:*"),
        pytest.param(("parent@checkpoint-versioned:4:total", "recorded:15:times"), marks=pytest.mark.slow),
        pytest.param(("gathered:13:scanned", "restore-recorded:*"), marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_with_a_host(
    spark: SparkSession, programs: Programs, tmp_path: Path, deaths: tuple[str, ...]
) -> None:
    write_files(tmp_path / "in")
    # Slow enough for cuts to be made on the way.
    options = {**OPTIONS, "trigger": "50ms", "runs": str(tmp_path / "runs")}
    for number, step in enumerate(deaths):
        spec = {"files": str(tmp_path / "in"), "out": str(tmp_path / "out"), "options": options}
        program = programs.start("scan_files.py", tmp_path / f"life-{number}", spec, step)
        programs.finish(program, code=-signal.SIGKILL)
        folder = only_run(tmp_path / "runs")
        for home in (folder / "elements").iterdir():
            await_saver(home, print)
        lose_host(folder)
        options = {**OPTIONS, "trigger": "50ms", "folder": str(folder)}
    with scanned(tmp_path / "in", tmp_path / "out", BY_FILE).run(
        spark=spark, folder=folder, **OPTIONS
    ) as run:
        run.wait()
    assert put_out(tmp_path / "out") == expected(sum(FILES.values()))
    assert {e["element"] for e in events(folder, "computed again")} == {"scanned", "times"}
    for told in ("results differ", "results lost", "state lost"):
        assert not events(folder, told)
    for seen in cuts_seen(folder, tmp_path / "out").values():
        assert seen <= file_ends()


def test_results_that_are_held_come_out_with_their_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    seen: list[int] = []
    app = rolled(tmp_path / "in", rr.callback(lambda batch, table: seen.extend(table["seq"].to_pylist())))
    with app.run(spark=spark, trigger="10ms", runs=tmp_path / "runs", **OPTIONS) as run:
        after = 0
        for name, rows in list(FILES.items())[:5]:
            write_files(tmp_path / "in", {name: rows}, after=after)
            after += rows
            wait_until(lambda rows=after: run.running and len(seen) >= rows, seconds=60)
            assert seen == list(range(after))
        run.stop()


def test_a_run_that_had_no_cut_is_saved_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_files(tmp_path / "in", {"a": 250})
    options = {**OPTIONS, "trigger": "10ms"}
    app = scanned(tmp_path / "in", tmp_path / "out", None)
    with app.run(spark=spark, runs=tmp_path / "runs", **options) as run:
        everything = {"totals": 250, "largest": 250}
        wait_until(lambda: run.running and run.progress().tuples_out == everything, seconds=60)
        run.stop(resume=True)
    app = scanned(tmp_path / "in", tmp_path / "out", BY_FILE)
    with app.run(spark=spark, folder=run.folder, **options) as again:
        # There is nothing else to come back from.
        wait_until(
            lambda: again.running and all(manifests(run.folder, o) for o in ("total", "times")), seconds=60
        )
        again.stop()
