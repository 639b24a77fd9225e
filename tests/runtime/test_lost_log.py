"""Records, or entries of Spark's own log, are lost while a run is down: nothing is left out or comes twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import only_run, read_parts, whole
from tests.runtime.test_backlog import dying_at

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.errors import LedgerError, RiprapError
from riprap.graph.connectors import SourceConnector
from riprap.runtime import batches
from riprap.runtime.lost_records import agree, agree_alone
from riprap.runtime.offsets import Planned
from riprap.runtime.spark_log import SparkLog
from riprap.state.ledger import BatchRecord, Ledger

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


def stop_midway(app: rr.Application, spark: SparkSession, runs: Path, *, step: str = "collected") -> Path:
    """Run until the third batch of each element is at a step, and stop there; return the run's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "reach", dying_at(step, 2))
        with (
            pytest.raises(RiprapError, match="dies here"),
            app.run(spark=spark, runs=runs, batch_rows=BATCH) as run,
        ):
            run.wait()
    return only_run(runs)


def in_database(folder: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(folder / "out.db") as database:
        return list(database.execute("select n, s from t order by n"))


def in_files(folder: Path) -> list[tuple[int, int]]:
    table = whole(read_parts(folder / "files"))
    return list(zip(table["n"].to_pylist(), table["s"].to_pylist(), strict=True))


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
    shutil.rmtree(folder / "elements" / "numbers_in" / "spark")

    with pytest.raises(LedgerError, match=r"batch 2 of 'numbers_in' is on record from .* start a new run"):
        app.run(spark=spark, folder=folder, batch_rows=BATCH)
    assert in_database(tmp_path) == before


def test_the_ledger_is_the_only_log(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(tmp_path, in_memory(), elements=True)
    folder = stop_midway(app, spark, tmp_path / "all-runs")
    assert not list(folder.glob("elements/*/spark")), "Spark has no log of what it does not read"
    ledger = folder / "elements" / "numbers" / "ledger"
    newest = {path: path.read_bytes() for path in sorted(ledger.glob("0000-*.json"))[3:]}
    said = (
        r"nobody knows how far 'numbers' has read.*ends with batch 1, though there was a batch .*from a copy"
    )

    # An older ledger came back: sinks have had a batch that is not in it.
    for path in newest:
        path.unlink()
    with pytest.raises(LedgerError, match=said):
        app.run(spark=spark, folder=folder, batch_rows=OTHER)
    for path, record in newest.items():
        path.write_bytes(record[: len(record) // 2])
    with pytest.raises(LedgerError, match=said):
        app.run(spark=spark, folder=folder, batch_rows=OTHER)
    for path, record in newest.items():
        path.write_bytes(record)

    # Batches of another size go on where the record ends.
    with app.run(spark=spark, folder=folder, batch_rows=OTHER) as run:
        run.wait()
    assert in_database(tmp_path) == RIGHT
    assert in_files(tmp_path) == RIGHT


def test_damaged_records_that_newer_ones_follow_are_set_aside(tmp_path: Path) -> None:
    plan = compile_graph(app_of(tmp_path, in_memory()).graph(), buckets=8, tasks=2).plans[0]
    ledger = Ledger(str(tmp_path / "ledger"))
    ledger.begin(8)
    for batch in range(3):
        sources = {"numbers_in": (5 * batch or None, 5 * batch + 5)}
        ledger.write(BatchRecord(epoch=0, batch=batch, sources=sources, frontier=batch))
    for batch in (-1, 1):
        os.truncate(tmp_path / "ledger" / f"0000-{batch:010d}.json", 0)
    told: list[dict[str, Any]] = []

    agree_alone(plan, ledger, handed=2, tell=lambda kind, **details: told.append({"event": kind, **details}))

    assert [(each["event"], each["batches"]) for each in told] == [("records lost", [1])]
    assert ledger.batches() == [-1, 0, 2]
    with pytest.raises(LedgerError, match="ends with batch 2, though there was a batch 3"):
        agree_alone(plan, ledger, handed=3, tell=lambda kind, **details: None)


@pytest.mark.parametrize("size", [0, 40])
def test_records_that_were_never_synced_have_not_happened(tmp_path: Path, size: int) -> None:
    plan = compile_graph(app_of(tmp_path, in_memory()).graph(), buckets=8, tasks=2).plans[0]
    ledger = Ledger(str(tmp_path / "ledger"))
    ledger.begin(8)
    for batch in range(4):
        sources = {"numbers_in": (5 * batch or None, 5 * batch + 5)}
        ledger.write(BatchRecord(epoch=0, batch=batch, sources=sources, frontier=batch), synced=batch < 2)
    # The power cut spared the contents of the newest.
    os.truncate(tmp_path / "ledger" / "0000-0000000002.json", size)

    agree_alone(plan, ledger, handed=1, tell=lambda kind, **details: pytest.fail(kind))
    assert ledger.batches() == [-1, 0, 1]


def from_kafka(folder: Path) -> Plan:
    app = app_of(folder, rr.from_kafka("host:9092", "t", schema="n bigint, k bigint"))
    (plan,) = (p for p in compile_graph(app.graph(), buckets=8, tasks=2).plans if p.ingests)
    return plan


def end_of(batch: int) -> str:
    return f'{{"t":{{"0":{5 * batch + 5}}}}}'


def ledger_and_log(tmp_path: Path, last: int = 3) -> tuple[Plan, Ledger, SparkLog]:
    """Write the ledger and the log of a run of some batches of 5."""
    plan = from_kafka(tmp_path)
    ledger, log = Ledger(str(tmp_path / "ledger")), SparkLog(tmp_path / "spark", plan)
    ledger.begin(8)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "spark" / "commits").mkdir()
    (tmp_path / "spark" / "metadata").write_text('{"id": "a"}')
    for batch in range(last + 1):
        start, end = (end_of(batch - 1) if batch else None), end_of(batch)
        ledger.write(BatchRecord(epoch=0, batch=batch, sources={"numbers_in": (start, end)}, frontier=batch))
        (log.folder / "offsets" / str(batch)).write_text(f'v1\n{{"conf": {{}}}}\n{end}')
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
    assert (ledger.batches()[-1], log.planned(3)) == (2, Planned({"numbers_in": end_of(3)}, 3))


def test_other_input_for_a_batch_on_record_is_an_error(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    (log.folder / "offsets" / "3").write_text('v1\n{"conf": {}}\n{"t":{"0":23}}')

    had, planned = (
        re.escape(f"{{'numbers_in': '{end_of(3)}'}}"),
        re.escape("""{'numbers_in': '{"t":{"0":23}}'}"""),
    )
    with pytest.raises(
        LedgerError, match=f"batch 3 of .* is on record from .* to {had}.*end at {planned}.*Remove"
    ):
        agree_on(plan, ledger, log)
    with pytest.raises(LedgerError, match="batch 3"):
        log.compare(ledger.get(3))


def test_commits_of_any_version_are_left_alone_and_garbage_goes(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    commits = log.folder / "commits"
    (commits / "2").write_text('v2\n{"nextBatchWatermarkMs": 0}')

    assert agree_on(plan, ledger, log) == []
    assert (commits / "2").exists()

    (commits / "3").write_bytes(b"\xff\x00garbage")
    assert agree_on(plan, ledger, log) == ["warning"]
    assert [(commits / str(batch)).exists() for batch in (2, 3)] == [True, False]


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
    assert [log.planned(b) for b in (2, 3)] == [Planned({"numbers_in": end_of(b)}, b) for b in (2, 3)]


def test_a_record_that_is_gone_is_what_spark_planned(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    for batch in (-1, 2, 3):
        os.truncate(tmp_path / "ledger" / f"0000-{batch:010d}.json", 0)

    assert agree_on(plan, ledger, log) == ["records lost"]
    assert [ledger.get(b).sources["numbers_in"] for b in (2, 3)] == [
        (end_of(1), end_of(2)),
        (end_of(2), end_of(3)),
    ]
    assert agree_on(plan, ledger, log) == []


def test_nobody_knows_how_far_the_input_was_read(tmp_path: Path) -> None:
    plan, ledger, log = ledger_and_log(tmp_path)
    for path in (tmp_path / "ledger" / "0000-0000000003.json", log.folder / "offsets" / "3"):
        os.truncate(path, 0)

    for _ in range(2):
        with pytest.raises(LedgerError, match=r"nobody knows how far '.*' has read.*batch 3.*from a copy"):
            agree_on(plan, ledger, log)
