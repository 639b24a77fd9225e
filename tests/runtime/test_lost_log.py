"""Spark's own log loses entries while a run is down: the output is that of a run without faults, or an error."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import events, lose_host
from tests.runtime.harness import only_run, read_parts, whole
from tests.runtime.test_handing_over import dying_at

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.errors import LedgerError, RiprapError
from riprap.graph.connectors import SourceConnector
from riprap.runtime import batches
from riprap.runtime.lost_records import agree
from riprap.runtime.spark_log import Planned, SparkLog
from riprap.state.ledger import Ledger, Record

ROWS, BATCH, OTHER = 24, 5, 7
pytestmark = pytest.mark.usefixtures("runs")


def app_of(folder: Path, source: SourceConnector, *, elements: bool = False) -> rr.Application:
    """Describe numbers with their running total, into a database and into files; the total by itself if asked."""
    app = rr.Application("numbers")
    numbers = app.source("numbers_in", source, position="n")
    total = app.aggregate(
        "total",
        numbers,
        by="k",
        window=rr.sliding(tuples=100),
        select="last(n) as n, sum(n) as s",
        protect=rr.checkpoint(every="1s"),
    )
    app.sink("database", total, rr.to_sqlite(folder / "out.db", "t"))
    app.sink("files", total, rr.parquet(folder / "files", roll=0))
    if elements:
        app.place("totals", total)
    return app


def in_memory() -> SourceConnector:
    return rr.rows([{"n": n, "k": 1} for n in range(ROWS)], "n bigint, k bigint")


RIGHT = list(zip(range(ROWS), accumulate(range(ROWS)), strict=True))


def stop_midway(
    app: rr.Application, spark: SparkSession, runs: Path, *, step: str = "collected", path: Any = None
) -> Path:
    """Run until the third batch of each element is at a step, and stop there; return the run's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "reach", dying_at(step, 2))
        with (
            pytest.raises(RiprapError, match="dies here"),
            app.run(spark=spark, runs=runs, batch_rows=BATCH, path=path) as run,
        ):
            run.wait()
    return only_run(runs)


