"""One owner for each output folder: nobody else's files are replaced, and a dead owner is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.errors import RunError
from riprap.graph.connectors import list_files
from riprap.runtime.output_lease import NAME, OutputLease
from riprap.runtime.sinks import make_publisher
from riprap.state.pages import PageStore

HOLD = """
import sys, time
from pathlib import Path
from riprap.runtime.output_lease import OutputLease
lease = OutputLease.take(Path(sys.argv[1]), run="killed", sink="out", resume=False)
print("held", flush=True)
time.sleep(600)
"""


def take(folder: Path, run: str, *, resume: bool = False) -> OutputLease:
    return OutputLease.take(folder, run=run, sink="out", resume=resume)


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = take(tmp_path, "a")
    with pytest.raises(
        RunError, match=rf"is being written to by sink 'out' of run a \(process {os.getpid()}\)"
    ):
        take(tmp_path, "b")
    first.release()
    take(tmp_path, "a", resume=True).release()

    take(tmp_path, "b").release()

    with pytest.raises(RunError, match="is now that of sink 'out' of run b"):
        take(tmp_path, "a", resume=True)
    with pytest.raises(RunError, match="the rows of this run are gone"):
        first.check()


def test_who_is_refused_for_what_is_in_a_folder_does_not_take_it_over(tmp_path: Path) -> None:
    take(tmp_path, "killed").release()
    (tmp_path / "part-0000000000-0000000000.parquet").write_text("rows")
    app = rr.Application("app")
    app.sink("out", app.source("in", rr.rows([], "n bigint")), rr.parquet(tmp_path))
    sink: Any = app.graph()["out"]
    with pytest.raises(RunError, match="holds 1 files of an earlier run"):
        make_publisher(
            sink,
            PageStore(str(tmp_path / "results")),
            None,
            run="refused",
            resume=False,
            tell=lambda *_, **__: None,
            clock=lambda: 0.0,
        )

    take(tmp_path, "killed", resume=True).release()


def test_a_killed_owner_is_in_nobodys_way(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=rf"run killed \(process {process.pid}\)"):
            take(tmp_path, "mine")
        process.send_signal(signal.SIGKILL)
        process.wait()

    take(tmp_path, "killed", resume=True).release()
    take(tmp_path, "mine").release()


def test_a_lease_that_says_nothing_is_nobodys(tmp_path: Path) -> None:
    for text in ("", "{", "[]"):
        (tmp_path / NAME).write_text(text)
        take(tmp_path, "mine", resume=True).release()


def test_a_lease_is_no_way_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / NAME).symlink_to("precious")

    with pytest.raises(RunError, match="cannot write to the output folder"):
        take(tmp_path, "mine")
    assert (tmp_path / "precious").read_text() == "mine"


def numbers(name: str, first: int, out: Path) -> rr.Application:
    app = rr.Application(name)
    source = app.source("in", rr.rows([{"n": first + i} for i in range(5)], "n bigint"))
    app.sink("out", source, rr.parquet(out, roll=0, overwrite=True))
    return app


def test_two_applications_do_not_share_a_folder(spark: SparkSession, tmp_path: Path, runs: Path) -> None:
    out = tmp_path / "out"
    with numbers("one", 0, out).run(spark=spark, runs=runs, trigger="100ms", parallelism=1) as one:
        wait_until(lambda: one.progress().tuples_out["out"] == 5)

        (tmp_path / "link").symlink_to(out)
        with pytest.raises(RunError, match="link is being written to by sink 'out' of run one-"):
            numbers("two", 100, tmp_path / "link").run(spark=spark, runs=runs, parallelism=1)

        assert one.dataframe("out").count() == 5
    assert one.table("out")["n"].to_pylist() == [0, 1, 2, 3, 4]
    # The lease is there, and no data to anybody.
    assert (out / NAME).exists()
    assert sorted(pd.read_parquet(out)["n"]) == [0, 1, 2, 3, 4]
    assert [Path(f).parent for f in list_files([str(out)], "parquet")] == [out]

    with numbers("two", 100, out).run(spark=spark, runs=runs, parallelism=1) as two:
        two.wait()
    for found in (
        two.table("out")["n"].to_pylist(),
        [*two.to_pandas("out")["n"]],
        [*two.to_polars("out")["n"]],
    ):
        assert found == [100, 101, 102, 103, 104]
    with pytest.raises(RunError, match="is now that of sink 'out' of run two-"):
        one.table("out")
    with pytest.raises(RunError, match="is now that of sink 'out' of run two-"):
        one.dataframe("out")
