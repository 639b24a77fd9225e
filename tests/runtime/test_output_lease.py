"""One owner for each output folder: nobody else's files are replaced, and a dead owner is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.compiler import compile_graph
from riprap.errors import RunError
from riprap.graph.connectors import list_files
from riprap.runtime.crew import Crew
from riprap.runtime.folder import RunFolder
from riprap.runtime.launch import Launch
from riprap.runtime.output_lease import NAME, OutputLease, refuse_held
from riprap.runtime.site import take_hold
from riprap.state.leases import lock

HOLD = """
import sys, time
from pathlib import Path
from riprap.runtime.output_lease import OutputLease
lease = OutputLease.take(Path(sys.argv[1]), run="killed", sink="out", resume=False)
lease.sign()
print("held", flush=True)
time.sleep(600)
"""


def take(folder: Path, run: str, *, resume: bool = False) -> OutputLease:
    lease = OutputLease.take(folder, run=run, sink="out", resume=resume)
    lease.sign()
    return lease


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


class Reports:
    """Takes what a crew reports."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, what: str, **details: Any) -> None:
        self.sent.append((what, details))


def begin_crew(graph: rr.Graph, spark: SparkSession, runs: Path, link: Any) -> None:
    """Begin a new run as a driver process does."""
    folder = RunFolder.create(runs, graph.name, time.time)
    housing, lease = take_hold(folder, None, None, one_host=True)
    launch = Launch(
        graph=graph,
        session=spark,
        folder=folder,
        resume=False,
        options=rr.RunOptions(batch_rows=10),
    )
    plans = compile_graph(graph, buckets=1, tasks=1).plans
    Crew(launch, plans, housing, link.send).begin([plan.name for plan in plans], resume=())
    folder.end()
    lease.release()


def listing(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("how", ["in one process", "supervised"])
def test_who_is_refused_one_folder_takes_over_none(
    spark: SparkSession, tmp_path: Path, runs: Path, how: str
) -> None:
    one, two, new = folders = [tmp_path / name for name in ("one", "two", "new")]
    for folder in folders:
        folder.mkdir()
        take(folder, "killed").release()
    for folder in (one, two):
        (folder / "part-0000000000-0000000000.parquet").write_text("rows")
    (one / "_part-0000000001-0000000001.parquet").write_text("half")
    before = [listing(folder) for folder in folders]
    app = rr.Application("app")
    source = app.source("in", rr.rows([{"n": 1}], "n bigint"))
    app.sink("one", source, rr.parquet(one, overwrite=True))
    app.sink("new", source, rr.parquet(new))
    app.sink("two", source, rr.parquet(two))
    app.place("first", source, "one", "new")
    app.place("second", "two")

    if how == "supervised":
        link = Reports()
        begin_crew(app.graph(), spark, runs, link)
        ((kind, report),) = link.sent
        assert (kind, report["element"], report["final"]) == ("failed", "second", True)
        assert "two holds 1 files of an earlier run" in report["message"]
    else:
        with pytest.raises(RunError, match="two holds 1 files of an earlier run"):
            app.run(spark=spark, runs=runs, parallelism=1)

    assert [listing(folder) for folder in folders] == before
    for folder in folders:
        take(folder, "killed", resume=True).release()


def test_a_folder_that_another_user_has_is_named_with_the_way_out() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        take(folder, "theirs").release()
        os.chown(folder / NAME, 4141, -1)
        folder.chmod(0o777)
        os.seteuid(4242)
        try:
            for attempt in (lambda: refuse_held(folder), lambda: take(folder, "mine")):
                with pytest.raises(RunError, match=rf"of user 4141\. .* has ended, remove {folder / NAME}"):
                    attempt()
        finally:
            os.seteuid(0)


def test_who_only_looks_is_in_nobodys_way(tmp_path: Path) -> None:
    take(tmp_path, "mine").release()
    looking = os.open(tmp_path / NAME, os.O_RDONLY)
    assert lock(looking)
    done = threading.Timer(0.1, os.close, [looking])
    done.start()

    take(tmp_path, "mine").release()
    done.join()


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
