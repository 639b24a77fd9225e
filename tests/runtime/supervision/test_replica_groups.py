"""Who is active, who is out and when another takes over: the rules, by a clock that stands still."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.supervision.replicated import replicated

import riprap as rr
from riprap.channels.segment import SegmentName
from riprap.compiler import compile_graph
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.replicas import ReplicaGroups
from riprap.runtime.supervision.roster import Roster
from riprap.runtime.switch import read_switch


class Rig:
    """The groups of a run without processes: a test says what they do."""

    def __init__(self, tmp_path: Path, *, begun: bool = True, **options: Any) -> None:
        self.now = 100.0
        app = replicated(tmp_path / "calls", tmp_path / "out")
        app.replicate("hot", "sums", detect="1s", **options)
        layout = compile_graph(app.graph(), buckets=1, tasks=1)
        self.folder = RunFolder.create(tmp_path / "runs", "replicated", lambda: 7.0)
        self._channels = [c.name for c in layout.channels if c.group == "hot"]
        self.roster = Roster.of(layout, None, ())
        for process in self.roster.processes.values():
            self.start(process)
            if not begun:
                process.driver.ready = None  # type: ignore[union-attr]
                continue
            process.told = process.was_ready = True
            for element in process.elements.values():
                element.phase, element.ran, element.fresh = "running", True, False
        self.groups = ReplicaGroups(
            layout, self.folder, self.roster.processes, lambda: 7.0, clock=lambda: self.now
        )
        if begun:
            self.groups.begin()

    def start(self, process: Any) -> None:
        process.driver = SimpleNamespace(
            ready={"cores": 1}, began=self.now, heard=self.now, answered=self.now, halted=False
        )

    def has_spark(self, *names: str) -> None:
        for name in names:
            self.roster.processes[name].driver.ready = {"cores": 1}  # type: ignore[union-attr]

    def put_out(self, letter: str, frontier: int) -> None:
        """Let a replica have results up to a frontier."""
        for channel in self._channels:
            log = self.folder.path / "channels" / channel / "logs" / f"{letter}.0"
            log.mkdir(parents=True, exist_ok=True)
            (log / SegmentName(frontier, 0, 0, frontier).file).touch()

    def hear(self, *letters: str) -> None:
        for letter in letters:
            self.of(letter).driver.heard = self.now  # type: ignore[union-attr]

    def of(self, letter: str) -> Any:
        return self.roster.processes[f"hot~{letter}"]

    def die(self, letter: str) -> None:
        self.groups.lost(f"hot~{letter}", "killed", 0.1, gone=True)
        self.of(letter).driver = None
        for element in self.of(letter).elements.values():
            element.phase = "down"

    def after(self, seconds: float, *heard: str) -> None:
        """Let time pass, in which some give signs of life, and look."""
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            self.hear(*heard)
            self.groups.look()

    @property
    def active(self) -> str:
        return read_switch(self.folder.path, "hot").active

    @property
    def out(self) -> tuple[str, ...]:
        return read_switch(self.folder.path, "hot").out

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.folder.read_events() if event["event"] == kind]


def test_one_that_dies_is_out_until_it_is_started_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put_out("a", 5)
    rig.put_out("b", 8)
    rig.die("a")
    assert (rig.active, rig.out) == ("b", ("a",))
    (told,) = rig.told("failed over")
    assert (told["epoch"], told["before"], told["after"], told["since"]) == (2, "a", 5, 8)
    rig.groups.returning("hot~a")
    assert (rig.active, rig.out) == ("b", ())
    rig.die("b")
    assert (rig.active, rig.out) == ("b", ()), "of nobody is left, nobody is out"


def test_one_that_is_not_active_dies(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.die("b")
    assert (rig.active, rig.out) == ("a", ("b",))
    assert not rig.told("failed over")


def test_with_its_own_state_it_is_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path, back="own")
    rig.die("a")
    assert (rig.active, rig.out) == ("b", ())


def test_silence_is_noticed_and_a_false_alarm_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.after(0.8, "b")
    assert rig.active == "a"
    rig.after(0.4, "b")
    assert rig.active == "b"
    assert "silent" in rig.told("failed over")[0]["cause"]
    assert not rig.told("false alarm")
    rig.after(0.2, "a", "b")
    assert [e["replica"] for e in rig.told("false alarm")] == ["a"]
    rig.after(5.0, "a", "b")
    assert (rig.active, len(rig.told("false alarm"))) == ("b", 1)


def test_one_that_is_behind_is_replaced_but_not_for_its_first_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put_out("b", 1)
    rig.after(3.0, "a", "b")
    assert rig.active == "a", "it has not had a batch yet"
    rig.put_out("a", 1)
    for frontier in range(2, 6):
        rig.put_out("b", frontier)
        rig.after(0.6, "a", "b")
        rig.put_out("a", frontier)
    assert rig.active == "a", "it has never been behind for long"
    rig.put_out("b", 9)
    rig.after(1.6, "a", "b")
    assert rig.active == "b"
    assert not rig.told("false alarm"), "it may hang"
    rig.put_out("a", 6)
    rig.after(0.2, "a", "b")
    assert [e["replica"] for e in rig.told("false alarm")] == ["a"]


def test_one_that_is_started_again_is_not_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put_out("a", 5)
    rig.put_out("b", 5)
    rig.die("b")
    rig.die("a")
    # The first to be back is active, whichever that is.
    for element in rig.of("b").elements.values():
        element.phase = "running"
    rig.start(rig.of("b"))
    rig.groups.returning("hot~b")
    rig.after(0.2, "b")
    assert rig.active == "b"


def test_one_that_has_ended_is_there_whatever_becomes_of_its_process(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for letter in ("a", "b"):
        rig.put_out(letter, 9)
    for element in rig.of("a").elements.values():
        element.phase = "ended"
    rig.of("a").driver = None
    rig.after(3.0, "b")
    assert rig.active == "a"
    assert not rig.told("failed over")
    assert rig.groups.can_do_without("hot~b")


def test_the_run_goes_on_without_one_as_long_as_there_is_another(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.groups.can_do_without("hot~a")
    assert not rig.groups.can_do_without("main")
    rig.groups.give_up("hot~a", "hopeless")
    assert (rig.active, rig.out) == ("b", ("a",))
    assert not rig.groups.can_do_without("hot~b")
    rig.after(3.0, "a", "b")
    assert rig.active == "b"


def test_what_is_read_wherever_it_is_ahead_is_never_switched(tmp_path: Path) -> None:
    rig = Rig(tmp_path, failover="ahead")
    rig.put_out("b", 9)
    rig.after(3.0, "b")
    rig.die("a")
    assert (rig.active, rig.out) == ("a", ("a",))
    assert not rig.told("failed over")


def test_who_comes_after_knows_how_it_stands(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.die("a")
    layout = compile_graph(_graph(tmp_path), buckets=1, tasks=1)
    after = ReplicaGroups(layout, rig.folder, rig.roster.processes, lambda: 8.0, clock=lambda: rig.now)
    after.begin()
    assert (rig.active, rig.out) == ("b", ("a",))


def _graph(tmp_path: Path) -> rr.Graph:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("hot", "sums", detect="1s")
    return app.graph()


@pytest.mark.parametrize("failover", ["exact", "plain"])
def test_a_switch_says_where_each_counts(failover: Any, tmp_path: Path) -> None:
    rig = Rig(tmp_path, failover=failover)
    rig.put_out("a", 9)
    rig.put_out("b", 4)
    rig.die("a")
    switch = read_switch(rig.folder.path, "hot")
    # One that is behind is waited for: nothing that the other put out comes again.
    assert (switch.counts_up_to(1), switch.epochs[1].since) == (9, 9)


def test_a_run_begins_without_one_that_takes_twice_as_long_as_all_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path, begun=False)
    rig.now += 6.0
    rig.has_spark("hot~b")
    assert not rig.groups.may_begin(), "it may be the first of all"
    rig.now += 2.0
    rig.has_spark("main")
    for _ in range(4):
        assert not rig.groups.may_begin()
        rig.now += 2.0
    rig.now += 0.1
    assert rig.groups.may_begin()
    rig.groups.begin()
    assert (rig.active, rig.out) == ("b", ("a",))
    assert [e["replica"] for e in rig.told("replica late")] == ["a"]
    assert rig.told("failed over")[0]["cause"] == "replica a has no Spark yet"
    assert rig.of("a").late
    # When it has come all the same, it is another.
    rig.has_spark("hot~a")
    rig.groups.returning("hot~a")
    assert (rig.active, rig.out) == ("b", ())


def test_a_run_waits_for_what_has_no_replica_and_for_one_replica_of_each_group(tmp_path: Path) -> None:
    for has_spark in (("hot~a", "hot~b"), ("main",)):
        rig = Rig(tmp_path, begun=False)
        rig.has_spark(*has_spark)
        assert not rig.groups.may_begin()
        rig.now += 100.0
        assert not rig.groups.may_begin()
        rig.has_spark("main", "hot~a", "hot~b")
        assert rig.groups.may_begin(), "there is nothing to wait for"


@pytest.mark.parametrize(
    ("late", "options"), [("b", {}), ("a", {"failover": "ahead"}), ("a", {"back": "own"})]
)
def test_one_that_is_late_is_out_unless_it_is_to_come_back_by_itself(
    late: str, options: dict[str, Any], tmp_path: Path
) -> None:
    rig = Rig(tmp_path, begun=False, **options)
    rig.has_spark("main", f"hot~{'b' if late == 'a' else 'a'}")
    rig.groups.may_begin()
    rig.now += 1.1
    assert rig.groups.may_begin()
    rig.groups.begin()
    assert rig.out == (() if options.get("back") == "own" else (late,))
    assert rig.active == ("b" if options.get("back") == "own" else "a")
