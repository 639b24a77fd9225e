"""One owner for each output folder: a lease in it, which the process that writes there keeps locked.

.riprap-lease    {"format": "riprap-output/1", "run": which run, "sink": which sink of it, "pid": which process}

Two writers of one folder would replace each other's files, which are named after batches. The lock goes with the
process that holds it, so a dead owner is in nobody's way. What the file says stays: by it a run that is taken up, or
asked for its rows after its end, can tell whether the folder is still its own. Spark, pandas and others take no name
that begins with a dot for data.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riprap.errors import RunError

NAME = ".riprap-lease"
FORMAT = "riprap-output/1"


class OutputLease:
    """The hold of one sink on its folder, until it is released or forgotten."""

    def __init__(self, folder: Path, run: str, descriptor: int) -> None:
        self._folder = folder
        self._run = run
        self._let_go = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def take(
        cls, folder: Path, *, run: str, sink: str, resume: bool, prepare: Callable[[], None] = lambda: None
    ) -> OutputLease:
        """Take hold of a folder; refuse one that a live process writes to, or that is not the run's any more.

        What ``prepare`` refuses stays with the run that had it, which may be taken up again.
        """
        path = folder / NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise RunError(f"cannot write to the output folder {folder}: {error}") from error
        try:
            _lock(descriptor, folder)
            before = _owner(path)
            if resume and before.get("run", run) != run:
                raise RunError(
                    f"the output folder {folder} is now that of {_said(before)}: what this run had written there may "
                    "be gone. Start a new run, with another folder"
                )
            prepare()
            owner = {"format": FORMAT, "run": run, "sink": sink, "pid": os.getpid()}
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(owner).encode())
        except BaseException:
            os.close(descriptor)
            raise
        return cls(folder, run, descriptor)

    @property
    def held(self) -> bool:
        """Whether nobody else may write to the folder."""
        return self._let_go.alive

    def check(self) -> None:
        """Refuse to take what is in the folder for this run's, once another has taken it over."""
        owner = _owner(self._folder / NAME)
        if not self.held and owner.get("run", self._run) != self._run:
            raise RunError(
                f"the output folder {self._folder} is now that of {_said(owner)}: the rows of this run are gone"
            )

    def release(self) -> None:
        """Let others have the folder."""
        self._let_go()


def refuse_held(folder: Path) -> None:
    """Refuse a folder that a live process writes to, and leave it as it is."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        _lock(descriptor, folder)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(
            f"the output folder {folder} is being written to by {_said(_owner(folder / NAME))}: two writers would "
            "replace each other's files. Choose another folder, or wait until that run has ended"
        ) from None
    except OSError as error:
        raise RunError(
            f"the output folder {folder} cannot be locked against other runs: {error}. Choose one on a file system "
            "that has locks"
        ) from error


def _owner(path: Path) -> dict[str, Any]:
    """Read what a lease says: nothing, where it is being written, or its owner died while it wrote."""
    try:
        owner = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _said(owner: dict[str, Any]) -> str:
    if not owner:
        return "another run"
    return f"sink '{owner.get('sink')}' of run {owner.get('run')} (process {owner.get('pid')})"