def in_database(folder: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(folder / "out.db") as database:
        return list(database.execute("select n, s from t order by n"))


def in_files(folder: Path) -> list[tuple[int, int]]:
    table = whole(read_parts(folder / "files"))
    return list(zip(table["n"].to_pylist(), table["s"].to_pylist(), strict=True))


def newest_offsets(spark_folder: Path) -> None:
    (spark_folder / "offsets" / "2").unlink()


def all_of_it(spark_folder: Path) -> None:
    shutil.rmtree(spark_folder)


def emptied(spark_folder: Path) -> None:
    for path in spark_folder.glob("**/*"):
        if path.is_file():
            os.truncate(path, 0)


@pytest.mark.parametrize(
    ("lose", "elements", "path"),
    [
        (newest_offsets, False, "direct"),
        (all_of_it, True, "direct"),
        pytest.param(emptied, False, "exchange", marks=pytest.mark.slow),
    ],
)
def test_the_log_is_put_right_from_the_ledger(
    spark: SparkSession, tmp_path: Path, lose: Callable[[Path], None], elements: bool, path: Any
) -> None:
    app = app_of(tmp_path, in_memory(), elements=elements)
    folder = stop_midway(app, spark, tmp_path / "all-runs", path=path)
    for home in (folder / "elements").iterdir():
        lose(home / "spark")

    # Batches of another size: what Spark would plan for a number is not what is on record.
    with app.run(spark=spark, folder=folder, batch_rows=OTHER, path=path) as run:
        run.wait()

    assert in_database(tmp_path) == RIGHT
    assert in_files(tmp_path) == RIGHT
    assert any("put right" in e["message"] for e in events(folder, "warning"))


def test_what_spark_alone_can_tell_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    for number in range(4):
        rows = range(number * BATCH, (number + 1) * BATCH)
        pq.write_table(
            pa.table({"n": pa.array(rows, pa.int64()), "k": [1] * BATCH}), feed / f"{number}.parquet"
        )

    def build(session: SparkSession) -> object:
        reader = session.readStream.schema("n bigint, k bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(feed))

    app = app_of(tmp_path, rr.from_spark(build, schema="n bigint, k bigint"))
    folder = stop_midway(app, spark, tmp_path / "all-runs")
    before = in_database(tmp_path)
    shutil.rmtree(folder / "elements" / "numbers" / "spark")

    with pytest.raises(LedgerError, match=r"batch 2 of 'numbers' is on record from .* start a new run"):
        app.run(spark=spark, folder=folder, batch_rows=BATCH)
    assert in_database(tmp_path) == before


def test_records_are_gone_and_checkpoints_are_whole(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(tmp_path, in_memory())
    folder = stop_midway(app, spark, tmp_path / "all-runs", step="published")
    for path in (folder / "elements" / "numbers" / "ledger").iterdir():
        os.truncate(path, 0)
    (tmp_path / "files" / "part-0000000001-0000000001.parquet").write_bytes(b"")
    lose_host(folder)

    with app.run(spark=spark, folder=folder, batch_rows=OTHER) as run:
        run.wait()

    (lost,) = events(folder, "records lost")
    assert lost["batches"] == [0, 1, 2]
    assert [n for n, _ in in_database(tmp_path)] == list(range(ROWS))
    # Of files those that are empty are not published.
    assert [n for n, _ in in_files(tmp_path)] == [n for n in range(ROWS) if not BATCH <= n < 2 * BATCH]
    assert any("part-0000000001" in e["message"] for e in events(folder, "warning"))


def ledger_and_log(tmp_path: Path, last: int = 3) -> tuple[Plan, Ledger, SparkLog]:
    """Write the ledger and the log of a run of some batches of 5."""
    plan = compile_graph(app_of(tmp_path, in_memory()).graph(), buckets=8, tasks=2).plans[0]
    ledger, log = Ledger(str(tmp_path / "ledger")), SparkLog(tmp_path / "spark", plan)
    ledger.begin(8)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "spark" / "commits").mkdir()
    (tmp_path / "spark" / "metadata").write_text('{"id": "a"}')
    for batch in range(last + 1):
        start, end = (5 * batch or None), 5 * batch + 5
        ledger.write(Record(epoch=0, batch=batch, sources={"numbers_in": (start, end)}, frontier=batch))
        (log.folder / "offsets" / str(batch)).write_text(f'v1\n{{"conf": {{}}}}\n{{"numbers_in": {end}}}')
    return plan, ledger, log


def agree_on(plan: Plan, ledger: Ledger, log: SparkLog) -> list[str]:
    """Bring both into agreement; return what was told."""
    told: list[str] = []
    agree(plan, ledger, log, clock=lambda: 9.0, tell=lambda kind, **details: told.append(kind))
    return told


def test_what_agrees_is_left_alone_and_a_batch_that_is_only_planned_too(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    ledger.forget([3])

    assert agree_on(plan, ledger, log) == []
    assert (ledger.batches()[-1], log.planned(3)) == (2, Planned({"numbers_in": 20}, 3))


def test_other_input_for_a_batch_on_record_is_an_error(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    (log.folder / "offsets" / "3").write_text('v1\n{"conf": {}}\n{"numbers_in": 23}')

    had, planned = r"\{'numbers_in': 15\} to \{'numbers_in': 20\}", r"end at \{'numbers_in': 23\}"
    with pytest.raises(
        LedgerError, match=f"batch 3 of 'numbers' is on record from {had}.* {planned}.*Remove"
    ):
        agree_on(plan, ledger, log)
    with pytest.raises(LedgerError, match="batch 3"):
        log.compare(ledger.get(3))


def test_commits_of_any_version_are_left_alone_and_garbage_goes(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    commits = log.folder / "commits"
    (commits / "2").write_text('v2\n{"nextBatchWatermarkMs": 0}')

    assert agree_on(plan, ledger, log) == []
    assert log.committed(2)

    (commits / "3").write_bytes(b"\xff\x00garbage")
    assert agree_on(plan, ledger, log) == ["warning"]
    assert [log.committed(batch) for batch in (2, 3)] == [True, False]


def test_a_query_that_has_lost_its_name_alone_gets_another(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    (log.folder / "metadata").unlink()

    assert agree_on(plan, ledger, log) == ["warning"]
    assert json.loads((log.folder / "metadata").read_text())["id"]


@pytest.mark.parametrize("harm", ["gone", "empty", "cut short"])
@pytest.mark.parametrize("lost", [[3], [2], [2, 3], [0, 1, 2, 3]])
def test_entries_are_written_anew(tmp_path: Path, lost: list[int], harm: str) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    for batch in lost:
        path = log.folder / "offsets" / str(batch)
        if harm == "gone":
            path.unlink()
        else:
            os.truncate(path, 0 if harm == "empty" else 20)

    assert agree_on(plan, ledger, log) == ["warning"]
    assert [log.planned(b) for b in (2, 3)] == [Planned({"numbers_in": 5 * b + 5}, b) for b in (2, 3)]


def test_a_record_that_is_gone_is_what_spark_planned(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    for batch in (-1, 2, 3):
        os.truncate(tmp_path / "ledger" / f"0000-{batch:010d}.json", 0)

    assert agree_on(plan, ledger, log) == ["records lost"]
    assert [ledger.get(b).sources["numbers_in"] for b in (2, 3)] == [(10, 15), (15, 20)]
    assert agree_on(plan, ledger, log) == []
    assert ledger.get(3).pages(), "it names pages that nobody has, so that state comes from checkpoints"


def test_nobody_knows_how_far_the_input_was_read(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    for path in (tmp_path / "ledger" / "0000-0000000003.json", log.folder / "offsets" / "3"):
        os.truncate(path, 0)

    for _ in range(2):
        with pytest.raises(
            LedgerError, match=r"nobody knows how far 'numbers' has read.*batch 3.*from a copy"
        ):
            agree_on(plan, ledger, log)


def test_offsets_of_kafka_are_written_anew_as_they_were(tmp_path: Path) -> None:
    app = rr.Application("numbers")
    first = app.source("first", in_memory(), position="n")
    second = app.source("second", rr.from_kafka("host:9092", "t", schema="n bigint, k bigint"), position="n")
    app.sink("out", app.union("both", first, second), rr.memory())
    plan = compile_graph(app.graph(), buckets=8, tasks=2).plans[0]
    ledger, log = Ledger(str(tmp_path / "ledger")), SparkLog(tmp_path / "spark", plan)
    ledger.begin(8)
    positions = ['{"t":{"0":3}}', '{"t":{"0":8}}']
    ledger.write(Record(epoch=0, batch=1, sources={"first": (5, 10), "second": tuple(positions)}, frontier=1))

    assert agree_on(plan, ledger, log) == ["warning"]

    offsets = [(log.folder / "offsets" / str(batch)).read_text().split("\n") for batch in (0, 1)]
    assert [lines[2:] for lines in offsets] == [
        ['{"first": 5}', positions[0]],
        ['{"first": 10}', positions[1]],
    ]
    log.compare(ledger.get(1))
