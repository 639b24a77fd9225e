"""A folder scanned file by file, and sources that make their tuples: numbers at a pace, and the ticks of a clock."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import LeftError, wait_for
from tests.runtime.harness import lines_of, read_parts, wait_until, whole

import riprap as rr
from riprap.graph.connectors import SourceConnector

SCHEMA = "file string, number bigint, line string"


class Batches:
    """A sink that keeps the rows of each batch; one that comes again must be the same."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[str, int]]] = {}

    def __call__(self, batch: int, table: pa.Table) -> None:
        rows = [(Path(r["file"]).name, int(r["line"])) for r in table.to_pylist()]
        if rows:
            assert self.rows.setdefault(batch, rows) == rows

    def in_order(self) -> list[list[tuple[str, int]]]:
        return [self.rows[batch] for batch in sorted(self.rows)]


def write(folder: Path, files: Mapping[str, int]) -> None:
    """Write files of so many lines, numbered from 1; each appears whole."""
    folder.mkdir(exist_ok=True)
    for name, count in files.items():
        (folder / f"_{name}").write_text("".join(f"{n}\n" for n in range(1, count + 1)))
        (folder / f"_{name}").rename(folder / name)


def expected(files: Mapping[str, int], *, batch_rows: int) -> list[list[tuple[str, int]]]:
    return [
        [(name, n) for n in range(low + 1, min(low + batch_rows, count) + 1)]
        for name, count in files.items()
        for low in range(0, count, batch_rows)
    ]


def scan(folder: Path, batches: Batches) -> rr.Application:
    app = rr.Application("scanning")
    source = app.source("files", rr.folder_scan(folder, format="text", schema=SCHEMA))
    app.sink("out", source, rr.callback(batches))
    return app


FILES = {"a": 3, "b": 0, "c": 250, "d": 1, "e": 100, "f": 0}


