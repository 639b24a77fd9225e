"""A region that fails is halted while its neighbours go on, and puts out in the end what it would have without."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.runtime.harness import lines_of, read_parts, wait_until, whole
from tests.runtime.supervision.watched import ROWS, calls_of, put_file

import riprap as rr
from riprap.cli import main
from riprap.runtime import supervise
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.supervision.requests import ask_to_reset, ask_to_stop

OPTIONS = rr.RunOptions(
    buckets=4, parallelism=2, master="local[2,3]", config={"spark.log.level": "OFF"}, trigger="100ms"
)


def broken_until(mended: str) -> Any:
    """Return a function that fails from the second file on, until another exists."""

    def check(seq: Any) -> Any:
        if seq.to_pylist()[-1] >= ROWS and not os.path.exists(mended):
            raise ValueError("the disk is full")
        return seq

    return check


def application(folder: Path, *, apart: bool, limit: int) -> rr.Application:
    """Describe sums in a region that fails, and a reader that does not; ``apart``: each in a process of its own."""
    app = rr.Application("halting")
    calls = app.source("calls", rr.files(str(folder / "calls")), position="seq")
    app.function("check", broken_until(str(folder / "mended")), returns="bigint")
    checked = app.functor("checked", calls, select="check(seq) as seq, caller, minutes",
                          protect=rr.consistent(period="1s", max_consecutive_reset_attempts=limit))  # fmt: skip
    sums = app.aggregate(
        "sums",
        checked,
        by="caller",
        window=rr.tumbling(tuples=3),
        select="sum(minutes) as total, max(seq) as seq",
    )
    seen = app.functor("see", calls, select="seq")
    app.sink("summed", sums, rr.parquet(folder / "summed", roll=0))
    app.sink("seen", seen, rr.parquet(folder / "seen", roll=0))
    app.place("summing", checked, sums, "summed", process="second")
    app.place("seeing", seen, "seen", **({} if apart else {"process": "second"}))
    return app


def expected(files: int) -> list[dict[str, Any]]:
    """Work out the sums, one call after the other."""
    open_: dict[str, list[int]] = {}
    sums = []
    for call in (call for file in range(files) for call in calls_of(file).to_pylist()):
        minutes = open_.setdefault(call["caller"], [])
        minutes.append(call["minutes"])
        if len(minutes) == 3:
            sums.append({"caller": call["caller"], "total": sum(minutes), "seq": call["seq"]})
            minutes.clear()
    return sums


def sums_in(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = whole(read_parts(folder / "summed")).to_pylist()
    return [{name: row[name] for name in ("caller", "total", "seq")} for row in rows]


def published(folder: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in folder.glob("part-*"))


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in lines_of(run / "events.jsonl") if event["event"] == kind]


def test_a_region_is_halted_and_reset_while_its_neighbour_in_the_same_process_goes_on(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_file(tmp_path / "calls", 0)
    graph = application(tmp_path, apart=False, limit=2).graph()
    with supervise(graph, replace(OPTIONS, runs=runs), spare=False) as run:

        def until(condition: Callable[[], Any]) -> None:
            wait_until(lambda: condition() or not run.running)
            assert run.running, events_of(run.folder, "failure")

        until(lambda: published(tmp_path / "summed") and published(tmp_path / "seen") == ROWS)
        pids = [p.pid for p in find_presences(run.folder)]
        put_file(tmp_path / "calls", 1)
        until(lambda: run.halted)
        assert "the disk is full" in run.halted["checked"]
        put_file(tmp_path / "calls", 2)
        until(lambda: published(tmp_path / "seen") == 3 * ROWS)
        assert sums_in(tmp_path) == expected(1)
        assert main(["reset", str(run.folder), "other"]) == 2

        (tmp_path / "mended").touch()
        assert main(["reset", str(run.folder), "checked", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["region"] == "checked"
        assert not run.halted
        until(lambda: published(tmp_path / "summed") == len(expected(3)))
        assert [p.pid for p in find_presences(run.folder)] == pids, "the neighbour's process went on"

    assert sums_in(tmp_path) == expected(3)
    assert whole(read_parts(tmp_path / "seen"))["seq"].to_pylist() == list(range(3 * ROWS))
    decided = [e["what"] for e in events_of(run.folder, "decision")]
    assert decided == ["RetryQuery", "RetryQuery", "HaltRegion"], events_of(run.folder, "failure")
    attempts = [e["attempt"] for e in events_of(run.folder, "region reset began")]
    assert attempts == [1, 2, 1]
    (halted,) = events_of(run.folder, "region halted")
    assert (halted["attempts"], halted["remedy"]) == (2, f"riprap reset {run.folder} checked")
    assert events_of(run.folder, "ended")


APPLICATION = """\
from pathlib import Path

from tests.runtime.supervision.test_halted_region import application

app = application(Path({folder!r}), apart=True, limit=1)
"""


@pytest.mark.slow
def test_a_run_with_a_halted_region_is_stopped_and_taken_up_with_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in range(2):
        put_file(tmp_path / "calls", file)
    (tmp_path / "app.py").write_text(APPLICATION.format(folder=str(tmp_path)))
    command = ["run", f"{tmp_path / 'app.py'}:app", "--batch-rows", str(ROWS), "--buckets", "4"]
    command += ["--parallelism", "2", "--master", "local[2,3]", "--runs", str(runs), "--json"]

    def meanwhile(act: Callable[[Path], None]) -> threading.Thread:
        thread = threading.Thread(target=lambda: act(runs / "halting" / "latest"), daemon=True)
        thread.start()
        return thread

    def stop_when_halted(run: Path) -> None:
        wait_until(lambda: run.exists() and events_of(run, "region halted"))
        wait_until(lambda: published(tmp_path / "seen") == 2 * ROWS)
        # Its process has nothing else to do.
        wait_until(lambda: "second" not in [p.process for p in find_presences(run)])
        ask_to_stop(run.resolve(), "end")

    thread = meanwhile(stop_when_halted)
    # Without a trigger the input is used up, and the run waits for the region all the same.
    assert main(command) == 1
    thread.join()
    told = json.loads(capsys.readouterr().out)
    assert list(told["halted"]) == ["checked"]
    assert sums_in(tmp_path) == expected(1)
    assert events_of(runs / "halting" / "latest", "stopped")

    (tmp_path / "mended").touch()

    def reset_when_up(run: Path) -> None:
        wait_until(lambda: events_of(run, "resumed") and "main" in [p.process for p in find_presences(run)])
        ask_to_reset(run.resolve(), "checked")

    again = shlex.split(told["take_up"])[1:]
    assert "--folder" in again
    thread = meanwhile(reset_when_up)
    assert main(again) == 0
    thread.join()
    told = json.loads(capsys.readouterr().out)
    assert (told["halted"], told["take_up"]) == ({}, None)
    assert sums_in(tmp_path) == expected(2)
    assert whole(read_parts(tmp_path / "seen"))["seq"].to_pylist() == list(range(2 * ROWS))
