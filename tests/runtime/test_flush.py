"""The end of finite input is a batch like any other: on record, and put out once, whoever dies meanwhile."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import Programs, on_record, only_run, read_parts, wait_until, whole

import riprap as rr
from riprap.graph.connectors import SourceConnector

ROWS = [{"k": "ab"[i % 2], "x": i} for i in range(11)]
OPTIONS: dict[str, Any] = {"batch_rows": 4, "buckets": 4, "parallelism": 2, "at_end": "flush"}
END = 3  # after three batches of rows


def sums(out: Path, feed: SourceConnector | None = None) -> rr.Application:
    """Build sums of three by key in one processing element, and of all of them in another."""
    app = rr.Application("sums")
    source = app.source("source", feed or rr.rows(ROWS, "k string, x bigint"))
    threes = app.aggregate(
        "threes", source, by="k", window=rr.tumbling(tuples=3), select="sum(x) as total, count(*) as n"
    )
    every = app.aggregate(
        "every", threes, window=rr.tumbling(tuples=100), select="sum(total) as t, sum(n) as m"
    )
    app.sink("parts", threes, rr.parquet(out / "parts", roll=0))
    app.sink("whole", every, rr.parquet(out / "whole", roll=0))
    return app


def expected(out: Path) -> None:
    parts = whole(read_parts(out / "parts")).to_pylist()
    for key in "ab":
        numbers = [row["x"] for row in ROWS if row["k"] == key]
        windows = [numbers[i : i + 3] for i in range(0, len(numbers), 3)]
        found = [(row["total"], row["n"]) for row in parts if row["k"] == key]
        assert found == [(sum(window), len(window)) for window in windows]
    assert whole(read_parts(out / "whole")).to_pylist() == [{"t": sum(range(11)), "m": 11}]


@pytest.mark.parametrize("step", ["gathered", pytest.param("recorded", marks=pytest.mark.slow)])
def test_a_kill_at_the_end_changes_nothing(
    spark: SparkSession, programs: Programs, tmp_path: Path, step: str
) -> None:
    options = {**OPTIONS, "master": "local[1]", "runs": str(tmp_path / "runs")}
    job = {"out": str(tmp_path / "out"), "options": options}
    programs.finish(programs.start("flush_sums.py", tmp_path / "work", job, f"{step}:{END}"), code=-9)
    folder = only_run(tmp_path / "runs")
    assert on_record(folder) == (END if step == "recorded" else END - 1)
    # Whoever takes it up need not know how it was to end.
    remembered = {name: value for name, value in OPTIONS.items() if name != "at_end"}
    with sums(tmp_path / "out").run(spark=spark, folder=folder, **remembered) as run:
        run.wait()
    expected(tmp_path / "out")


def test_a_stop_is_not_the_end(spark: SparkSession, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        feed = rr.from_tcp("127.0.0.1", port, schema="k string, x bigint", format="json")
        run = sums(tmp_path, feed).run(spark=spark, runs=tmp_path / "runs", **OPTIONS)
        connection, _ = server.accept()
        with connection:
            connection.sendall("".join(json.dumps(row) + "\n" for row in ROWS).encode())
            wait_until(lambda: run.progress().tuples_in == len(ROWS))
            run.stop()
    assert whole(read_parts(tmp_path / "parts")).num_rows == 3
    assert not list((tmp_path / "whole").glob("*.parquet"))


def test_open_windows_are_put_out_only_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    for name, at_end in (("flushed", "flush"), ("open", None)):
        with sums(tmp_path / name).run(
            spark=spark, runs=tmp_path / "runs", **{**OPTIONS, "at_end": at_end}
        ) as run:
            run.wait()
    expected(tmp_path / "flushed")
    assert whole(read_parts(tmp_path / "open" / "parts")).num_rows == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at_end": "drop"}, "at_end= takes 'flush', got 'drop'"),
        ({"at_end": "flush", "trigger": "1s"}, "at_end= is for runs whose input ends"),
    ],
)
def test_what_cannot_be_flushed_is_refused_before_spark_starts(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(rr.GraphError) as caught:
        sums(tmp_path).run(**options)
    assert said in str(caught.value)
