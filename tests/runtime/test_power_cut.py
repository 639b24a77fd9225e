"""The power of a disk is cut, really: an ext4 file system is shut down without writing what it has not written yet."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.dice import check, dice
from tests.runtime.checkpointing.leaving import events
from tests.runtime.harness import PROGRAMS, only_run, page_folder

import riprap as rr
from riprap.channels import ChannelReader
from riprap.feeds.segments import SegmentLog
from riprap.runtime.batches import MOST_UNHANDED
from riprap.runtime.folder import RunFolder
from riprap.runtime.retention import KEEP_RECORDS
from riprap.state.ledger import Ledger

ROWS, BATCH = 80, 5
DICE_BATCH = 50


def numbers(disk: Path, see: Callable[[int, pa.Table], None]) -> rr.Application:
    """Describe numbers with their running total, into a database and into files."""
    app = rr.Application("numbers")
    source = app.source(
        "numbers_in", rr.rows([{"n": n, "k": 1} for n in range(ROWS)], "n bigint, k bigint"), position="n"
    )
    total = app.aggregate(
        "total",
        source,
        by="k",
        window=rr.sliding(tuples=1000),
        select="last(n) as n, sum(n) as s",
        protect=rr.checkpoint(every="200ms"),
    )
    app.sink("database", total, rr.to_sqlite(disk / "out.db", "t"))
    app.sink("files", total, rr.parquet(disk / "files", roll=0))
    app.sink("seen", total, rr.callback(see))
    return app


def cut_power(tmp_path: Path, program: str, *, megabytes: int = 64) -> Path:
    """Run a program that writes to a disk of its own, cut its power, and return the folder with what survived."""
    if os.getuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("unshare") is None:
        pytest.skip("only root can mount a disk to cut the power of, and it takes mkfs.ext4 and unshare")
    image, disk, ready = tmp_path / "image", tmp_path / "disk", tmp_path / "ready"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    probe = ["unshare", "--mount", "mount", "-o", "loop", image, disk]
    if (tried := subprocess.run(probe, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no disk can be mounted here: {tried.stderr.strip()}")
    spec = {
        "image": str(image),
        "disk": str(disk),
        "program": [sys.executable, str(PROGRAMS / program), str(disk), str(ready)],
        "ready": str(ready),
        # Where it was mounted, so that what names its own path is found again.
        "survived": str(tmp_path / "survived"),
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [
        "unshare",
        "--mount",
        sys.executable,
        str(PROGRAMS / "cut_power.py"),
        str(tmp_path / "spec.json"),
    ]
    search = os.pathsep.join(filter(None, [str(PROGRAMS.parents[2]), os.environ.get("PYTHONPATH")]))
    subprocess.run(command, env={**os.environ, "PYTHONPATH": search}, check=True, timeout=300)
    shutil.copytree(tmp_path / "survived", disk, dirs_exist_ok=True, symlinks=True)
    return disk


def lose_memory(run_folder: Path) -> None:
    """Wipe what a run has in the host's memory, unless others have: for a while it had no folder on any disk."""
    shutil.rmtree(page_folder(run_folder), ignore_errors=True)


def test_what_is_promised_is_there(tmp_path: Path) -> None:
    disk = cut_power(tmp_path, "write_promises.py")

    control = disk / "unsynced"
    assert not control.exists() or not control.stat().st_size, "the power was not really cut"
    assert Ledger(str(disk / "ledger")).get(0).sources == {"numbers": (None, 100)}
    (part,) = (disk / "out").glob("part-*")
    assert pq.read_table(part)["n"].to_pylist() == list(range(100))
    tuples, _ = ChannelReader(disk / "channel", "r").read(None, 99, ["n"])
    assert tuples["n"].to_pylist() == list(range(100))
    log = SegmentLog(disk / "source")
    assert log.end == 2
    assert all(Path(segment.path).stat().st_size for segment in log.segments)


@pytest.mark.slow
def test_a_run_is_taken_up_from_its_checkpoints_and_says_what_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    disk = cut_power(tmp_path, "run_until_cut.py")
    folder = only_run(disk / "runs")
    lose_memory(folder)

    with numbers(disk, lambda batch, table: None).run(spark=spark, folder=folder, batch_rows=BATCH) as run:
        run.wait()
        in_files = run.table("files")["n"].to_pylist()

    with sqlite3.connect(disk / "out.db") as database:
        in_database = [n for (n,) in database.execute("select n from t order by n")]
    told = list(RunFolder(folder, time.time).read_events())
    lost = [e["rows"] for e in told if e["event"] == "results lost"]
    for sink, rows in (("database", in_database), ("files", in_files)):
        assert len(set(rows)) == len(rows), "nothing is there twice"
        # Of a database nobody can tell whether it has had the batch at hand.
        assert ROWS - len(rows) <= sum(each.get(sink, 0) for each in lost)
    # What is noted of batches that are handed over is not synced, so records that are still there are told of, too.
    assert len(lost) <= KEEP_RECORDS + MOST_UNHANDED, "no more than what was on record"
    assert [e["operator"] for e in told if e["event"] == "restored"] == ["total"]


def test_a_region_loses_nothing_with_the_power(spark: SparkSession, tmp_path: Path) -> None:
    disk = cut_power(tmp_path, "run_region_until_cut.py", megabytes=512)
    folder = only_run(disk / "runs")
    lose_memory(folder)

    with dice(disk / "out", durable="power").run(
        spark=spark, folder=folder, batch_rows=DICE_BATCH, buckets=4, parallelism=2
    ) as run:
        run.wait()

    # Everybody saw one roll for each tuple, though what each was handed is not synced.
    check(disk / "out")
    assert events(folder, "gone back")
    # Who has no state computes only what is on record and had not come to its readers when the power was cut.
    again = {e["element"] for e in events(folder, "computed again")}
    assert again - {"dice"} == {"all_of_them", "by_roll_last"}
    assert not [e for kind in ("results differ", "results lost", "state lost") for e in events(folder, kind)]
