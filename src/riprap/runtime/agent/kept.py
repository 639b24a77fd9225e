"""A processing element in the care of an agent: saved in its time, and its pages collected after each batch."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap.runtime.checkpointing.checkpointer import Checkpointer, FreshPage, Status
from riprap.runtime.checkpointing.protection import Protection
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Link
from riprap.runtime.retention import Retention
from riprap.state.leases import GLANCE_SECONDS, lock
from riprap.state.ledger import Record

LOCK = "saver.lock"
# An agent without a driver may take so long to finish what it saves; then it hangs.
_FINISH_SECONDS = 60.0


class KeptElement:
    """An element whose driver has told of it. Made once: its lock is held until it is closed."""

    def __init__(
        self,
        protection: Protection,
        folder: Path,
        record: Record | None,
        statuses: Mapping[str, Status],
        turn: threading.Lock,
        link: Link,
    ) -> None:
        self._place = protection.home
        self._link = link
        self._retention = Retention(protection.site)
        self._lock = _hold(Path(protection.home))
        try:
            self._checkpointer = Checkpointer(
                protection,
                record,
                clock=time.time,
                tell=RunFolder(folder, time.time).event,
                turn=turn,
                before=statuses,
                changed=self._say,
            )
        except BaseException:
            os.close(self._lock)
            raise
        self._say()
        self._checkpointer.start()

    def take(
        self, record: Record, fresh: Sequence[FreshPage], entered: Mapping[str, int], waiting: int
    ) -> None:
        """Take note of a batch that is on record and handed over, and remove what nobody needs after it."""
        self._checkpointer.note(record, fresh, entered)
        self._retention.collect(
            record,
            waiting,
            again=self._checkpointer.oldest_batch,
            holding=self._checkpointer.holding,
        )

    def close(self, *, save: bool) -> None:
        """End; a checkpoint under way is finished first. With ``save``, everything is saved as it is now."""
        self._checkpointer.stop(save=save)
        self._say()
        os.close(self._lock)

    def _say(self) -> None:
        statuses = {name: asdict(status) for name, status in self._checkpointer.statuses().items()}
        self._link.send(
            "standing", place=self._place, statuses=statuses, oldest=self._checkpointer.oldest_batch
        )


def _hold(home: Path) -> int:
    """Take an element's lock, and say who has it."""
    descriptor = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not lock(descriptor, wait=GLANCE_SECONDS):
        os.close(descriptor)
        raise RunError(f"another process saves what is in {home}: is its driver alive?")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
    return descriptor


def await_saver(home: Path, tell: Callable[..., Any], *, seconds: float = _FINISH_SECONDS) -> None:
    """Wait until the agent of an earlier driver has finished what it was saving of an element.

    One that hangs is killed: what is half saved does not count.
    """
    try:
        descriptor = os.open(home / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if lock(descriptor, wait=seconds):
            return
        # Who holds the lock has said so there.
        pid, host = os.pread(descriptor, 1024, 0).decode().split()
        if host == socket.gethostname():
            tell("agent killed", pid=int(pid), message=f"it had not finished saving after {seconds:g} s")
            os.kill(int(pid), signal.SIGKILL)
        if host != socket.gethostname() or not lock(descriptor, wait=seconds):
            raise RunError(
                f"process {pid} on {host} still saves what is in {home}, though its driver is gone. End it, and take "
                "the run up again"
            )
    finally:
        os.close(descriptor)
