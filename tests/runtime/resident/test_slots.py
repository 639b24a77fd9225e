"""How sessions with few slots, or jobs that fail, are dealt with."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import riprap as rr
from riprap.runtime.folder import RunFolder
from riprap.runtime.resident.slots import roomy, share_of

ROWS, BATCH = 60, 5


def session_of(master: str, name: str) -> Any:
    conf = SimpleNamespace(get=lambda name, default=None: default)
    context = SimpleNamespace(
        master=master, applicationId=name, defaultParallelism=2, getConf=lambda: conf, _jvm=None
    )
    return SimpleNamespace(sparkContext=context)


def test_one_slot_is_left_and_elements_share_the_rest() -> None:
    session = session_of("local[5, 2]", "app-of-test-slots")
    first = share_of(session, 4, 2)
    assert (first.tasks, first.stays) == (2, True)
    # They are the first run's from then on, whether its tasks have started or not.
    second = share_of(session, 4, 1)
    assert (second.tasks, second.stays) == (4, False)
    with pytest.raises(rr.RunError, match=r"resident=True: 1 processing elements need a slot.* there are 1"):
        share_of(session, 4, 1, resident=True)
    first.release()
    assert share_of(session, 4, 1, resident=False).stays is False
    third = share_of(session, 3, 1, resident=True)
    assert (third.tasks, third.stays) == (3, True)
    third.release()


def test_a_run_says_what_it_does_with_few_slots() -> None:
    session, told = session_of("local", "another-app"), []

    def tell(kind: str, **details: Any) -> None:
        told.append((kind, details["message"]))

    share_of(session, 2, 1).tell(tell, 2)
    share_of(session_of("local[3]", "third-app"), 4, 1).tell(tell, 4)
    assert [kind for kind, _ in told] == ["slots short", "slots short"]
    assert "started for every batch" in told[0][1]
    assert "2 of 4 tasks each" in told[1][1]


def test_a_master_is_widened_for_tasks_that_stay() -> None:
    assert roomy("local[2, 3]", 2) == ("local[6,3]", 2)
    assert roomy("spark://host:7077", 2) == ("spark://host:7077", 0)


def sums(sink: Any) -> rr.Application:
    app = rr.Application("sums")
    numbers = app.source("in", rr.rows([{"n": n} for n in range(ROWS)], "n bigint"), position="n")
    total = app.aggregate(
        "total", numbers, window=rr.sliding(tuples=1000), emit=rr.every(tuples=1), select="sum(n) as s"
    )
    app.sink("out", total, sink)
    return app


RIGHT = [n * (n + 1) // 2 for n in range(ROWS)]


def test_tasks_that_do_not_stay_compute_the_same(spark: SparkSession, runs: Path) -> None:
    with sums(rr.memory()).run(spark=spark, runs=runs, batch_rows=20, resident=False) as run:
        run.wait()
        assert run.table("out")["s"].to_pylist() == RIGHT


def test_a_job_that_got_somewhere_is_submitted_again(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives up after the second failure of a task, though weeks may lie between the two."""
    seen: list[int] = []

    def note(batch: int, table: pa.Table) -> None:
        seen.extend(table["s"].to_pylist())

    deaths = tmp_path / "deaths"
    deaths.mkdir()

    def die(n: int) -> int:
        # In the workers only: twice, in batches that are far from each other.
        for at in (20, 40):
            if n == at and not (deaths / str(at)).exists():
                (deaths / str(at)).touch()
                os._exit(9)
        return n

    app = rr.Application("sums")
    numbers = app.source("in", rr.rows([{"n": n} for n in range(ROWS)], "n bigint"), position="n")
    app.function(
        "die", lambda column: pa.array([die(n) for n in column.to_pylist()], pa.int64()), returns="bigint"
    )
    total = app.aggregate(
        "total",
        app.functor("dying", numbers, select="die(n) as n"),
        window=rr.sliding(tuples=1000),
        emit=rr.every(tuples=1),
        select="sum(n) as s",
    )
    app.sink("out", total, rr.callback(note))
    with app.run(spark=spark, runs=runs, batch_rows=BATCH, parallelism=1) as run:
        run.wait()
        lost = [e for e in RunFolder(run.folder, lambda: 0.0).read_events() if e["event"] == "job lost"]
    assert seen == RIGHT
    assert sorted(path.name for path in deaths.iterdir()) == ["20", "40"]
    assert len(lost) == 1
