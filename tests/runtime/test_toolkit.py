"""Operators that need more than a kernel, on Spark: users' classes, tables that change, loops, clocks."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr

START = datetime(2026, 1, 1, tzinfo=UTC)


def numbers(rows: int) -> Any:
    return rr.rows([{"n": n, "k": "abc"[n % 3]} for n in range(rows)], "n bigint, k string")


def test_a_users_class_keeps_its_state_from_batch_to_batch(spark: SparkSession, runs: Path) -> None:
    @dataclass
    class Seen:
        count: int = 0
        total: int = 0

    class Running(rr.CustomOperator):
        state: Seen

        def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
            self.state.count += 1
            self.state.total += tuple["n"]
            self.submit({"count": self.state.count, "total": self.state.total})

    app = rr.Application("running")
    out = app.custom(
        "sums", Running, app.source("numbers", numbers(100)), schema="count bigint, total bigint"
    )
    app.sink("out", out, rr.memory())

    with app.run(spark=spark, runs=runs, batch_rows=7) as run:
        run.wait()
        found = run.table("out").to_pylist()

    assert found == [{"count": n + 1, "total": n * (n + 1) // 2} for n in range(100)]


def test_a_loop_through_a_control_port_counts_from_the_next_batch(spark: SparkSession, runs: Path) -> None:
    class Limit(rr.CustomOperator):
        """Lets numbers pass that are above the greatest it was told of."""

        def __init__(self) -> None:
            super().__init__()
            self.limit = -1

        def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
            if port == "control":
                self.limit = max(self.limit, tuple["n"])
            else:
                self.submit({"n": tuple["n"], "limit": self.limit})

        def checkpoint(self) -> Any:
            return self.limit

        def reset(self, saved: Any) -> None:
            self.limit = saved

        def reset_to_initial_state(self) -> None:
            self.limit = -1

    app = rr.Application("looped")
    feedback = app.loop("feedback", "n bigint")
    source = app.source("numbers", numbers(30))
    passed = app.custom("limit", Limit, source, schema="n bigint, limit bigint", control=feedback)
    app.close(feedback, app.functor("told", passed, select="n"))
    app.sink("out", passed, rr.memory())

    with app.run(spark=spark, runs=runs, batch_rows=10) as run:
        run.wait()
        found = run.table("out").to_pylist()

    assert found == [{"n": n, "limit": n // 10 * 10 - 1} for n in range(30)]


def test_a_lookup_sees_the_table_as_it_changes(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    def write(path: Path, rows: dict[str, list[Any]]) -> None:
        pq.write_table(pa.table(rows), tmp_path / "half")
        (tmp_path / "half").rename(path)

    (tmp_path / "in").mkdir()
    names = tmp_path / "names.parquet"
    write(names, {"k": ["a", "b"], "name": ["Ann", "Bob"]})
    write(tmp_path / "in" / "1.parquet", {"k": ["a", "b", "c"]})
    app = rr.Application("named")
    source = app.source("keys", rr.files(str(tmp_path / "in")))
    named = app.lookup("names", source, table=str(names), by="k", select="keys.k as k, name")
    app.sink("out", named, rr.memory())

    with app.run(spark=spark, runs=runs, trigger="50ms") as run:
        wait_until(lambda: run.progress().tuples_out["out"] == 3)
        write(names, {"k": ["a", "c"], "name": ["Anna", "Cid"]})
        write(tmp_path / "in" / "2.parquet", {"k": ["a", "b", "c"]})
        wait_until(lambda: run.progress().tuples_out["out"] == 6)
        found = run.table("out").to_pylist()

    pairs = [("a", "Ann"), ("b", "Bob"), ("c", None), ("a", "Anna"), ("b", None), ("c", "Cid")]
    assert found == [{"k": k, "name": name} for k, name in pairs]


def test_a_clock_reaches_every_key_in_every_task(spark: SparkSession, runs: Path) -> None:
    def at(second: int) -> datetime:
        return START + timedelta(seconds=second)

    calls = [{"at": at(n // 4), "host": f"h{n % 8}"} for n in range(80)]
    ticks = [{"at": at(n)} for n in range(22)]
    app = rr.Application("clocked")
    source = app.source("calls", rr.rows(calls, "at timestamp, host string"), ordering="at")
    clock = app.clock("clock", rr.rows(ticks, "at timestamp"), time="at", ordering="at")
    counts = app.aggregate(
        "counts", source, by="host", window=rr.tumbling(time="5s"), clock=clock, select="count(*) as n"
    )
    app.sink("out", counts, rr.memory())

    with app.run(spark=spark, runs=runs, batch_rows=9, buckets=6, parallelism=2) as run:
        run.wait()
        found = run.table("out").to_pylist()

    # A call at a full second comes before the tick of that second: it is in the window that the tick closes.
    wanted: dict[tuple[int, str], int] = {}
    for call in calls:
        second = (call["at"] - START).seconds
        closes = -(-second // 5) * 5
        wanted[closes, call["host"]] = wanted.get((closes, call["host"]), 0) + 1
    assert sorted((r["host"], r["n"]) for r in found) == sorted((host, n) for (_, host), n in wanted.items())
