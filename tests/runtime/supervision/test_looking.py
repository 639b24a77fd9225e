"""What the supervisor makes of silence, and a driver process of a JVM that is gone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import riprap as rr
from riprap.runtime.changes import Changes
from riprap.runtime.crew import Crew
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Link
from riprap.runtime.site import Housing
from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.driver import SparkGoneError, report_by
from riprap.runtime.supervision.requests import ask_to_stop
from riprap.runtime.supervision.roster import Conditions
from riprap.runtime.supervision.supervisor import Supervisor


def supervisor_of(tmp_path: Path, elements: int = 1) -> Supervisor:
    app = rr.Application("app")
    source = app.source("in", rr.rows([], "v bigint"))
    for number in range(elements):
        app.sink(f"out{number}", source, rr.memory())
        app.place(f"element{number}", f"out{number}", *([] if number else [source]))
    patience = Patience(starting=50.0, stuck=40.0)
    conditions = Conditions(options=rr.RunOptions(), patience=patience, spare=False, stdout=None)
    folder = RunFolder(tmp_path, time.time)
    return Supervisor(
        app.graph(),
        conditions,
        folder,
        Housing("", "", 0, "", 1, 1),
        Changes(folder),
        resume=False,
        history=[],
    )


def test_what_does_not_start_in_time_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = supervisor_of(tmp_path)
    (process,) = supervisor._processes.values()
    (element,) = process.elements.values()
    ended: list[bool] = []
    now = time.monotonic()
    driver: Any = SimpleNamespace(
        halted=False,
        ready={"cores": 1},
        heard=now + 1e6,
        answered=now + 1e6,
        began=now,
        end=lambda: ended.append(True),
    )
    process.driver = driver
    element.start()

    monkeypatch.setattr(time, "monotonic", lambda: now + 49.0)
    supervisor._look()
    assert not ended
    monkeypatch.setattr(time, "monotonic", lambda: now + 51.0)
    supervisor._look()

    assert ended == [True]
    assert process.restart_at is not None
    (failure,) = [e for e in supervisor._folder.read_events() if e["event"] == "failure"]
    assert failure["what"] == "Stuck"


def test_a_run_is_the_latest_once_all_of_it_is_up(tmp_path: Path) -> None:
    supervisor = supervisor_of(tmp_path / "app" / "run", elements=2)
    supervisor._folder.path.mkdir(parents=True)
    (process,) = supervisor._processes.values()
    driver: Any = SimpleNamespace(ready=None)
    process.driver = driver
    latest = tmp_path / "app" / "latest"

    for name, up in zip(process.elements, (False, True), strict=True):
        supervisor._hear(driver, {"say": "started", "element": name, "batch": -1, "restore": 0.0, "lost": 0})
        supervisor._act()
        assert (latest.exists(), supervisor.was_up) == (up, up)


def test_others_may_ask_to_stop_and_garbage_is_no_request(tmp_path: Path) -> None:
    supervisor = supervisor_of(tmp_path)
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "stop.request").write_text("{")
    supervisor._hear_others()
    assert supervisor._wants_stop is None
    (told,) = supervisor._folder.read_events()
    assert "stop.request is damaged: it is not JSON" in told["message"]
    (tmp_path / "processes" / "reset-r.request").write_text("[]")
    supervisor._hear_others()
    *_, told = supervisor._folder.read_events()
    assert "it holds a list, not an object" in told["message"]

    ask_to_stop(tmp_path, "resume")
    supervisor._hear_others()
    assert supervisor._wants_stop == "resume"


def test_without_its_jvm_a_process_reports_no_failure_of_an_element(tmp_path: Path) -> None:
    plan: Any = SimpleNamespace(name="sums")

    def lost() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    spark = SimpleNamespace(_jsc=SimpleNamespace(sc=lost))
    session: Any = SimpleNamespace(sparkContext=spark)
    # It has not even options, so that nothing can be started.
    launch: Any = SimpleNamespace(session=session, home=lambda plan: tmp_path, graph=rr.Graph("app", ()))
    said, mouth = os.pipe()
    housing = Housing(str(tmp_path), str(tmp_path), 0, "", 1, 1)
    crew = Crew(launch, [plan], housing, report_by(Link(said, mouth), session))

    with pytest.raises(SparkGoneError):
        crew.begin(["sums"], resume=["sums"])
    os.close(mouth)
    assert os.read(said, 1) == b""
    os.close(said)