def test_a_batch_ends_with_each_file(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    write(tmp_path / "in", FILES)
    batches = Batches()
    with scan(tmp_path / "in", batches).run(spark=spark, runs=runs, batch_rows=100) as run:
        assert run.wait(timeout=60)

    assert batches.in_order() == expected(FILES, batch_rows=100)
    rows = [line["rows"] for line in lines_of(run.folder / "metrics.jsonl") if line["rows"]]
    assert rows == [3, 100, 100, 50, 1, 100]


def test_a_batch_ends_with_each_file_after_a_restart_too(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    write(tmp_path / "in", FILES)
    batches = Batches()
    run = scan(tmp_path / "in", batches).run(spark=spark, trigger="20ms", runs=runs, batch_rows=100)
    with contextlib.suppress(LeftError), run:
        wait_for(run, 103)
        raise LeftError
    more = {"g": 2, "h": 2}
    write(tmp_path / "in", more)

    again = scan(tmp_path / "in", batches).run(spark=spark, trigger="20ms", folder=run.folder, batch_rows=100)
    with again:
        wait_until(lambda: sum(map(len, batches.rows.values())) == 358)
        # Files that come while it waits are batches of their own, and the empty one is none.
        write(tmp_path / "in", last := {"i": 0, "j": 5})
        wait_until(lambda: sum(map(len, batches.rows.values())) == 363)

    assert batches.in_order() == expected({**FILES, **more, **last}, batch_rows=100)


def test_files_that_are_not_scanned_share_batches(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    write(tmp_path / "in", FILES)
    batches = Batches()
    app = rr.Application("reading")
    app.sink(
        "out",
        app.source("files", rr.files(tmp_path / "in", format="text", schema=SCHEMA)),
        rr.callback(batches),
    )
    with app.run(spark=spark, runs=runs, batch_rows=1000) as run:
        assert run.wait(timeout=60)

    assert batches.in_order() == [[row for rows in expected(FILES, batch_rows=1000) for row in rows]]


def making(connector: SourceConnector, out: Path) -> rr.Application:
    app = rr.Application("making")
    app.sink("out", app.source("made", connector), rr.parquet(out, roll=0))
    return app


def pace_of(run: rr.Run) -> float:
    """Return when a source began, in microseconds."""
    (path,) = run.folder.glob("elements/*/sources/made/pace.json")
    return float(json.loads(path.read_text())["start"]) * 1e6


def times(table: pa.Table) -> np.ndarray:
    return table.column("time").cast(pa.int64()).to_numpy()


@pytest.mark.parametrize(("rate", "count"), [(4000.0, 3000), (7.0, 9)])
def test_numbers_come_at_their_pace_and_say_when_they_were_due(
    spark: SparkSession, runs: Path, tmp_path: Path, rate: float, count: int
) -> None:
    began = time.time()
    with making(rr.rate(rate, limit=count), tmp_path / "out").run(
        spark=spark, runs=runs, batch_rows=700
    ) as run:
        assert run.wait(timeout=60)
    ended = time.time()

    table = whole(read_parts(tmp_path / "out"))
    numbers = np.arange(count)
    np.testing.assert_array_equal(table.column("value").to_numpy(), numbers)
    start = pace_of(run)
    assert began * 1e6 <= start <= ended * 1e6
    np.testing.assert_array_equal(times(table), np.rint(start + numbers * (1e6 / rate)))
    # None came before it was due.
    assert ended - start / 1e6 >= (count - 1) / rate


def test_a_run_that_is_taken_up_goes_on_with_the_next_number(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    app = making(rr.rate(1000), tmp_path / "out")
    run = app.run(spark=spark, trigger="50ms", runs=runs, batch_rows=200)
    with contextlib.suppress(LeftError), run:
        wait_for(run, 300)
        raise LeftError
    start, left = pace_of(run), time.time()

    with app.run(spark=spark, trigger="50ms", folder=run.folder, batch_rows=200) as again:
        wait_for(again, 1300)

    table = whole(read_parts(tmp_path / "out"))
    numbers = np.arange(table.num_rows)
    assert table.num_rows >= 1300
    np.testing.assert_array_equal(table.column("value").to_numpy(), numbers)
    np.testing.assert_array_equal(times(table), np.rint(start + numbers * 1000.0))
    assert pace_of(again) == start
    # What was due while nobody ran came too.
    assert start <= left * 1e6


@pytest.mark.parametrize("endless", [rr.rate(10), rr.ticks(every="1s")], ids=["rate", "ticks"])
def test_what_never_ends_needs_a_trigger(
    spark: SparkSession, runs: Path, tmp_path: Path, endless: SourceConnector
) -> None:
    with pytest.raises(rr.GraphError, match=r"never ends\. Give trigger= and stop the run yourself"):
        making(endless, tmp_path / "out").run(spark=spark, runs=runs)
    assert not runs.exists()


def test_ticks_come_at_their_times(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    with making(rr.ticks(every="20ms", limit=30), tmp_path / "out").run(spark=spark, runs=runs) as run:
        assert run.wait(timeout=60)

    table = whole(read_parts(tmp_path / "out"))
    assert table.column_names == ["time"]
    np.testing.assert_array_equal(times(table), np.rint(pace_of(run) + np.arange(30) * 20_000.0))


def test_a_window_by_time_follows_a_clock_in_a_live_run(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    app = rr.Application("clocked")
    numbers = app.source("numbers", rr.rate(100), ordering="time")
    clock = app.clock("clock", rr.ticks(every="100ms"), time="time", ordering="time")
    counts = app.aggregate(
        "counts",
        numbers,
        window=rr.tumbling(time="300ms"),
        clock=clock,
        select="min(value) as low, max(value) as high, count(*) as n",
    )
    app.sink("out", counts, rr.memory())

    with app.run(spark=spark, trigger="100ms", runs=runs) as run:
        wait_until(lambda: run.progress().tuples_out["out"] >= 5, seconds=60)
        found = run.table("out").to_pylist()

    assert found[0]["low"] == 0
    for before, after in pairwise(found):
        assert after["low"] == before["high"] + 1
    # Before the first tick time has not begun, and the next window is cut at a multiple of 300 ms. Then there are
    # thirty numbers in each, however busy the machine is.
    assert [row["n"] for row in found[2:]] == [30] * (len(found) - 2)
