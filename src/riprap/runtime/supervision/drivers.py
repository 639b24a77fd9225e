"""The driver processes of a supervised run: started, replaced by a spare that is ready, and ended."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable

from riprap.runtime.folder import RunFolder
from riprap.runtime.jvm_output import LOG
from riprap.runtime.supervision.process import DriverProcess
from riprap.runtime.supervision.roster import Conditions

TICK_SECONDS = 0.05
# An orderly end takes as long as a batch; one that hangs is cut off.
_HALT_SECONDS = 30.0
_MOST_SPARES_LOST = 3


class Drivers:
    """Starts and ends driver processes, and keeps a spare where one is wanted."""

    def __init__(self, conditions: Conditions, folder: RunFolder) -> None:
        self.spare: DriverProcess | None = None
        self._conditions = conditions
        self._options = conditions.options
        self._folder = folder
        self._spares_lost = 0

    def spawn(self, master: str | None, *, warm: bool = False) -> DriverProcess:
        """Start a driver process."""
        log = self._folder.path / LOG
        opening = {
            "folder": str(self._folder.path),
            "master": master,
            "config": dict(self._options.config or {}),
            "log": str(log),
            "warm": warm,
        }
        return DriverProcess(opening, log, self._conditions.stdout, time.monotonic)

    def replacement(self, master: str | None) -> tuple[DriverProcess, bool]:
        """Return a process in place of one that is gone, and whether it is the spare."""
        if self.spare is None or master != self._options.master:
            return self.spawn(master), False
        spare, self.spare = self.spare, None
        return spare, True

    @property
    def has_spare(self) -> bool:
        """Whether a spare is ready, which it is when it has warmed up."""
        spare = self.spare
        return spare is not None and spare.ready is not None

    def keep_spare(self) -> None:
        """Start a spare, if one is wanted and there is none."""
        wanted = self._conditions.spare and self._spares_lost < _MOST_SPARES_LOST
        if wanted and self.spare is None:
            self.spare = self.spawn(self._options.master, warm=True)

    def lose_spare(self) -> None:
        """Note that the spare has ended by itself."""
        self.spare = None
        self._spares_lost += 1
        if self._spares_lost == _MOST_SPARES_LOST:
            self._folder.event("warning", message="spare driver processes do not last: there is none now")

    def end(self, running: Iterable[DriverProcess]) -> None:
        """End every driver process: those that run elements between two batches, a spare at once."""
        if self.spare is not None:
            self.spare.end()
        drivers = list(running)
        for driver in drivers:
            if driver.ready:
                driver.halt()
        deadline = time.monotonic() + _HALT_SECONDS
        for driver in drivers:
            gone = not driver.ready
            while not gone and time.monotonic() < deadline:
                readable, _, _ = select.select([driver.link.incoming], [], [], TICK_SECONDS)
                gone = bool(readable) and driver.receive() is None
            driver.end(1.0 if driver.ready and gone else 0.0)
