"""What the supervisor knows: how the run is to be run, and how each process and element stands.

element    waiting --told--> starting --started--> running --ended--> ended
                             ^    |                   |
                             |    v                   |
                             '-- down <---------------'      a failed query, or the end of its process
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Literal

from riprap.graph.options import RunOptions
from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.journal import Recovered
from riprap.runtime.supervision.process import DriverProcess


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
    """How an element stands. ``fresh``: no batch has completed since its query started."""

    process: str
    phase: Literal["waiting", "starting", "running", "down", "ended"] = "waiting"
    ran: bool = False
    fresh: bool = True
    batch: int = -1
    busy: bool = False
    moved: float = 0.0
    retry_at: float | None = None
    recovery: ReturningElement | None = None

    def start(self) -> None:
        """Note that it is told to start: from now on it is waited for."""
        self.phase, self.fresh, self.moved = "starting", True, time.monotonic()

    def beat(self, batch: int, busy: bool) -> None:
        """Note the newest batch on record, and whether another is under way."""
        if batch != self.batch or not busy:
            self.moved = time.monotonic()
        if batch != self.batch:
            self.fresh = False
        self.batch, self.busy = batch, busy

    def patience(self, patience: Patience) -> float:
        """Return how many seconds it may go without a step, for ever if nothing is under way."""
        if self.phase != "starting" and not (self.phase == "running" and self.busy):
            return math.inf
        # The first batch loads classes and compiles kernels, which is a part of starting.
        return max(patience.stuck, patience.starting if self.fresh else 0.0)


@dataclass(slots=True)
class ProcessState:
    """How a driver process stands. ``told``: its elements, ``told_to_stop``: to end them, since it was started."""

    master: str | None
    driver: DriverProcess | None = None
    told: bool = False
    told_to_stop: bool = False
    was_ready: bool = False
    restart_at: float | None = None
    elements: dict[str, ElementState] = field(default_factory=dict)

    @property
    def open(self) -> dict[str, ElementState]:
        """The elements that have not ended."""
        return {name: e for name, e in self.elements.items() if e.phase != "ended"}

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
