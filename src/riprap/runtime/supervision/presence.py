"""Which driver processes a run has: each says so in a file of the run's folder, and holds a lock beside it.

processes/main.lock     held by the process: there is never a second one beside it
processes/main.json     {"format": "riprap-process/1", "pid": 17, "started": 1700000000.0,
                         "pages": {"sums": ["/dev/shm/...", ...]}}      the page folders of its elements
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from riprap.runtime.supervision.process import lives
from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-process/1"
FOLDER = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A driver process that has said it is there, and the page folders of its elements."""

    process: str
    pid: int
    started: float
    pages: Mapping[str, Sequence[str]]

    def alive(self) -> psutil.Process | None:
        """Return the process, unless it is gone and its number belongs to another."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.started and lives(process):
                return process
        return None


def announce(run: Path, process: str, pages: Mapping[str, Sequence[str]]) -> IO[str]:
    """Wait until a process of that name before us is gone, say that we are there, and return the lock to hold."""
    folder = run / FOLDER
    lock = open(folder / f"{process}.lock", "w")  # noqa: SIM115  (held for the life of the process)
    fcntl.flock(lock, fcntl.LOCK_EX)
    about = {
        "format": FORMAT,
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "pages": {element: list(folders) for element, folders in pages.items()},
    }
    save_json(folder / f"{process}.json", about, synced=False)
    return lock


def withdraw(run: Path, process: str) -> None:
    """Say no more that we are there."""
    (run / FOLDER / f"{process}.json").unlink(missing_ok=True)


def find_presences(run: Path) -> list[Presence]:
    """List the driver processes that said they are there, alive or not."""
    presences = []
    for path in sorted((run / FOLDER).glob("*.json")):
        entries = {"pid": int, "started": int | float, "pages": dict}
        data = load_json(path, FORMAT, entries, remedy="Remove it, once no process of the run is alive")
        if data is not None:
            presences.append(Presence(process=path.stem, **{name: data[name] for name in entries}))
    return presences
