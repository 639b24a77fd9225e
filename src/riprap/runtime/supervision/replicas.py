"""The replica groups of a run: who is active, who is lost, and when another takes over.

    replica   there <--its process is started again-- out
                '-------its process is gone----------'

    active    --it is out, or silent, or behind another for longer than ``detect``--> the one that is most ahead

A switch is on disk before anybody acts on it, and it is all there is to do: readers look at the file
(`runtime/switch.py`). A replica that was taken for lost and was not, goes on as another; that is counted (event
``false alarm``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from riprap.channels.replicas import newest_log
from riprap.channels.segment import BEGIN
from riprap.graph.replicas import ReplicaGroup
from riprap.runtime.crash import reach
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.roster import ProcessState
from riprap.runtime.switch import Switch, has_switch, read_switch
from riprap.stage.plan import Layout

# Logs are looked at so often, at most.
_LOOK_SECONDS = 0.1


@dataclass(slots=True)
class _GroupState:
    """How a group stands. ``passed`` says when another than the active replica first had come how far.

    ``suspects`` are replicas that were taken for lost: silent ones, and with how far they were, those that were behind.
    """

    group: ReplicaGroup
    channels: tuple[Path, ...]
    switch: Switch
    suspects: dict[str, int | None] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)
    passed: deque[tuple[float, int]] = field(default_factory=deque)

    def position(self, letter: str) -> int:
        """Return how far a replica's results have come on all ways out of the group."""
        return min((newest_log(channel, letter).frontier for channel in self.channels), default=BEGIN)


