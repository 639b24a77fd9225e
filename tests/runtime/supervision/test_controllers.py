"""The controllers of a run's regions, by what they write, and a supervisor that halts a region and resets it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.supervision.marked import mark, mark_all
from tests.runtime.supervision.test_looking import supervisor_of

import riprap as rr
from riprap.compiler import Layout, compile_graph
from riprap.runtime.folder import RunFolder
from riprap.runtime.stage import Pulse
from riprap.runtime.supervision.controllers import RegionControllers
from riprap.runtime.supervision.decisions import StruckRegion
from riprap.runtime.supervision.failures import HaltRegion, ProcessDied, QueryFailed
from riprap.runtime.supervision.journal import tell
from riprap.runtime.supervision.regions import load_regions
from riprap.runtime.supervision.requests import ask_to_reset
from riprap.runtime.supervision.roster import ElementState
from riprap.runtime.supervision.supervisor import Supervisor


def failed(element: str, batch: int = 5) -> QueryFailed:
    return QueryFailed(
        time=0.0, process="main", element=element, batch=batch, error="OperatorError", message="no"
    )


def layout_of(regions: dict[str, list[str]]) -> Layout:
    app = rr.Application("app")
    source = app.source("in", rr.rows([], "v bigint"))
    for number in range(3):
        app.sink(f"out{number}", source, rr.memory())
        app.place(f"element{number}", f"out{number}", *([] if number else [source]))
    return mark(compile_graph(app.graph(), buckets=1, tasks=1), regions, limit=2, timeout=60.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """Controllers of two regions of three elements, all of which run."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = RunFolder(tmp_path, lambda: 1.0)
        self.clock = Clock()
        self.layout = layout_of({"r": ["element0", "element1"], "s": ["element2"]})
        self.regions = self.begin()
        self.elements = {f"element{n}": ElementState("main", "running", ran=True, batch=5) for n in range(3)}

    def begin(self, *, fresh: bool = False) -> RegionControllers:
        regions = RegionControllers(self.layout, self.folder, fresh=fresh, clock=self.clock)
        regions.begin()
        return regions

    def events(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in e.items() if k != "time"} for e in self.folder.read_events()]

    def phases(self) -> dict[str, str]:
        return {name: state.phase for name, state in load_regions(self.folder.path).items()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_failure_strikes_the_region_of_its_element_and_a_process_all_it_runs(scene: Scene) -> None:
    assert scene.regions.struck(failed("element0"), scene.elements) == (
        StruckRegion(region="r", attempts=0, limit=2, alone=False),
    )
    alone = {n: e for n, e in scene.elements.items() if n != "element2"}
    assert scene.regions.struck(failed("element0"), alone)[0].alone
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    dead = ProcessDied(time=0.0, process="main", code=-9)
    assert [(s.region, s.attempts) for s in scene.regions.struck(dead, scene.elements)] == [
        ("r", 1),
        ("s", 0),
    ]
    scene.regions.halt(HaltRegion(region="r", error="RunError", reason="enough"))
    assert [s.region for s in scene.regions.struck(dead, scene.elements)] == ["s"]


def test_a_process_that_dies_before_anything_ran_strikes_no_region_of_a_new_run(scene: Scene) -> None:
    dead = ProcessDied(time=0.0, process="main", code=-9)
    new = {"element0": ElementState("main")}
    assert scene.regions.struck(dead, new) == ()
    resumed = RegionControllers(scene.layout, scene.folder, resume=True)
    assert [s.region for s in resumed.struck(dead, new)] == ["r"]


def test_who_computes_again_has_its_time_from_each_batch_on(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    element = scene.elements["element0"]
    element.start()
    element.phase = "running"
    scene.clock.now = element.began + 59.0
    assert scene.regions.look(scene.elements, 1.0) == []
    told = element.began
    element.beat(Pulse(5, False, True, 0))
    assert element.began == told
    element.beat(Pulse(5, False, True, 3))
    assert element.began > told
    scene.clock.now = element.began + 60.0
    assert scene.regions.look(scene.elements, 1.0) == []
    scene.clock.now = element.began + 60.5
    (late,) = scene.regions.look(scene.elements, 1.0)
    assert (late.element, late.seconds) == ("element0", 60.5)


def test_a_reset_is_told_from_its_beginning_to_its_end(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    element = scene.elements["element0"]
    element.phase, element.began = "starting", 101.0
    scene.clock.now = 130.0
    assert scene.regions.look(scene.elements, 1.0) == []
    assert scene.phases() == {"r": "resetting", "s": "running"}
    element.phase, element.caught_up = "running", True
    assert scene.regions.look(scene.elements, 1.0) == []
    assert scene.phases() == {"r": "running", "s": "running"}
    cause = "element 'element0' failed: OperatorError: no"
    assert scene.events() == [
        {
            "event": "region reset began",
            "region": "r",
            "attempt": 1,
            "elements": ["element0"],
            "cause": cause,
        },
        {"event": "region reset", "region": "r", "seconds": 30.0},
    ]


@pytest.mark.parametrize(
    ("calm_since", "batch", "back"),
    [(None, 5, False), (96.0, 5, False), (95.0, 5, True), (95.0, 4, False), (None, 6, True)],
)
def test_who_has_nothing_to_do_is_back_too_and_who_has_less_on_record_is_not(
    scene: Scene, calm_since: float | None, batch: int, back: bool
) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    element = scene.elements["element0"]
    element.calm_since, element.batch, element.began = calm_since, batch, 90.0
    scene.regions.look(scene.elements, 1.0)
    assert scene.phases()["r"] == ("running" if back else "resetting")


def test_who_went_back_to_a_cut_is_back_when_it_has_all_there_is_to_read(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    element = scene.elements["element0"]
    element.batch, element.began = 3, 90.0
    scene.regions.look(scene.elements, 1.0)
    assert scene.phases()["r"] == "resetting"
    element.caught_up = True
    scene.regions.look(scene.elements, 1.0)
    assert scene.phases()["r"] == "running"


def test_who_is_not_back_in_time_has_failed_again(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    element = scene.elements["element0"]
    element.phase, element.began = "down", 0.0
    assert scene.regions.look(scene.elements, 1.0) == [], "nobody has told it to start"
    element.phase, element.began = "starting", 40.0
    assert scene.regions.look(scene.elements, 1.0) == []
    scene.clock.now = 100.5
    (late,) = scene.regions.look(scene.elements, 7.0)
    assert (late.time, late.process, late.element, late.seconds) == (7.0, "main", "element0", 60.5)


def test_who_has_ended_needs_no_more_attempts(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element0"), scene.elements)
    scene.elements["element0"].phase = "ended"
    scene.regions.look(scene.elements, 1.0)
    assert load_regions(scene.folder.path)["r"].tries == {}


def test_a_supervisor_that_comes_after_knows_what_was_halted_and_how_often_it_was_tried(scene: Scene) -> None:
    scene.regions.begin_attempts(failed("element2"), scene.elements)
    scene.regions.halt(HaltRegion(region="r", error="RunError", reason="enough"))

    after = scene.begin()
    assert after.halted == {"r": "enough"}
    assert after.struck(failed("element2"), scene.elements)[0].attempts == 1
    assert not after.ask("s", scene.elements), "it is being reset"
    assert not after.ask("other", scene.elements)
    scene.clock.now = 200.0
    assert after.ask("r", scene.elements)
    assert not after.ask("r", scene.elements)
    assert [e["event"] for e in scene.events()[-2:]] == ["region reset asked", "region reset began"]
    assert scene.events()[-1]["elements"] == ["element0", "element1"]
    assert scene.phases() == {"r": "resetting", "s": "resetting"}

    after.forget()
    assert scene.phases() == {"r": "running", "s": "running"}
    after.halt(HaltRegion(region="s", error="RunError", reason="enough"))
    assert scene.begin(fresh=True).halted == {}


def test_what_a_halted_region_needs_is_said(scene: Scene) -> None:
    scene.regions.halt(HaltRegion(region="r", error="RunError", reason="it broke"))
    (event,) = scene.events()
    assert tell(event) == (
        "region 'r' is halted, and what is not in it goes on: it broke. "
        f"To reset it: riprap reset {scene.folder.path} r"
    )


class StandIn:
    """A driver process by what it is told."""

    def __init__(self) -> None:
        self.halted = False
        self.ready = {"cores": 1}
        self.unheard = 0.0
        self.heard = self.answered = self.began = time.monotonic()
        self.ended = 0
        self.told: list[tuple[str, str]] = []
        self.link = SimpleNamespace(send=lambda what, element="", **_: self.told.append((what, element)))

    def halt(self) -> None:
        self.halted = True

    def end(self, patience: float = 0.0) -> int:
        self.ended += 1
        return 0


def started(tmp_path: Path, elements: int) -> tuple[Supervisor, Any]:
    """Return a supervisor whose elements run in one process."""
    supervisor = supervisor_of(tmp_path, elements)
    (tmp_path / "processes").mkdir()
    (process,) = supervisor._processes.values()
    driver: Any = StandIn()
    process.driver, process.told = driver, True
    supervisor.ready.set()
    supervisor.up.set()
    for name in process.elements:
        supervisor._hear(driver, {"say": "started", "element": name, "batch": 5, "restore": 0.0, "lost": 0})
    return supervisor, driver


def fail(supervisor: Supervisor, driver: Any, element: str, error: str = "OperatorError") -> None:
    about = {"error": error, "message": "no", "batch": 5, "final": False}
    supervisor._hear(driver, {"say": "failed", "element": element, **about})


def decided(supervisor: Supervisor) -> list[str]:
    return [e["what"] for e in supervisor._folder.read_events() if e["event"] == "decision"]


def test_a_region_is_halted_beside_others_of_its_process_and_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0", "element1"]}, limit=1)
    supervisor, driver = started(tmp_path, 3)
    fail(supervisor, driver, "element0")
    supervisor._act()
    assert driver.told == [("retry", "element0")]
    fail(supervisor, driver, "element0")
    assert decided(supervisor) == ["RetryQuery", "HaltRegion"]
    assert driver.told[1:] == [("set aside", "element0"), ("set aside", "element1")]
    # Late words of what is halted change nothing.
    fail(supervisor, driver, "element1")
    supervisor._hear(driver, {"say": "started", "element": "element1", "batch": 6, "restore": 0.0, "lost": 0})
    phases = {n: e.phase for n, e in supervisor._roster.elements.items()}
    assert phases == {"element0": "halted", "element1": "halted", "element2": "running"}
    assert (driver.ended, driver.halted, supervisor.error) == (0, False, None)

    supervisor._hear(driver, {"say": "ended", "element": "element2"})
    assert not supervisor._over(), "a run whose other parts have ended waits for the reset"
    ask_to_reset(tmp_path, "r")
    supervisor._hear_others()
    assert {n: e.phase for n, e in supervisor._roster.elements.items()} == {
        "element0": "down",
        "element1": "down",
        "element2": "ended",
    }
    assert not list((tmp_path / "processes").glob("reset-*"))


def test_a_process_that_dies_again_is_restarted_without_the_region_that_is_halted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0"], "s": ["element1"]}, limit=1)
    supervisor, driver = started(tmp_path, 3)
    (process,) = supervisor._processes.values()
    supervisor._gone(driver)
    assert process.restart_at is not None
    process.driver = driver
    supervisor._gone(driver)
    # Either may have been the cause, and both have used up their attempts.
    assert decided(supervisor) == ["RestartProcess", "HaltRegion", "HaltRegion", "RestartProcess"]
    assert len([e for e in supervisor._folder.read_events() if e["event"] == "failure"]) == 2
    assert supervisor.halted.keys() == {"r", "s"}
    assert list(process.open) == ["element2"]


def test_a_process_with_nothing_but_halted_elements_ends_and_starts_again_for_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0", "element1"]}, limit=1)
    supervisor, driver = started(tmp_path, 2)
    (process,) = supervisor._processes.values()
    fail(supervisor, driver, "element0", error="DamagedFileError")
    assert decided(supervisor) == ["HaltRegion"], "no other attempt would help"
    assert driver.halted
    assert not supervisor._over()
    ask_to_reset(tmp_path, "r")
    supervisor._hear_others()
    assert driver.ended == 1
    assert (process.driver, process.told) == (None, False)
    assert process.restart_at is not None


def test_a_run_that_is_to_end_while_a_region_is_halted_can_be_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0"]}, limit=1)
    supervisor, driver = started(tmp_path, 2)
    fail(supervisor, driver, "element0", error="DamagedFileError")
    supervisor.stop()
    ask_to_reset(tmp_path, "r")
    supervisor._act()
    assert driver.told[-1][0] == "stop"
    assert supervisor._wants_stop == "resume"
    assert supervisor.halted, "a run that stops resets nothing"
    supervisor._hear(driver, {"say": "ended", "element": "element1"})
    assert supervisor._over()


def test_a_region_is_halted_from_the_start_of_a_run_that_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0"]}, limit=1)
    supervisor, driver = started(tmp_path, 2)
    fail(supervisor, driver, "element0", error="DamagedFileError")
    again = supervisor_of(tmp_path, 2)
    (process,) = again._processes.values()
    assert (process.halted, list(process.open)) == (["element0"], ["element1"])
    order = again._orders.to_start("main", process, {"cores": 1}, None)
    assert (order["elements"], order["aside"]) == (["element1", "element0"], ["element0"])


def test_a_hung_element_of_a_region_ends_its_process_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_all(monkeypatch, {"r": ["element0"]}, limit=1, timeout=30.0)
    supervisor, driver = started(tmp_path, 2)
    (process,) = supervisor._processes.values()
    fail(supervisor, driver, "element0")
    supervisor._act()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 31.0)
    supervisor._regions._clock = time.monotonic
    driver.heard = driver.answered = now + 31.0
    supervisor._look()
    assert decided(supervisor) == ["RetryQuery", "HaltRegion", "RestartProcess"]
    assert driver.ended == 1
    assert (list(process.open), process.halted) == (["element1"], ["element0"])
    halted = [e for e in supervisor._folder.read_events() if e["event"] == "region halted"]
    assert "was not back 31 s after its reset began; 1 attempt to bring it back" in halted[0]["cause"]
