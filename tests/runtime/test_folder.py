"""What a run's folder refuses, so that state is never misread."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import riprap as rr
from riprap.compiler import describe_state
from riprap.runtime import supervise
from riprap.runtime.folder import RunFolder
from riprap.runtime.site import left_behind
from riprap.state.leases import Lease, is_alive


def state_of(select: str, *, window: int = 5) -> dict[str, str]:
    app = rr.Application("app")
    source = app.source("source", rr.rows([], "k string, a double, b double"))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=window), select=select)
    app.sink("out", sums, rr.memory())
    return describe_state(app.graph())


ELEMENTS = {"sums": ["source", "sums", "out"]}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "app", lambda: 0.0)
    made.keep_state_layout({"elements": ELEMENTS, "buckets": 8, "operators": state_of("sum(a) as s")})
    return made


def test_a_line_that_a_full_disk_cut_short_costs_no_other(folder: RunFolder) -> None:
    folder.event("first")
    path = folder.path / "events.jsonl"
    path.write_text(path.read_text() + '{"time": 1.0, "event": "cut sh')
    folder.event("joined to what was cut")
    folder.event("last")
    assert [e["event"] for e in folder.read_events()] == ["first", "last"]


def test_the_same_state_is_taken_up(folder: RunFolder) -> None:
    folder.keep_state_layout(
        {"elements": ELEMENTS, "buckets": 8, "operators": state_of("sum(a) / 2 as half")}
    )

    assert folder.state_layout() == {"elements": ELEMENTS, "buckets": 8, "operators": state_of("sum(a) as s")}


def test_another_number_of_buckets_is_refused(folder: RunFolder) -> None:
    with pytest.raises(rr.RunError, match=r"has 8 buckets, not 4: .* Give buckets=8, or none"):
        folder.keep_state_layout({"elements": ELEMENTS, "buckets": 4, "operators": state_of("sum(a) as s")})


@pytest.mark.parametrize(
    "changed",
    [
        state_of("sum(b) as s"),
        state_of("sum(a) as s", window=6),
        {},
        {**state_of("sum(a) as s"), "more": "x"},
    ],
)
def test_an_operator_that_would_misread_the_state_is_refused(
    folder: RunFolder, changed: dict[str, str]
) -> None:
    with pytest.raises(rr.RunError, match=r"has state of (sums|more) that this application would misread"):
        folder.keep_state_layout({"elements": ELEMENTS, "buckets": 8, "operators": changed})


def test_other_processing_elements_are_refused(folder: RunFolder) -> None:
    apart = {"sums": ["source", "to:source"], "alone": ["source", "sums", "out"]}
    with pytest.raises(
        rr.RunError, match=r"has processing elements .* state and channels would not be found"
    ):
        folder.keep_state_layout({"elements": apart, "buckets": 8, "operators": state_of("sum(a) as s")})


def test_a_start_that_comes_to_nothing_leaves_the_newest_run_as_it_is(folder: RunFolder) -> None:
    application = folder.path.parent
    assert left_behind(application) == "", "there is none yet"
    (folder.path / "run.json").write_text("{}")
    folder.be_latest()
    RunFolder.create(application.parent, "app", lambda: 0.0)

    assert (application / "latest").resolve() == folder.path
    where = os.path.relpath(application / "latest")
    assert f"take it up with folder={where!r} (on the command line: --folder {where})" in left_behind(
        application
    )
    lease = Lease.take(None, folder.path)
    assert is_alive(folder.path)
    assert left_behind(application) == "", "it goes on"
    lease.release()
    assert not is_alive(folder.path)
    folder.end()
    assert left_behind(application) == "", "it has ended"


def test_a_start_that_gets_no_hold_is_marked_as_ended_and_names_the_run_to_take_up(folder: RunFolder) -> None:
    (folder.path / "run.json").write_text("{}")
    folder.be_latest()
    app = rr.Application("app")
    app.sink("out", app.source("in", rr.rows([], "n bigint")), rr.memory())
    runs = folder.path.parent.parent

    with pytest.raises(
        rr.RunError, match=r"(?s)on several hosts state pages need .* take it up with folder="
    ):
        supervise(app.graph(), rr.RunOptions(runs=runs, master="spark://here:7077"))

    (refused,) = (path for path in runs.glob("app/2*") if path != folder.path)
    assert (refused / "ended").exists()
