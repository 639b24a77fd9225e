"""Applications of several processing elements on Spark: the same answers, whoever is slow and whoever dies."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.runtime.elements import CALLS, busy, expected, write_calls
from tests.runtime.harness import Programs, lines_of, only_run, read_parts, wait_until, whole

import riprap as rr

OPTIONS: dict[str, Any] = {"batch_rows": 1_000, "buckets": 4, "parallelism": 2}
SINKS = ("by_caller", "by_callee", "met")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    folder = tmp_path_factory.mktemp("calls")
    return folder, write_calls(folder, seed=5)


def into(out: Path) -> list[Any]:
    return [rr.parquet(out / name, roll=0) for name in SINKS]


def rows_in(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: whole(read_parts(out / name)).to_pylist() for name in SINKS}


def test_streams_that_part_and_meet_again(
    spark: SparkSession, calls: tuple[Path, pa.Table], runs: Path
) -> None:
    folder, table = calls
    app = busy(folder, rr.memory(), rr.memory(), rr.memory())

    with app.run(spark=spark, runs=runs, **OPTIONS) as run:
        run.wait()

        assert len(run.layout.plans) == 2
        assert {name: run.table(name).to_pylist() for name in SINKS} == expected(table)
        assert run.progress().tuples_in == CALLS
        # Two channels got a segment a batch; the writer, which is ahead, removes what the reader has had by then.
        segments = list((run.folder / "channels").glob("*/*.segment"))
        assert 2 <= len(segments) <= 2 * (CALLS // OPTIONS["batch_rows"])


def test_a_chain_of_elements_begins_with_nothing_to_read(
    spark: SparkSession, calls: tuple[Path, pa.Table], runs: Path
) -> None:
    folder, _ = calls
    app = rr.Application("chain")
    stream = app.source("calls", rr.files(str(folder)), position="seq")
    for number, key in enumerate(("caller", "callee", "caller")):
        select = "last(seq) as seq, last(caller) as caller, last(callee) as callee"
        select = ", ".join(column for column in select.split(", ") if not column.endswith(f" as {key}"))
        stream = app.aggregate(f"step{number}", stream, by=key, window=rr.sliding(tuples=1), select=select)
    app.sink("out", stream, rr.memory())

    with app.run(spark=spark, runs=runs, **OPTIONS) as run:
        run.wait()
        assert len(run.layout.plans) == 3
        assert run.table("out")["seq"].to_pylist() == list(range(CALLS))
        kept = run.folder / "channels"
        assert kept.exists()
    assert not kept.exists(), "a run that has ended needs no channels"


def test_a_slow_reader_holds_up_nobody(spark: SparkSession, calls: tuple[Path, pa.Table], runs: Path) -> None:
    folder, _table = calls
    fast_is_done = threading.Event()
    seen = {"fast": 0, "slow": 0}

    def fast(batch: int, rows: pa.Table) -> None:
        seen["fast"] += rows.num_rows
        if seen["fast"] == CALLS:
            fast_is_done.set()

    def slow(batch: int, rows: pa.Table) -> None:
        assert fast_is_done.wait(120), "the fast reader waits for the slow one"
        seen["slow"] += rows.num_rows

    app = rr.Application("two_readers")
    source = app.source("calls", rr.files(str(folder)), position="seq")
    for name, function in (("fast", fast), ("slow", slow)):
        kept = app.functor(f"{name}_calls", source, select="seq, minutes")
        app.sink(name, kept, rr.callback(function))
        app.place(f"{name}_element", kept, name)

    with app.run(spark=spark, runs=runs, **OPTIONS) as run:
        run.wait()

    assert seen == {"fast": CALLS, "slow": CALLS}


@pytest.mark.parametrize(
    ("step", "element"),
    [
        ("recorded", "busy"),
        pytest.param("gathered", "counts", marks=pytest.mark.slow),
        pytest.param("recorded", "counts", marks=pytest.mark.slow),
        pytest.param("published", "busy", marks=pytest.mark.slow),
    ],
)
def test_a_killed_driver_is_taken_up(
    spark: SparkSession,
    programs: Programs,
    calls: tuple[Path, pa.Table],
    tmp_path: Path,
    step: str,
    element: str,
) -> None:
    folder, table = calls
    job = {"calls": str(folder), "out": str(tmp_path / "out")}
    job["options"] = {**OPTIONS, "master": "local[2]", "runs": str(tmp_path / "runs")}  # type: ignore[assignment]
    program = programs.start("count_calls.py", tmp_path / "work", job, crash_at=f"{step}:1:{element}")
    programs.finish(program, code=-signal.SIGKILL)

    app = busy(folder, *into(tmp_path / "out"))
    with app.run(spark=spark, folder=only_run(tmp_path / "runs"), **OPTIONS) as run:
        run.wait()

    assert rows_in(tmp_path / "out") == expected(table)


@pytest.mark.slow
def test_a_killed_worker_of_a_reader_is_replaced(
    programs: Programs, calls: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    folder, table = calls
    job = {"calls": str(folder), "out": str(tmp_path / "out")}
    job["options"] = {**OPTIONS, "master": "local[2,3]", "runs": str(tmp_path / "runs")}  # type: ignore[assignment]

    program = programs.start("count_calls.py", tmp_path / "work", job, crash_at="paged:1:counts")
    programs.finish(program)

    assert (tmp_path / "work" / "crashed").exists()
    assert rows_in(tmp_path / "out") == expected(table)


@pytest.mark.parametrize("restart", ["resume", pytest.param("live", marks=pytest.mark.slow)])
def test_a_reader_goes_on_where_it_stopped_or_at_the_live_edge(
    spark: SparkSession, calls: tuple[Path, pa.Table], runs: Path, tmp_path: Path, restart: Any
) -> None:
    folder, _table = calls

    def counted(stop_at: int | None) -> rr.Application:
        def take(batch: int, rows: pa.Table) -> None:
            taken.extend(rows["seq"].to_pylist())
            if stop_at is not None and len(taken) >= stop_at:
                raise RuntimeError("the reader dies")

        app = rr.Application("counted")
        source = app.source("calls", rr.files(str(folder)), position="seq")
        kept = app.functor("kept", source, select="seq")
        app.sink("all", source, rr.parquet(tmp_path / "all", roll=0))
        app.sink("taken", kept, rr.callback(take))
        app.place("reader", kept, "taken", restart=restart)
        return app

    taken: list[int] = []
    run = counted(stop_at=1).run(spark=spark, runs=runs, trigger="50ms", **OPTIONS)
    # The writer gets to its end while the reader has stopped.
    wait_until(lambda: run.progress().tuples_in == CALLS)
    with pytest.raises(rr.RunError, match="the reader dies"):
        run.stop()
    before = len(taken)
    with counted(stop_at=None).run(spark=spark, folder=run.folder, **OPTIONS) as again:
        again.wait()

    passed = [e["tuples"] for e in lines_of(run.folder / "events.jsonl") if e["event"] == "passed over"]
    if restart == "live":
        # The batch on which it died is on record: it counts as read, and is handed over once more.
        assert passed == [CALLS - before]
        assert taken[:before] == list(range(before)) == sorted(set(taken))
    else:
        assert passed == []
        assert sorted(set(taken)) == list(range(CALLS))
    assert whole(read_parts(tmp_path / "all"))["seq"].to_pylist() == list(range(CALLS))


def test_sources_that_interleave_by_an_ordering_column_whatever_the_batches(
    spark: SparkSession, runs: Path
) -> None:
    ticks = [{"t": 10 * n, "who": "tick", "n": n} for n in range(200)]
    tocks = [{"t": 7 * n, "who": "tock", "n": n} for n in range(300)]
    schema = "t bigint, who string, n bigint"
    wanted = [r for _, _, r in sorted((r["t"], i, r) for i, rows in enumerate((ticks, tocks)) for r in rows)]
    found = []
    for batch_rows in (7, 1_000):
        app = rr.Application("interleaved")
        sources = [
            app.source(name, rr.rows(rows, schema), ordering="t")
            for name, rows in (("a", ticks), ("b", tocks))
        ]
        pairs = app.aggregate(
            "pairs",
            app.union("all", *sources),
            window=rr.sliding(tuples=2),
            select="first(who) as a, last(who) as b",
        )
        app.sink("out", pairs, rr.memory())
        with app.run(spark=spark, runs=runs, batch_rows=batch_rows) as run:
            run.wait()
            found.append(run.table("out").to_pylist())
    whos = [r["who"] for r in wanted]
    assert found[0] == [{"a": a, "b": b} for a, b in zip([whos[0], *whos], whos, strict=False)]
    assert found[0] == found[1]


def test_an_ordering_column_that_falls_is_named(spark: SparkSession, runs: Path) -> None:
    app = rr.Application("falling")
    for name, times in (("a", [1, 5, 3]), ("b", [1, 2, 9])):
        rows = rr.rows([{"t": t} for t in times], "t bigint")
        app.sink(f"{name}_out", app.source(name, rows, ordering="t"), rr.memory())

    run = app.run(spark=spark, runs=runs)
    with pytest.raises(rr.RunError, match=r"source 'a' .* ordering column 't' falls at row 2"):
        run.wait()
    run.stop()


def test_a_position_column_that_falls_is_named(spark: SparkSession, runs: Path) -> None:
    app = rr.Application("falling_positions")
    rows = rr.rows([{"t": t} for t in (1, 5, 3)], "t bigint")
    app.sink("out", app.source("a", rows, position="t"), rr.memory())

    run = app.run(spark=spark, runs=runs, batch_rows=2)
    with pytest.raises(rr.RunError, match=r"source 'a' .* position column 't' falls from 5 to 3 at row 2"):
        run.wait()
    run.stop()
