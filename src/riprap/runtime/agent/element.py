"""A processing element in the care of an agent: saved in its time, and its pages collected after each batch."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from riprap.errors import RunError
from riprap.runtime.agent.lock import hold
from riprap.runtime.checkpointing.checkpointer import Checkpointer
from riprap.runtime.checkpointing.cut_log import CutLog
from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.checkpointing.schedule import FreshPage, Status
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Link
from riprap.runtime.retention import Retention
from riprap.state.ledger import BatchRecord


class DriverGoneError(RunError):
    """Raised for an element that belongs to another driver by now, or to none."""


class KeptElement:
    """An element whose driver has told of it. Made once: its lock is held until it is closed."""

    def __init__(
        self,
        protection: ElementProtection,
        folder: Path,
        record: BatchRecord | None,
        waiting: int,
        statuses: Mapping[str, Status],
        turn: threading.Lock,
        link: Link,
    ) -> None:
        self._place = protection.home
        self._link = link
        self._retention = Retention(protection.site)
        self._lock = hold(Path(protection.home))
        try:
            if link.hung_up:
                # Looked at with the lock in hand: who takes the run up has not waited for an agent that had none yet.
                raise DriverGoneError(f"the driver that told of {protection.home} is gone")
            self._checkpointer = Checkpointer(
                protection,
                record,
                waiting=waiting,
                clock=time.time,
                tell=RunFolder(folder, time.time).event,
                turn=turn,
                before=statuses,
                changed=self._say,
                cuts=CutLog(folder, protection.region) if protection.region is not None else None,
            )
        except BaseException:
            os.close(self._lock)
            raise
        self._say()
        self._checkpointer.start()

    def take(
        self, record: BatchRecord, fresh: Sequence[FreshPage], entered: Mapping[str, int], waiting: int
    ) -> None:
        """Take note of a batch that is on record and handed over, and remove what nobody needs after it."""
        self._checkpointer.note(record, fresh, entered, waiting)
        self._retention.collect(
            record,
            waiting,
            again=self._checkpointer.oldest_batch,
            holding=self._checkpointer.holding,
        )

    def wait_from(self, waiting: int) -> None:
        """Take note of the first batch that a sink may still ask for, though there is no new one."""
        self._checkpointer.wait_from(waiting)

    def close(self, *, save: bool) -> None:
        """End; a checkpoint under way is finished first. With ``save``, everything is saved as it is now."""
        self._checkpointer.stop(save=save)
        self._say()
        os.close(self._lock)

    def _say(self) -> None:
        statuses = {name: asdict(status) for name, status in self._checkpointer.statuses().items()}
        self._link.send(
            "standing",
            place=self._place,
            statuses=statuses,
            oldest=self._checkpointer.oldest_batch,
            cut=self._checkpointer.cut,
        )
