"""What the supervisor knows: how the run is to be run, and how each process and element stands.

element    waiting --told--> starting --started--> running --ended--> ended
                             ^    |                   |
                             |    v                   |
                             '-- down <---------------'      a failed query, or the end of its process

    any of these but ended --its region is halted--> halted --its reset is asked for--> down
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from riprap.graph.options import RunOptions
from riprap.runtime.stage import Pulse
from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.journal import Recovered
from riprap.runtime.supervision.process import DriverProcess
from riprap.stage.plan import Layout

# Who has said nothing for so long does not do what it is told.
_SHORT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How a run is to be run, whichever process does it."""

    options: RunOptions
    patience: Patience
    spare: bool
    stdout: int | None


@dataclass(slots=True)
class ReturningElement:
    """An element on its way back; times are those of the supervisor's clock."""

    failure: str
    noticed: float
    detect: float
    started: float = 0.0
    restore: float = 0.0
    lost: int = 0
    spare: bool = False

    def recovered(self, element: str, process: str) -> Recovered:
        """Say how long each part of the way took, now that the element has caught up."""
        return Recovered(
            element=element,
            process=process,
            failure=self.failure,
            detect=self.detect,
            restart=max(0.0, self.started - self.restore - self.noticed),
            restore=self.restore,
            catch_up=time.monotonic() - self.started,
            lost=self.lost,
            spare=self.spare,
        )


@dataclass(slots=True)
class ElementState:
    """How an element stands. ``fresh``: no batch has completed since its query started.

    ``began`` is when it was told to start, or has last computed a batch again (``again`` counts them), ``calm_since``
    since when it has had nothing to do.
    """

    process: str
    phase: Literal["waiting", "starting", "running", "down", "halted", "ended"] = "waiting"
    ran: bool = False
    fresh: bool = True
    batch: int = -1
    busy: bool = False
    again: int = 0
    moved: float = 0.0
    began: float = 0.0
    caught_up: bool = False
    calm_since: float | None = None
    retry_at: float | None = None
    recovery: ReturningElement | None = None

    def start(self) -> None:
        """Note that it is told to start: from now on it is waited for."""
        self.phase, self.fresh, self.moved = "starting", True, time.monotonic()
        self.began, self.caught_up, self.calm_since = self.moved, False, None

    def let_be(self) -> None:
        """Note that its region is halted: nobody waits for it."""
        self.phase, self.retry_at, self.recovery = "halted", None, None

    def beat(self, pulse: Pulse) -> None:
        """Note how it says that it stands."""
        now = time.monotonic()
        if pulse.again != self.again:
            self.began = now
        if pulse.batch != self.batch or not pulse.busy:
            self.moved = now
        if pulse.batch != self.batch:
            self.fresh = False
        if pulse.busy or pulse.restoring:
            self.calm_since = None
        elif self.calm_since is None:
            self.calm_since = now
        self.batch, self.busy, self.again = pulse.batch, pulse.busy, pulse.again

    def patience(self, patience: Patience) -> float:
        """Return how many seconds it may go without a step, for ever if nothing is under way."""
        if self.phase != "starting" and not (self.phase == "running" and self.busy):
            return math.inf
        # The first batch loads classes and compiles kernels, which is a part of starting.
        return max(patience.stuck, patience.starting if self.fresh else 0.0)


