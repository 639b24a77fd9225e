"""A driver process as its supervisor sees it: started in a session of its own, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from riprap.runtime.link import Link, Message, environment_with, search_path

_GONE_SECONDS = 10.0
_LOOK_SECONDS = 0.01


class DriverProcess:
    """A driver process that was started; ``ready`` once it has said what its Spark session is like."""

    def __init__(
        self, opening: Mapping[str, Any], log: Path, stdout: int | None, clock: Callable[[], float]
    ) -> None:
        paths = search_path()
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "riprap.runtime.supervision.driver", str(to_read), str(from_write)],
                env=environment_with(paths),
                pass_fds=(to_read, from_write),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=errors,
                # Ctrl-C is for the supervisor alone; and what the driver starts can be found by its session.
                start_new_session=True,
            )
        os.close(to_read)
        os.close(from_write)
        self.link = Link(from_read, to_write)
        self._clock = clock
        # When its JVM was last known to answer is another matter.
        self.began = self.heard = self.answered = clock()
        self._before = self.began
        self.ready: Message | None = None
        self.halted = False
        self.link.send("open", **opening, paths=paths)

    @property
    def pid(self) -> int:
        return self._process.pid

    def receive(self) -> list[Message] | None:
        """Return what it said, None if it is gone."""
        messages = self.link.receive()
        self._before = self.heard
        if messages:
            self.heard = self._clock()
        return messages

    @property
    def unheard(self) -> float:
        """How long nothing had been heard of it before the last message, or its end."""
        return self._clock() - self._before

    def halt(self) -> None:
        """Tell it to end between two batches."""
        if not self.halted:
            self.halted = True
            self.link.send("halt")

    def end(self, patience: float = 0.0) -> int:
        """Wait for its end, kill whatever is left of it, and return its exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        orderly = self._process.returncode == 0
        if self._process.returncode is None:
            self._process.kill()
        # One that halted has stopped its session, and its JVM cleans up as it goes.
        if not orderly:
            kill_session(self.pid)
        code = self._process.wait()
        self.link.close()
        return code


def kill_session(leader: int) -> None:
    """Kill the processes of a session, and wait until they are gone: none may write beside those that come after."""
    members = session_of(leader)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    deadline = time.monotonic() + _GONE_SECONDS
    while any(lives(member) for member in members) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def lives(process: psutil.Process) -> bool:
    """Say whether a process can still do anything: one that nobody has buried cannot."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def session_of(leader: int) -> list[psutil.Process]:
    """List the processes of a session."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader:
                members.append(process)
    return members
