"""What the servers of the tests have in common: processes of this session, on loopback, in a temporary folder.

A server keeps its port and its folder over ``stop``, ``kill`` and ``start``; ``close`` removes the folder. A guard
process ends the server when the session is gone without having done so, as after a SIGKILL.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil
from tests.services.ports import HOST, free_port

# A cold JVM on a busy machine needs many seconds; a server that takes this long is broken.
_PATIENCE = 90.0
_names = count(1)


class UnavailableError(Exception):
    """Why a server cannot be had on this machine, and what to do."""


class Server:
    """A server that tests start, stop and kill; ``with`` starts it and removes it."""

    name: ClassVar[str]
    end_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.host = HOST
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"riprap-{self.name}-"))
        self._prepared = False
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The host and port clients connect to."""
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's first process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the server has written, over all its starts."""
        return self.folder / "log"

    def start(self) -> None:
        """Start the server and return once it answers."""
        assert not self.running, f"{self.name} is running already"
        self._forget()
        if not self._prepared:
            self._prepare()
            self._prepared = True
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **self._identity(),
            )
        self._guard = _guard_of(self._process.pid)
        self._wait_until_ready()

    def stop(self) -> None:
        """Ask the server to end, and wait until it has."""
        if self._process is not None and self.running:
            self._process.send_signal(self.end_signal)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"{self.name} did not stop within {_PATIENCE:.0f} s") from None
        self._forget()

    def kill(self) -> None:
        """End every process of the server with SIGKILL, and wait until they are gone."""
        if self._process is not None and self.running:
            first = psutil.Process(self._process.pid)
            # Stopped, it starts no more children while we list them.
            first.suspend()
            family = [first, *first.children(recursive=True)]
            for member in family:
                _kill(member)
            self._process.wait(_PATIENCE)
            _wait_until("its children are gone", lambda: all(_is_dead(member) for member in family))
        self._forget()

    def restart(self) -> None:
        """Stop the server and start it again."""
        self.stop()
        self.start()

    def ensure_running(self) -> None:
        """Start the server where an earlier test has left it down."""
        if not self.running:
            self.start()

    def close(self) -> None:
        """Stop the server and remove its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make ready what the first start needs."""

    def _command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        raise NotImplementedError

    def _identity(self) -> dict[str, Any]:
        """Return the arguments of ``Popen`` that say as whom the server runs."""
        return {}

    def _answers(self) -> bool:
        """Say whether the server serves requests by now; an OSError means no."""
        raise NotImplementedError

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            if not self.running:
                raise RuntimeError(f"{self.name} ended while it started:\n{self._last_words()}")
            try:
                return self._answers()
            except OSError:
                return False

        try:
            _wait_until("it answers", ready)
        except TimeoutError:
            raise RuntimeError(f"{self.name} does not answer:\n{self._last_words()}") from None

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def _forget(self) -> None:
        """Let the guard go: process ids are used again, so it must not outlive the server."""
        guard, self._guard, self._process = self._guard, None, None
        if guard is not None:
            guard.communicate(b"\n")


def fresh_name() -> str:
    """Return a name no other caller of this process gets, fit for a database, a stream or a topic."""
    return f"t{next(_names)}"


def _guard_of(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that kills ``pid`` when our end of its input closes before we write a line."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r line || kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _is_dead(process: psutil.Process) -> bool:
    """Say whether a process runs no more; in a container nobody may ever collect it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _wait_until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {_PATIENCE:.0f} s until {what}")
        time.sleep(0.02)
