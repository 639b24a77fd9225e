"""A protected barrier loses nothing: what it has read since its last checkpoint is kept upstream, for it alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.compiler import compile_graph
from riprap.state.pages import page_root

ROWS = 4_000
SCHEMA = "k int, v int"


class LeaveError(Exception):
    """The run is left as a crash would leave it."""


def rows_of(seed: int, drop: int) -> list[dict[str, int]]:
    """Make rows of which the two ports of a key get different numbers, so that tuples wait."""
    return [{"k": (i * 7 + seed) % 5, "v": i} for i in range(ROWS) if i % drop]


def app_of(out: Path, protect: rr.Checkpoint | None) -> rr.Application:
    app = rr.Application("pairs")
    left = app.source("left", rr.rows(rows_of(1, 3), SCHEMA))
    right = app.source("right", rr.rows(rows_of(2, 2), SCHEMA))
    pairs = app.barrier(
        "pairs_of", left, right, by="k", select="k, left.v as l, right.v as r", protect=protect
    )
    app.sink("out", app.functor("late", pairs, where="l >= 0"), rr.parquet(out, roll=0))
    return app


def expected() -> list[tuple[int, int, int]]:
    """Pair the tuples of each key plainly."""
    pairs = []
    for key in range(5):
        sides = [[r["v"] for r in rows if r["k"] == key] for rows in (rows_of(1, 3), rows_of(2, 2))]
        pairs += [(key, left, right) for left, right in zip(*sides, strict=False)]
    return sorted(pairs)


def events(folder: Path) -> Iterator[dict[str, object]]:
    yield from map(json.loads, (folder / "events.jsonl").read_text().splitlines())


def test_it_is_alone_with_its_state(tmp_path: Path) -> None:
    app = app_of(tmp_path, rr.checkpoint(every="1s"))
    layout = compile_graph(app.graph(), buckets=4, tasks=2)
    assert [plan.name for plan in layout.plans] == ["pairs", "pairs_of"]
    assert [plan.replays for plan in layout.plans] == [False, True]
    unprotected = compile_graph(app_of(tmp_path, None).graph(), buckets=4, tasks=2)
    assert [plan.replays for plan in unprotected.plans] == [False]


def test_it_cannot_restart_live(tmp_path: Path) -> None:
    app = app_of(tmp_path, rr.checkpoint(every="1s"))
    app.place("apart", "pairs_of", restart="live")
    with pytest.raises(rr.GraphError, match="restarts live, which would lose tuples"):
        compile_graph(app.graph(), buckets=4, tasks=2)


def test_it_is_not_together_with_a_lookup() -> None:
    app = rr.Application("pairs")
    sides = [app.source(name, rr.rows([], SCHEMA)) for name in ("left", "right")]
    pairs = app.barrier("pairs_of", *sides, by="k", select="k", protect=rr.checkpoint(every="1s"))
    table = pa.table({"k": pa.array([1], pa.int32()), "n": ["one"]})
    app.sink("out", app.lookup("names", pairs, table=table, by="k", select="names.n as n"), rr.memory())
    app.place("apart", pairs)
    plans = compile_graph(app.graph(), buckets=4, tasks=2).plans
    assert [plan.name for plan in plans if "names" in {o.name for o in plan.graph}] == ["names"]

    app.place("apart", "names")
    with pytest.raises(rr.GraphError, match="Lookup 'names', whose table of then nobody has"):
        compile_graph(app.graph(), buckets=4, tasks=2)


def leave(app: rr.Application, spark: SparkSession, *, batches: int, **options: Any) -> Path:
    """Run some batches and a checkpoint, leave, and lose the host's memory."""
    try:
        with app.run(spark=spark, batch_rows=100, **options) as run:
            folder = run.folder
            wait_until(lambda: run.progress().batches >= batches)
            wait_until(lambda: _saved(folder))
            raise LeaveError
    except LeaveError:
        home = page_root() / f"{folder.parent.name}-{folder.name}"
        for name in ("state", "results"):
            shutil.rmtree(home / name)
        return folder


def _saved(folder: Path) -> bool:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return any(line.get("checkpoints", {}).get("pairs_of", {}).get("version", 0) > 0 for line in lines)


@pytest.mark.slow
def test_nothing_is_lost_with_the_host_twice(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(tmp_path / "out", rr.checkpoint(every="300ms"))
    folder = leave(app, spark, batches=8, buckets=4, parallelism=2, runs=tmp_path / "runs")
    assert leave(app, spark, batches=18, folder=folder) == folder
    with app.run(spark=spark, batch_rows=100, folder=folder) as run:
        run.wait()
        found = run.table("out").to_pylist()

    assert sorted((row["k"], row["l"], row["r"]) for row in found) == expected()
    told = [
        event for event in events(folder) if event["event"] in ("restored", "computed again", "results lost")
    ]
    assert [
        e["event"] for e in told if e.get("operator") == "pairs_of" or e.get("element") == "pairs_of"
    ].count("computed again") == 2
