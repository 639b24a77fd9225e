"""Small batches are computed by one task alone, larger ones by all, and what comes out is the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.runtime.resident import alone as alone_module
from riprap.runtime.resident.alone import Alone
from riprap.runtime.task import Answer
from riprap.state.ledger import Ledger, Manifest

ROWS = 6_000


def answer(*, seconds: float = 0.001, size: int = 100) -> Answer:
    return Answer(
        task=0,
        manifest=Manifest((0, 4), {}),
        outputs={},
        activity={},
        state={"sums/0": (1, size)},
        seconds={"compute": seconds},
    )


@pytest.mark.parametrize(
    ("rows", "answers"),
    [(3_000, [answer()]), (10, [answer(seconds=0.2)]), (10, [answer(size=20 << 20)])],
    ids=["many rows", "costly rows", "much state"],
)
def test_one_task_is_enough_until_a_batch_is_not_small(rows: int, answers: list[Answer]) -> None:
    alone = Alone()
    told = []
    for _ in range(9):
        told.append(alone.next)
        alone.learn(10, [answer(), answer()])
    assert told == [False] * 8 + [True]
    assert alone.next
    alone.learn(rows, answers)
    assert not alone.next


def test_tasks_take_turns_without_a_difference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine any batch may take long.
    monkeypatch.setattr(alone_module, "_MOST_SECONDS", 60.0)
    keys, values = [i % 13 for i in range(ROWS)], [i * 7 % 31 for i in range(ROWS)]
    table = pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int64())})
    feed = tmp_path / "feed"
    feed.mkdir()

    def write(name: str, low: int, high: int) -> None:
        pq.write_table(table.slice(low, high - low), tmp_path / name)
        (tmp_path / name).rename(feed / name)

    write("00000.parquet", 0, 50)
    app = rr.Application("turns")
    source = app.source("source", rr.files(str(feed / "*.parquet")))
    sums = app.aggregate(
        "sums", source, by="k", window=rr.sliding(tuples=50), emit=rr.every(tuples=1), select="sum(v) as total",
        protect=rr.checkpoint(every="50ms"),
    )  # fmt: skip
    app.sink("out", sums, rr.parquet(tmp_path / "out", roll=0))
    # One small file after the other, then a large one, then small ones again.
    bounds = [*range(0, 1_001, 50), 5_000, *range(5_050, ROWS + 1, 50)]
    with app.run(
        spark=spark, trigger="10ms", buckets=4, parallelism=2, batch_rows=10_000, runs=tmp_path / "runs"
    ) as run:
        for number, (low, high) in enumerate(pairwise(bounds[1:]), 1):
            wait_until(lambda done=low: run.progress().tuples_in >= done)  # type: ignore[misc]
            write(f"{number:05}.parquet", low, high)
        wait_until(lambda: run.progress().tuples_in >= ROWS)
        ledger = Ledger(str(run.folder / "elements" / "turns" / "ledger"))
        last = ledger.get(ledger.batches()[-1])
        assert [m.buckets for m in last.manifests] == [(0, 4)]
        lines = [
            line for line in (run.folder / "metrics.jsonl").read_text().splitlines() if '"rows": 4000' in line
        ]
        assert len(lines) == 1
        run.stop()
        found = [(row["k"], row["total"]) for row in run.table("out").to_pylist()]
    windows: dict[int, list[int]] = {}
    expected = []
    for key, value in zip(keys, values, strict=True):
        window = windows.setdefault(key, [])
        window.append(value)
        expected.append((key, sum(window[-50:])))
    assert found == expected
