"""Batches in an SQLite table: each once, whole or not at all."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sqlite3
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.edges.sink_rigs import SqliteRig, numbers

import riprap as rr
from riprap.adapters.sqlite import SqliteTarget
from riprap.errors import ConnectionLost, RunError


def target(path: Path, *, run: str = "r-1", overwrite: bool = False, resume: bool = False) -> SqliteTarget:
    made = SqliteTarget(rr.to_sqlite(path, "out", overwrite=overwrite), numbers(0).schema, run)
    made.open(resume=resume)
    return made


def test_a_repeated_batch_replaces_itself(tmp_path: Path) -> None:
    out = target(tmp_path / "a.db")
    out.write(0, numbers(3), again=False)
    out.write(1, numbers(3, 3), again=False)
    out.write(1, numbers(2, 10), again=True)
    out.write(2, numbers(1, 20), again=True)

    assert out.read().column("n").to_pylist() == [0, 1, 2, 10, 11, 20]
    out.write(1, numbers(0), again=True)
    assert out.read().column("n").to_pylist() == [0, 1, 2, 20]
    out.close()


def write_and_die(path: Path) -> None:
    out = target(path, resume=True)
    with out._transaction() as connection:
        connection.executemany("insert into out (n) values (?)", [(n,) for n in range(50_000)])
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_dies_leaves_nothing(tmp_path: Path) -> None:
    out = target(tmp_path / "a.db")
    out.write(0, numbers(3), again=False)
    out.close()
    writer = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(tmp_path / "a.db",))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL

    out = target(tmp_path / "a.db", resume=True)
    assert out.read().equals(numbers(3).cast(out.read().schema))
    out.close()


def test_a_locked_file_is_a_lost_connection_and_then_works(tmp_path: Path) -> None:
    out = target(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(ConnectionLost, match=r"a\.db: database is locked"):
            out.write(0, numbers(3), again=False)
        other.execute("rollback")
    out.write(0, numbers(3), again=True)

    assert SqliteRig(tmp_path / "a.db").held() == [(0, 0), (0, 1), (0, 2)]
    out.close()


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database " * 100)
    with pytest.raises(RunError, match=r"SQLite file .*text\.db: file is not a database"):
        target(tmp_path / "text.db")
    with pytest.raises(RunError, match=r"SQLite file .*/nowhere/a\.db: unable to open database file"):
        target(tmp_path / "nowhere" / "a.db")
    assert (tmp_path / "text.db").read_text() == "not a database " * 100


def test_a_table_that_is_a_view(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("create view out as select 1 as n, 's' as s, 0.5 as x, 0 as riprap_batch")
    out = target(tmp_path / "a.db")
    with pytest.raises(RunError, match="cannot modify out because it is a view"):
        out.write(0, numbers(1), again=False)


def test_names_with_quotes(tmp_path: Path) -> None:
    rows = pa.table({'a "b"': [1], "select": ["x"], "c'd": [math.inf]})
    out = SqliteTarget(rr.to_sqlite(tmp_path / "a.db", 'my "table"'), rows.schema, "r-1")
    out.open(resume=False)
    out.write(0, rows, again=False)

    assert out.read().equals(rows)
    out.close()


def test_not_a_number_becomes_null(tmp_path: Path) -> None:
    rows = pa.table({"x": [math.nan, -0.0, None, math.inf, -math.inf, 5e-324]})
    out = SqliteTarget(rr.to_sqlite(tmp_path / "a.db", "out"), rows.schema, "r-1")
    out.open(resume=False)
    out.write(0, rows, again=False)

    assert out.read().column("x").to_pylist() == [None, 0.0, None, math.inf, -math.inf, 5e-324]
    out.close()


def test_two_sinks_of_a_run_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    app = rr.Application("shared")
    numbers = app.source("numbers", rr.rows([{"n": n} for n in range(10)], "n bigint"))
    for name, where in (("even", "n % 2 = 0"), ("odd", "n % 2 = 1")):
        found = app.functor(name, numbers, where=where)
        app.sink(f"{name}_sink", found, rr.to_sqlite(tmp_path / "shared.db", "t"))

    with app.run(spark=spark, runs=tmp_path / "runs", batch_rows=4) as run:
        run.wait()
        assert run.table("even_sink").column("n").to_pylist() == [0, 2, 4, 6, 8]
        assert run.table("odd_sink").column("n").to_pylist() == [1, 3, 5, 7, 9]


def test_overwrite_counts_even_if_the_first_try_fails(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = rr.to_sqlite(path, "t").target(pa.schema([("n", pa.int64())]), "old")
    old.open(resume=False)
    old.write(0, pa.table({"n": [1, 2, 3]}), again=False)
    old.close()
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("begin immediate")
    threading.Timer(2.0, lambda: holder.execute("rollback")).start()
    app = rr.Application("new")
    app.sink(
        "out", app.source("in", rr.rows([{"n": 9}], "n bigint")), rr.to_sqlite(path, "t", overwrite=True)
    )

    with app.run(spark=spark, runs=tmp_path / "runs") as run:
        run.wait()
    holder.close()

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select n from t").fetchall() == [(9,)]