@dataclass(slots=True)
class ProcessState:
    """How a driver process stands. ``told``: its elements, ``told_to_stop``: to end them, since it was started.

    ``late``: the run began without it, for it is a replica, and another had Spark.
    """

    master: str | None
    driver: DriverProcess | None = None
    told: bool = False
    told_to_stop: bool = False
    was_ready: bool = False
    late: bool = False
    restart_at: float | None = None
    elements: dict[str, ElementState] = field(default_factory=dict)

    @property
    def open(self) -> dict[str, ElementState]:
        """The elements that have not ended, and are not halted."""
        return {name: e for name, e in self.elements.items() if e.phase not in ("ended", "halted")}

    @property
    def halted(self) -> list[str]:
        """The elements whose region is halted."""
        return [name for name, e in self.elements.items() if e.phase == "halted"]

    def let_be(self, names: Iterable[str], *, hung: bool) -> None:
        """Halt elements, and the process if nothing else is at work in it; ``hung``: it may not listen.

        One that hangs and has others to run is to be restarted.
        """
        for name in names:
            self.elements[name].let_be()
            if self.driver is not None and self.told and not hung:
                self.driver.link.send("set aside", element=name)
        if self.open:
            return
        self.restart_at = None
        if self.driver is not None and (hung or not self.driver.ready):
            self.driver.end()
            self.driver = None
        elif self.driver is not None:
            self.driver.halt()

    def leave_out(self) -> None:
        """Let its elements be for good: others do what they did."""
        for element in self.open.values():
            element.phase, element.retry_at, element.recovery = "ended", None, None
        self.restart_at = None
        now, driver = time.monotonic(), self.driver
        if driver is not None and driver.ready and now - min(driver.heard, driver.answered) < _SHORT_SECONDS:
            driver.halt()
        elif self.driver is not None:
            self.driver.end()
            self.driver = None

    def revive(self, names: Iterable[str]) -> None:
        """Let elements that were halted start again, in a new process if there is none."""
        now, idle = time.monotonic(), not self.open
        for name in names:
            self.elements[name].phase = "down"
        if self.driver is not None and self.driver.halted:
            self.driver.end()
            self.driver = None
        if self.driver is not None and self.told:
            for name in names:
                self.elements[name].retry_at = now
        elif self.driver is None and idle:
            self.restart_at, self.told = now, False

    def started(self, name: str, batch: int, restore: float, lost: int) -> None:
        """Note that an element has started; those after it have their time from now on."""
        now, element = time.monotonic(), self.elements[name]
        for other in self.elements.values():
            other.moved = now if other.phase == "starting" else other.moved
        element.phase, element.ran, element.fresh = "running", True, True
        element.batch, element.busy, element.moved = batch, False, now
        if element.recovery is not None:
            element.recovery.started, element.recovery.restore = now, restore
            element.recovery.lost += lost


@dataclass(frozen=True, slots=True)
class Roster:
    """The driver processes of a run by name, with their elements."""

    processes: dict[str, ProcessState]

    @classmethod
    def of(cls, layout: Layout, master: str | None, halted: Collection[str]) -> Roster:
        """List what a layout asks for; elements of regions that are ``halted`` are."""
        hosts = {
            group.process(letter): host
            for group in layout.graph.groups
            for letter, host in zip(group.letters, group.hosts, strict=False)
        }
        processes: dict[str, ProcessState] = {}
        for plan in layout.plans:
            process = processes.setdefault(plan.process, ProcessState(hosts.get(plan.process, master)))
            process.elements[plan.name] = ElementState(
                plan.process, "halted" if plan.region in halted else "waiting"
            )
        return cls(processes)

    @property
    def elements(self) -> dict[str, ElementState]:
        """All elements by name."""
        return {name: e for process in self.processes.values() for name, e in process.elements.items()}

    def element(self, name: str) -> ElementState:
        """Return an element."""
        return self.elements[name]

    @property
    def is_up(self) -> bool:
        """Whether every element has run that the run did not begin without."""
        waited_for = (e for p in self.processes.values() if not p.late for e in p.elements.values())
        return all(e.ran or e.phase in ("halted", "ended") for e in waited_for)

    @property
    def drivers(self) -> list[DriverProcess]:
        """The processes that are there."""
        return [p.driver for p in self.processes.values() if p.driver is not None]

    def owner(self, driver: DriverProcess) -> tuple[str, ProcessState] | None:
        """Return which of them a driver is, None if it is none."""
        return next(((n, p) for n, p in self.processes.items() if p.driver is driver), None)

    def is_let_be(self, element: str | None) -> bool:
        """Say whether an element is halted: what it did before it heard of that does not matter."""
        return any(element in process.halted for process in self.processes.values())

    def let_be(self, names: Collection[str], *, hung: ProcessState | None) -> None:
        """Halt those of these elements that have not ended; one process may not listen."""
        for process in self.processes.values():
            own = [n for n in names if n in process.elements and process.elements[n].phase != "ended"]
            if own:
                process.let_be(own, hung=process is hung)

    def revive(self, names: Collection[str]) -> None:
        """Let those of these elements that are halted start again."""
        for process in self.processes.values():
            own = [name for name in process.halted if name in names]
            if own:
                process.revive(own)

    def leave_out_unread(self, replicas: Collection[str]) -> None:
        """End the replicas that are still at work when all that reads from them has ended."""
        others = [process for name, process in self.processes.items() if name not in replicas]
        if replicas and not any(process.open or process.halted for process in others):
            for name in replicas:
                if self.processes[name].open:
                    self.processes[name].leave_out()
