"""Who saves an element: an agent holds a lock in the element's folder, until it has finished what it was saving.

elements/<name>/saver.lock          the number of the process, and its host
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap.state.leases import GLANCE_SECONDS, lock

LOCK = "saver.lock"
# An agent without a driver may take so long to finish what it saves; then it hangs.
_FINISH_SECONDS = 60.0


def hold(home: Path) -> int:
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