class ReplicaGroups:
    """Watches over the groups of a run, and switches."""

    def __init__(
        self,
        layout: Layout,
        folder: RunFolder,
        processes: Mapping[str, ProcessState],
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._processes = processes
        self._clock, self._wall_clock = clock, wall_clock
        self._looked = 0.0
        self._enough: float | None = None
        self._states: dict[str, _GroupState] = {}
        self._letters: dict[str, tuple[_GroupState, str]] = {}
        for group in layout.graph.groups:
            inside = {plan.name for plan in layout.plans if plan.group == group.name}
            leaving = [c for c in layout.channels if c.group == group.name and set(c.readers) - inside]
            known = has_switch(folder.path, group.name)
            state = _GroupState(
                group,
                tuple(folder.path / "channels" / channel.name for channel in leaving),
                read_switch(folder.path, group.name) if known else Switch.begun(wall_clock()),
            )
            self._states[group.name] = state
            self._letters |= {group.process(letter): (state, letter) for letter in group.letters}

    def may_begin(self) -> bool:
        """Say whether the run can begin: all processes have Spark, or all but replicas that take too long.

        These are not waited for any longer than all the others took, once more.
        """
        waiting = self._without_spark()
        if not all(map(self.can_do_without, waiting)):
            self._enough = None
            return False
        now = self._clock()
        self._enough = now if self._enough is None else self._enough
        return not waiting or now - self._enough > max(self._enough - self._spawned, self._longest_detect())

    def begin(self) -> None:
        """Write down how the groups stand as the run begins; who has no Spark yet comes back from others."""
        for state in self._states.values():
            self._write(state)
        for name in self._without_spark():
            state, letter = self._letters[name]
            seconds = self._clock() - self._spawned
            self._processes[name].late = True
            self._folder.event(
                "replica late", group=state.group.name, replica=letter, seconds=round(seconds, 3)
            )
            if state.group.back != "own":
                state.switch = state.switch.without(letter)
            self._write(state)
            if letter == state.switch.active:
                self._switch(state, self._remaining(state), f"replica {letter} has no Spark yet", seconds)

    def _without_spark(self) -> list[str]:
        """Name the processes that have something to run, and no Spark yet."""
        return [
            name
            for name, process in self._processes.items()
            if (process.open or process.halted) and not (process.driver is not None and process.driver.ready)
        ]

    @property
    def _spawned(self) -> float:
        """When the first of the processes was started."""
        drivers = (process.driver for process in self._processes.values())
        return min((driver.began for driver in drivers if driver is not None), default=self._clock())

    def _longest_detect(self) -> float:
        return max((state.group.detect for state in self._states.values()), default=0.0)

    def returning(self, process: str) -> None:
        """Count the replica of a process as there, before it starts: from now on its input is kept for it."""
        if process in self._letters:
            state, letter = self._letters[process]
            state.suspects.pop(letter, None)
            if letter in state.switch.out:
                state.switch = state.switch.including(letter)
                self._write(state)

    def lost(self, process: str, cause: str, detect: float, *, gone: bool) -> None:
        """Let another replica take over from one whose process has failed; if that is ``gone``, it has to come back."""
        if process not in self._letters:
            return
        state, letter = self._letters[process]
        others = self._lively(state) - {letter}
        if gone and others and state.group.back != "own" and letter not in state.switch.out:
            state.switch = state.switch.without(letter)
            if state.group.failover == "ahead" or letter != state.switch.active:
                self._write(state)
        if letter == state.switch.active:
            self._switch(state, others, cause, detect)

    def look(self) -> None:
        """See who is silent or behind, and who was taken for lost and is not."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for state in self._states.values():
            self._look_at(state, now)

    def _look_at(self, state: _GroupState, now: float) -> None:
        group, active = state.group, state.switch.active
        for letter in sorted(state.suspects.keys() & self._lively(state)):
            position = state.suspects[letter]
            if position is None or state.position(letter) > position:
                del state.suspects[letter]
                self._folder.event("false alarm", group=group.name, replica=letter, active=active)
        if group.failover == "ahead":
            return
        driver, others = self._processes[group.process(active)].driver, self._lively(state) - {active}
        if active not in self._lively(state):
            quiet = now - driver.heard if driver is not None and driver.ready else None
            if quiet is not None and quiet > group.detect and others:
                state.suspects[active] = None
                self._switch(state, others, f"replica {active} has been silent for {quiet:.2f} s", quiet)
                return
            if quiet is None and self._processes[group.process(active)].was_ready:
                self._switch(state, others, f"replica {active} is not there", 0.0)
                return
        # Also of one that is being started again; but the first batch of all takes long.
        behind = self._behind(state, others, now) if state.position(active) != BEGIN else 0.0
        if behind > group.detect:
            state.suspects[active] = state.position(active)
            self._switch(
                state, others, f"replica {active} has been behind another for {behind:.2f} s", behind
            )

    def _behind(self, state: _GroupState, others: Collection[str], now: float) -> float:
        """Return for how long another replica has been further than the active one."""
        position = state.position(state.switch.active)
        foremost = max((state.position(letter) for letter in others), default=BEGIN)
        passed = state.passed
        if foremost > position and (not passed or foremost > passed[-1][1]):
            passed.append((now, foremost))
        while passed and passed[0][1] <= position:
            passed.popleft()
        return now - passed[0][0] if passed and foremost > position else 0.0

    def _switch(self, state: _GroupState, others: Collection[str], cause: str, detect: float) -> None:
        if not others or state.group.failover == "ahead":
            return
        began, before = self._clock(), state.switch.active
        position = {letter: state.position(letter) for letter in others}
        active = max(sorted(others), key=lambda letter: position[letter])
        after = state.position(before)
        state.switch = state.switch.to(
            active, after=after, since=max(after, position[active]), cause=cause, time=self._wall_clock()
        )
        reach("switching", state.switch.epoch, state.group.name)
        self._write(state)
        reach("switched", state.switch.epoch, state.group.name)
        state.passed.clear()
        self._folder.event(
            "failed over",
            group=state.group.name,
            epoch=state.switch.epoch,
            active=active,
            before=before,
            cause=cause,
            detect=round(detect, 3),
            seconds=round(self._clock() - began, 6),
            after=after,
            since=position[active],
        )

    def _lively(self, state: _GroupState) -> set[str]:
        """Return the replicas that compute, as far as one knows."""
        now, lively = self._clock(), set()
        for letter in state.group.letters:
            process = self._processes[state.group.process(letter)]
            if letter in state.given_up:
                continue
            if all(element.phase == "ended" for element in process.elements.values()):
                # All its results are there, whatever becomes of its process.
                lively.add(letter)
            if process.driver is None or not process.told:
                continue
            well = all(element.phase in ("running", "ended") for element in process.elements.values())
            if well and now - process.driver.heard <= state.group.detect:
                lively.add(letter)
        return lively

    def can_do_without(self, process: str) -> bool:
        """Say whether the run can go on without a process: it is a replica, and another computes."""
        if process not in self._letters:
            return False
        state, letter = self._letters[process]
        return bool(self._remaining(state) - {letter})

    def _remaining(self, state: _GroupState) -> set[str]:
        """Return the replicas that compute, or are ready to begin with the run."""
        drivers = {
            letter: self._processes[state.group.process(letter)].driver for letter in state.group.letters
        }
        ready = {
            letter
            for letter, driver in drivers.items()
            if driver is not None
            and driver.ready
            and not self._processes[state.group.process(letter)].was_ready
        }
        return (self._lively(state) | ready) - state.given_up

    def give_up(self, process: str, cause: str) -> None:
        """Note that a replica is not to come back in this run of the supervisor."""
        state, letter = self._letters[process]
        state.given_up.add(letter)
        if letter == state.switch.active:
            self._switch(state, self._remaining(state), cause, 0.0)
        if letter not in state.switch.out:
            state.switch = state.switch.without(letter)
            self._write(state)
        self._folder.event("replica given up", group=state.group.name, replica=letter, cause=cause)

    def processes(self) -> set[str]:
        """Name the processes of replicas."""
        return set(self._letters)

    def _write(self, state: _GroupState) -> None:
        state.switch.save(self._folder.path, state.group.name)
