"""A driver that dies around publishing, and whose host is lost: sinks keep what they have, and what is lost is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import events, lose_host
from tests.runtime.harness import only_run, read_parts, whole

import riprap as rr
from riprap.errors import RiprapError
from riprap.runtime import batches

ROWS, BATCH = 20, 5
pytestmark = pytest.mark.usefixtures("runs")


def app_of(folder: Path, **file: Any) -> rr.Application:
    app = rr.Application("numbers")
    numbers = app.source("numbers_in", rr.rows([{"n": n} for n in range(ROWS)], "n bigint"))
    app.sink("database", numbers, rr.to_sqlite(folder / "out.db", "t"))
    app.sink("files", numbers, rr.parquet(folder / "files", **file))
    return app


def dying_at(step: str, batch: int) -> Callable[[str, int, str], None]:
    def reach(at: str, number: int, name: str) -> None:
        if (at, number) == (step, batch):
            raise ConnectionAbortedError("dies here")

    return reach


def lose_at(app: rr.Application, spark: SparkSession, runs: Path, step: str) -> Path:
    """Run until the third batch is at a step, die there, and lose the host; then take the run up. Return its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "reach", dying_at(step, 2))
        with (
            pytest.raises(RiprapError, match="dies here"),
            app.run(spark=spark, runs=runs, batch_rows=BATCH) as run,
        ):
            run.wait()
    folder = only_run(runs)
    lose_host(folder)
    with app.run(spark=spark, folder=folder, batch_rows=BATCH) as run:
        run.wait()
    return folder


def told(folder: Path) -> list[tuple[int, dict[str, int]]]:
    return [(e["batch"], e["rows"]) for e in events(folder, "results lost")]


def in_database(folder: Path) -> list[int]:
    with sqlite3.connect(folder / "out.db") as database:
        return [n for (n,) in database.execute("select n from t order by n")]


@pytest.mark.parametrize(("step", "had"), [("published", True), ("recorded", False)])
def test_a_host_is_lost_around_publishing(spark: SparkSession, tmp_path: Path, step: str, had: bool) -> None:
    folder = lose_at(app_of(tmp_path, roll=0), spark, tmp_path / "all-runs", step)

    # The batches after it, which were on record by then, are lost with the host too.
    lost = told(folder)
    assert [batch for batch, _ in lost] == [*range(2, 2 + len(lost))]
    assert 1 <= len(lost) <= 4
    gone = {batch for batch, _ in lost} - ({2} if had else set())
    right = [n for n in range(ROWS) if n // BATCH not in gone]
    assert in_database(tmp_path) == right
    assert whole(read_parts(tmp_path / "files"))["n"].to_pylist() == right
    # Whether a database has had a batch that is not noted as handed over nobody can tell; of a file one can.
    both = {"database": BATCH, "files": BATCH}
    assert lost == [
        (2, {"database": BATCH} if had else both),
        *((batch, both) for batch in sorted(gone - {2})),
    ]


def test_rows_that_waited_for_their_file_are_lost_with_the_host_and_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = lose_at(app_of(tmp_path, roll=3600), spark, tmp_path / "all-runs", "gathered")

    assert in_database(tmp_path) == list(range(ROWS))
    assert whole(read_parts(tmp_path / "files"))["n"].to_pylist() == list(range(2 * BATCH, ROWS))
    assert told(folder) == [(0, {"files": BATCH}), (1, {"files": BATCH})]
