"""``riprap replicas``: what it says of a run's replicas is what is in the run's folder, and what lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.channels.model import open_writer, simple
from tests.cli.conftest import Command

import riprap as rr
from riprap.channels.replicas import begin_log, newest_log
from riprap.compiler import compile_graph
from riprap.compiler.replication import describe_members
from riprap.runtime.folder import RunFolder
from riprap.runtime.switch import Switch

GROUPS = {
    "hot": {
        "failover": "exact",
        "replicas": ["a", "b"],
        "elements": ["sums"],
        "channels": ["sums@k", "sums@"],
    },
    "wide": {"failover": "ahead", "replicas": ["a", "b", "c"], "elements": ["tops"], "channels": ["tops@"]},
}
BEGAN = 1_700_000_000.0


def fill(channel: Path, letter: str, frontiers: range, *, start: int | None = None) -> None:
    """Write a log, with a time a second apart for each batch."""
    log = newest_log(channel, letter) if start is None else begin_log(channel, letter, start)
    writer = open_writer(log.folder)
    for number, frontier in enumerate(frontiers):
        writer.append(number, simple(frontier), None, frontier=frontier, sources={})
        assert writer.newest is not None
        os.utime(log.folder / writer.newest.name.file, (BEGAN + frontier, BEGAN + frontier))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Leave a run with two groups, of which the first has switched once."""
    folder = tmp_path / "runs" / "app" / "2026-01-01-000000-abcdef"
    (folder / "processes").mkdir(parents=True)
    (folder.parent / "latest").symlink_to(folder.name)
    about = {"format": "riprap-run/1", "application": "app", "options": {}}
    (folder / "run.json").write_text(json.dumps(about))
    layout = {"elements": {}, "buckets": 1, "operators": {}, "groups": GROUPS}
    (folder / "state.json").write_text(json.dumps(layout))
    channels = folder / "channels"
    fill(channels / "sums@k", "a", range(4, 5), start=4)
    fill(channels / "sums@", "a", range(3))
    fill(channels / "sums@k", "b", range(10))
    fill(channels / "sums@", "b", range(8))
    fill(channels / "tops@", "a", range(3))
    fill(channels / "tops@", "b", range(3))
    switch = Switch.begun(BEGAN).to("b", after=2, since=2, cause="process 'hot~a' was killed", time=BEGAN + 5)
    switch.without("a").save(folder, "hot")
    events = RunFolder(folder, lambda: BEGAN)
    for group in ("hot", "hot", "wide", "other"):
        events.event("false alarm", group=group, replica="b")
    events.event("replicas differ", group="wide", stream="tops", tuples={})
    failed_over = {"group": "hot", "epoch": 2, "active": "b", "before": "a", "cause": "killed"}
    events.event("failed over", **failed_over, detect=0.05, seconds=0.0123)
    return folder


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


def announce(run: Path, process: str, pid: int) -> None:
    started = psutil.Process(pid).create_time()
    about = {"format": "riprap-process/1", "pid": pid, "started": started, "pages": {"sums~b": []}}
    (run / "processes" / f"{process}.json").write_text(json.dumps(about))


def look(riprap: Command, *arguments: str) -> dict[str, Any]:
    outcome = riprap("replicas", "--json", *arguments)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return {group["group"]: group for group in found["groups"]}


def test_positions_and_states_are_those_of_the_folder(riprap: Command, run: Path) -> None:
    groups = look(riprap)

    hot = {each["replica"]: each for each in groups["hot"]["replicas"]}
    assert [(hot[x]["state"], hot[x]["position"], hot[x]["behind"]) for x in "ab"] == [
        ("out", 2, 5),
        ("active", 7, 0),
    ]
    assert hot["a"]["seconds"] == 4.0, "since the other had frontier 3, or 5"
    wide = {each["replica"]: each for each in groups["wide"]["replicas"]}
    states = [(wide[x]["state"], wide[x]["position"], wide[x]["behind"]) for x in "abc"]
    assert states == [("backup", 2, 0), ("backup", 2, 0), ("backup", None, None)]
    assert not any(each["alive"] or each["cpu"] for each in (*hot.values(), *wide.values()))


def test_epochs_and_events_are_counted_by_group(riprap: Command, run: Path) -> None:
    groups = look(riprap, "app")

    first, second = groups["hot"]["epochs"]
    assert (first["active"], first["detect"]) == ("a", None)
    assert (second["active"], second["after"], second["since"]) == ("b", 2, 2)
    assert (second["detect"], second["seconds"]) == (0.05, 0.0123)
    counts = {name: (group["false_alarms"], group["divergences"]) for name, group in groups.items()}
    assert counts == {"hot": (2, 0), "wide": (1, 1)}
    assert groups["wide"]["epochs"] == []


def test_what_a_living_process_takes_is_told(
    riprap: Command, run: Path, bystander: subprocess.Popen[bytes]
) -> None:
    announce(run, "hot~b", bystander.pid)

    (_, b) = look(riprap)["hot"]["replicas"]

    assert (b["alive"], b["pid"]) == (True, bystander.pid)
    assert b["cpu"] >= 0.0
    assert b["memory"] > 2**20
    assert f"hot~b, {bystander.pid}" in riprap("replicas", run).out


def test_it_is_shown_as_a_table(riprap: Command, run: Path) -> None:
    (run / "ended").touch()
    out = riprap("replicas").out

    lines = [line.split() for line in out.splitlines()]
    assert ["hot", "a", "out", "hot~a,", "gone", "2", "5,", "4.00", "s"] in lines
    assert ["b", "active", "hot~b,", "gone", "7", "0"] in lines
    assert ["c", "backup", "wide~c,", "gone"] in lines
    assert "hot (exact; sums): 1 switch, 2 false alarms, results differed 0 times" in out
    assert "found after 0.050 s, switched in 0.012 s: process 'hot~a' was killed" in out
    assert ", ended" in out


def test_a_run_without_replicas_says_so(riprap: Command, run: Path) -> None:
    (run / "state.json").unlink()
    outcome = riprap("replicas", "latest")
    assert (outcome.code, "has no replicas" in outcome.out) == (0, True)
    assert riprap("replicas", "nothing").code == 2


def test_members_are_written_down_as_they_are_laid_out() -> None:
    app = rr.Application("app")
    source = app.source("source", rr.rows([{"k": 1, "v": 2}], "k int, v int"))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=2), select="sum(v) as s")
    app.sink("out", sums, rr.memory())
    app.replicate("hot", sums, replicas=3, failover="ahead")
    members = describe_members(compile_graph(app.graph(), buckets=1, tasks=1))
    assert members == {
        "hot": {
            "failover": "ahead",
            "replicas": ["a", "b", "c"],
            "elements": ["sums"],
            "channels": ["sums@"],
        }
    }
