"""The other programs that say what should come of the jobs: they agree with the applications, and see what is wrong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages import run_batches

import riprap as rr
from riprap.apps.syslog import END_OF_LOG
from riprap_bench.regions_jobs import Chain, Job, Large, LogWatch, Lois, Vwap, WordCount
from riprap_bench.regions_oracle import wrong
from riprap_bench.regions_plain import _one_bucket

SEED = 3


def jobs(folder: Path) -> list[Job]:
    return [
        WordCount(SEED, scan=False, rows=200),
        LogWatch(SEED),
        Vwap(SEED, rows=20_000),
        Lois(SEED, rows=256),
        Large.of(1, SEED, folder / "fill"),
    ]


def table_of(file: Path) -> pa.Table:
    if file.suffix == ".txt":
        return pa.table({"line": file.read_text().splitlines()})
    return pq.read_table(file)


@pytest.mark.parametrize("number", range(5))
def test_an_application_has_what_another_program_says(number: int, tmp_path: Path) -> None:
    job = jobs(tmp_path)[number]
    folder = tmp_path / ("fill" if isinstance(job, Large) else "feed")
    feed = job.write(folder, job.warm_up + 2)
    app = job.build(feed, rr.memory())
    graph = app.graph()
    (source,) = (o.name for o in graph if type(o).__name__ == "Source")
    (sink,) = (o.name for o in graph if type(o).__name__ == "Sink")
    tables = [table_of(file) for file in feed.files]
    if isinstance(job, LogWatch):
        tables.append(pa.table({"line": [END_OF_LOG]}))
    rows = run_batches(app, [{source: table} for table in tables], sink=sink)
    assert rows

    assert wrong(job, feed.files, pa.Table.from_pylist(rows)) is None
    # The last word may not be the last of its kind.
    for other in (rows[:-1] if number else [r for r in rows if r["word"] != rows[-1]["word"]], rows[1:]):
        if number or other != rows[1:]:
            assert wrong(job, feed.files, pa.Table.from_pylist(other)) is not None


def test_chains_are_computed_as_they_should_be(tmp_path: Path) -> None:
    job = Chain(SEED, many=1, length=3, rows=2_000)
    feed = job.write(tmp_path, 10)
    found = pa.concat_tables(pq.read_table(file) for file in feed.files)
    kept = [row for row in found.to_pylist() if row["number"] % 997 < 4]
    for row in kept:
        for _ in range(3):
            row["value"] = row["value"] * 0.999 + 1
    assert len(kept) > 20
    assert wrong(job, feed.files, pa.Table.from_pylist(kept)) is None
    assert wrong(job, feed.files, pa.Table.from_pylist(kept[1:])) is not None


class State:
    """What Spark hands to a function with state."""

    exists = False
    get: tuple[bytes, ...]

    def update(self, value: tuple[bytes, ...]) -> None:
        self.exists, self.get = True, value


def test_averages_of_plain_spark_are_right_wherever_batches_end(tmp_path: Path) -> None:
    job = Vwap(SEED, rows=100_000)
    feed = job.write(tmp_path, 5)
    state, found = State(), []
    for file in feed.files:
        table = pq.read_table(file).to_pandas()
        trades = table[(table.kind == "trade") & (table.price > 0) & (table["size"] > 0)]
        trades = trades.assign(time=trades.time.astype("int64") // _scale(trades.time))
        columns: Any = trades[["seq", "time", "ticker", "price", "size"]].astype({"ticker": "object"})
        half = len(columns) // 2
        found += list(_one_bucket((0,), iter([columns[half:], columns[:half]]), state))

    rows = pa.Table.from_pandas(pd.concat(found))
    assert wrong(job, feed.files, rows) is None
    assert wrong(job, feed.files, rows.slice(1)) is not None
    # What no window can hold any more is not kept.
    slots, held = pickle.loads(state.get[0])
    assert len(slots) > 100
    assert len(held[0]) < rows.num_rows


def _scale(moments: Any) -> int:
    """Return how many of its units are a microsecond."""
    return 1_000 if str(moments.dtype).startswith("datetime64[ns") else 1
