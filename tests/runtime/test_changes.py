"""A run taken up by an application that has changed: what is the same goes on, the rest is named, and may be let go."""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.runtime.changes import accept_changes
from riprap.runtime.checkpointing.recovery import read_wishes
from riprap.runtime.folder import RunFolder

ROWS, BATCH = 6_000, 500
pytestmark = pytest.mark.usefixtures("runs")


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def app_of(out: Path, *, sums: int = 50, tops: int | None = 40, more: bool = False) -> rr.Application:
    """Describe an application with two aggregates of some window sizes, or one, or three."""
    app = rr.Application("changing")
    source = app.source("source", rr.rows([{"k": i % 3, "v": i} for i in range(ROWS)], "k int, v int"))
    made = {"sums": sums, "tops": tops, "more": 10 if more else None}
    for name, size in made.items():
        if size is not None:
            select = "count(*) as n, min(v) as v"
            stream = app.aggregate(name, source, by="k", window=rr.sliding(tuples=size), select=select)
            app.sink(f"{name}_out", stream, rr.parquet(out / name, roll=0))
    return app


def expected(size: int, first: int) -> list[tuple[int, int, int]]:
    """Count plainly, with windows that are empty at a row; return all rows from there on."""
    windows, found = defaultdict(list), []
    for v in range(first, ROWS):
        windows[v % 3] = [*windows[v % 3], v][-size:]
        found.append((v % 3, len(windows[v % 3]), windows[v % 3][0]))
    return found


def rows_of(folder: Path) -> list[tuple[int, int, int]]:
    rows = [row for path in sorted(folder.glob("part-*")) for row in pq.read_table(path).to_pylist()]
    return [(row["k"], row["n"], row["v"]) for row in rows]


@pytest.fixture
def left(spark: SparkSession, tmp_path: Path) -> tuple[Path, int]:
    """Leave a run; return its folder, and how many rows it has computed."""
    run = app_of(tmp_path).run(spark=spark, batch_rows=BATCH, runs=tmp_path / "runs")
    with contextlib.suppress(LeftError), run:
        wait_until(lambda: run.progress().batches >= 2)
        raise LeftError
    home = run.folder / "elements" / "changing"
    done = max(int(p.stem.split("-")[1]) for p in (home / "ledger").glob("*.json") if "--" not in p.stem)
    return run.folder, (done + 1) * BATCH


def test_what_has_changed_is_named_with_the_choices(
    spark: SparkSession, tmp_path: Path, left: tuple[Path, int]
) -> None:
    folder, done = left
    app = app_of(tmp_path, sums=20, tops=None)
    with pytest.raises(rr.RunError) as caught:
        app.run(spark=spark, folder=folder)
    assert "'sums' has changed: sliding(50 tuples)" in str(caught.value)
    assert "'tops' is gone: sliding(40 tuples)" in str(caught.value)
    assert "--ignore-state sums --ignore-state tops" in str(caught.value)
    with pytest.raises(rr.RunError, match=r"no operator of that name with state\. There are: sums, tops"):
        app.run(spark=spark, folder=folder, ignore_state=["sum"])

    changed = app_of(tmp_path, sums=20, more=True)
    with changed.run(spark=spark, batch_rows=BATCH, folder=folder, ignore_state=["sums"]) as run:
        run.wait()

    assert rows_of(tmp_path / "tops") == expected(40, 0), "unchanged: as if nothing had been"
    assert rows_of(tmp_path / "sums")[done:] == expected(20, done), "changed: from nothing"
    assert rows_of(tmp_path / "more") == expected(10, done), "new: from nothing"
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [e["operator"] for e in told if e["event"] == "state lost"] == ["sums"]


def test_nothing_has_changed_until_the_run_starts(tmp_path: Path, left: tuple[Path, int]) -> None:
    folder = RunFolder(left[0], time.time)
    before = folder.state_layout()

    changes = accept_changes(folder, app_of(tmp_path, sums=60).graph(), fresh=True)

    home = left[0] / "elements" / "changing"
    assert (folder.state_layout(), read_wishes(home)) == (before, {})
    changes.make()
    assert folder.state_layout() != before
    assert read_wishes(home) == {"sums": "fresh", "tops": "fresh"}


def test_all_state_may_go(spark: SparkSession, tmp_path: Path, left: tuple[Path, int]) -> None:
    folder, done = left
    with app_of(tmp_path).run(spark=spark, batch_rows=BATCH, folder=folder, fresh=True) as run:
        run.wait()
    for name, size in (("sums", 50), ("tops", 40)):
        assert rows_of(tmp_path / name)[done:] == expected(size, done)
