"""A run is summed up from its batches, and shown as it goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.followed_run import LiveLine, rows_in
from riprap.cli.screen import Screen
from riprap.cli.summary import Tally, print_summary, summarise


def copying(sink: object = None) -> rr.Graph:
    app = rr.Application("copying")
    source = app.source("source", rr.rows([{"n": 1}, {"n": 2}], "n int"))
    app.sink("sink", app.functor("copy", source, select="n"), rr.json("out") if sink is None else sink)  # type: ignore[arg-type]
    return app.graph()


def batch(number: int, rows: int, *, time: float, repeated: bool = False) -> dict[str, Any]:
    did = {"in": rows, "out": rows, "seconds": 0.5, "state_bytes": 100 + number, "late": number}
    return {
        "batch": number,
        "time": time,
        "rows": 0 if repeated else rows,
        "repeated": repeated,
        "operators": {} if repeated else {"source": did, "copy": did, "sink": did},
    }


def tally(lines: list[dict[str, Any]]) -> Tally:
    coming: Any = SimpleNamespace(new=lambda: [lines.pop(0)] if lines else [])
    made = Tally(coming)
    while lines:
        made.take()
    return made


def test_batches_are_summed_and_state_is_that_of_the_last() -> None:
    metrics = [batch(0, 0, time=9.0, repeated=True), batch(1, 10, time=10.0), batch(2, 30, time=12.0)]
    summary = summarise(copying(), Path("run"), tally(metrics), seconds=8.0, interrupted=False)
    assert (summary.batches, summary.tuples_in, summary.tuples_out) == (2, 40, 40)
    assert (summary.events_per_s, summary.steady) == (5.0, 15.0)
    told = summary.to_json()
    assert told["operators"]["copy"] == {"in": 40, "out": 40, "seconds": 1.0, "state_bytes": 102, "late": 3}
    holds = {"process": "exactly once", "host": "at most once", "power": "at most once"}
    assert told["outputs"] == {
        "sink": {"path": str(Path("out").absolute()), "format": "json", "tuples": 40, "holds": holds}
    }


def test_a_run_without_batches_or_files_has_a_summary_too() -> None:
    summary = summarise(copying(rr.memory()), Path("run"), tally([]), seconds=0.0, interrupted=True)
    assert (summary.batches, summary.events_per_s, summary.steady) == (0, 0.0, None)
    assert summary.to_json()["output"] is None


def test_the_total_is_known_for_rows_and_parquet_only(
    feed_file: Path, feed: pa.Table, tmp_path: Path
) -> None:
    assert rows_in(copying()) == 2
    assert rows_in(CATALOGUE["bargain"].make(feed_file, rr.memory()).graph()) == feed.num_rows
    app = rr.Application("lines")
    lines = app.source("lines", rr.files(tmp_path / "*.csv", schema="n int"))
    app.sink("sink", lines, rr.memory())
    assert rows_in(app.graph()) is None


def test_without_a_terminal_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    screen = Screen()
    with LiveLine(screen, "copying", 4000) as line:
        for seconds in (0.5, 2.5, 3.0, 4.6):
            line.show(progress(seconds))
        for seconds in (7.0, 9.5, 12.0):
            line.show(replace(progress(4.6), seconds=seconds))  # it waits for input
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "copying: 2,500/4,000 events  1,000 events/s  batch 2  latency 0.25 s",
        "copying: 4,600/4,000 events  1,000 events/s  batch 4  latency 0.25 s",
    ]


def test_a_region_that_is_halted_is_told_once_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    with LiveLine(Screen(), "copying", None, "runs/copying/5") as line:
        for seconds in (2.5, 5.0, 7.5):
            line.show(replace(progress(2.5), seconds=seconds), ["source"] if seconds > 4 else [])
    before, after = capsys.readouterr().err.splitlines()
    assert after == f"{before}  region 'source' is halted: riprap reset runs/copying/5 source"


def test_the_summary_names_the_regions_that_were_halted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    halted = {"source": "it broke"}
    summary = summarise(copying(), tmp_path, tally([]), seconds=1.0, interrupted=False, halted=halted)
    assert summary.to_json()["halted"] == halted
    print_summary(summary, Screen())
    assert "region 'source' is halted: it broke" in capsys.readouterr().out
    assert summarise(copying(), tmp_path, tally([]), seconds=1.0, interrupted=False).to_json()["halted"] == {}


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=True)
    with LiveLine(screen, "copying", None) as line, screen.waiting("Starting"):
        line.show(progress(5.0))
    assert capsys.readouterr().err == ""


def progress(seconds: float) -> rr.Progress:
    return rr.Progress(
        batches=int(seconds),
        tuples_in=int(seconds * 1000),
        tuples_out={"sink": 1},
        seconds=seconds,
        tuples_per_second=1000.0,
        latency=0.25,
        state_bytes=0,
    )
