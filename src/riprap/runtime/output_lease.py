"""One owner for each output folder: a lease in it, which the process that writes there keeps locked.

.riprap-lease    {"format": "riprap-output/1", "run": which run, "sink": which sink of it, "pid": which process}

Two writers of one folder would replace each other's files, which are named after batches. The lock goes with the
process that holds it, so a dead owner is in nobody's way. What the file says stays: by it a run that is taken up, or
asked for its rows after its end, can tell whether the folder is still its own. Spark, pandas and others take no name
that begins with a dot for data.
"""

from __future__ import annotations

import json
import os
import weakref
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap.state.leases import GLANCE_SECONDS, lock, read_lease

NAME = ".riprap-lease"
FORMAT = "riprap-output/1"


class OutputLease:
    """The hold of one sink on its folder, until it is released or forgotten."""

    def __init__(self, folder: Path, run: str, sink: str, descriptor: int) -> None:
        self._folder = folder
        self._run = run
        self._sink = sink
        self._descriptor = descriptor
        self._let_go = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def take(cls, folder: Path, *, run: str, sink: str, resume: bool) -> OutputLease:
        """Take hold of a folder; refuse one that a live process writes to, or that is not the run's any more.

        Until it is signed, the folder stays that of the run that had it, which may be taken up again.
        """
        descriptor = _open(folder, os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor, folder)
            before = read_lease(descriptor)
            if resume and before.get("run", run) != run:
                raise RunError(
                    f"the output folder {folder} is now that of {_said(before)}: what this run had written there may "
                    "be gone. Start a new run, with another folder"
                )
        except BaseException:
            os.close(descriptor)
            raise
        return cls(folder, run, sink, descriptor)

    def sign(self) -> None:
        """Write down whose the folder is from now on."""
        assert self.held
        owner = {"format": FORMAT, "run": self._run, "sink": self._sink, "pid": os.getpid()}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(owner).encode(), 0)

    @property
    def held(self) -> bool:
        """Whether nobody else may write to the folder."""
        return self._let_go.alive

    def check(self) -> None:
        """Refuse to take what is in the folder for this run's, once another has taken it over."""
        if self.held:
            return
        owner = _owner(self._folder)
        if owner.get("run", self._run) != self._run:
            raise RunError(
                f"the output folder {self._folder} is now that of {_said(owner)}: the rows of this run are gone"
            )

    def release(self) -> None:
        """Let others have the folder."""
        self._let_go()


def refuse_held(folder: Path) -> None:
    """Refuse a folder that a live process writes to, and leave it as it is."""
    if not os.path.lexists(folder / NAME):
        return
    descriptor = _open(folder, os.O_RDWR)
    try:
        _lock(descriptor, folder)
    finally:
        os.close(descriptor)


def _open(folder: Path, flags: int) -> int:
    path = folder / NAME
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        owner = path.lstat().st_uid if isinstance(error, PermissionError) and os.path.lexists(path) else None
        if owner is None or owner == os.getuid():
            raise RunError(f"cannot write to the output folder {folder}: {error}") from error
        raise RunError(
            f"the output folder {folder} is that of a run of user {owner}. Choose another folder; or, once that run "
            f"has ended, remove {path}"
        ) from error


def _lock(descriptor: int, folder: Path) -> None:
    try:
        if not lock(descriptor, wait=GLANCE_SECONDS, needed=True):
            raise RunError(
                f"the output folder {folder} is being written to by {_said(read_lease(descriptor))}: two writers would "
                "replace each other's files. Choose another folder, or wait until that run has ended"
            )
    except OSError as error:
        raise RunError(
            f"the output folder {folder} cannot be locked against other runs: {error}. Choose one on a file system "
            "that has locks"
        ) from error


def _owner(folder: Path) -> dict[str, Any]:
    if not os.path.lexists(folder / NAME):
        return {}
    descriptor = _open(folder, os.O_RDONLY)
    try:
        return read_lease(descriptor)
    finally:
        os.close(descriptor)


def _said(owner: dict[str, Any]) -> str:
    if not owner:
        return "another run"
    return f"sink '{owner.get('sink')}' of run {owner.get('run')} (process {owner.get('pid')})"
