"""Who has a run and its page folder: leases, which a driver keeps locked for as long as it lives.

    <run folder>/lease      there is never a second driver beside the first, whatever becomes of the pages
    <page folder>/lease     the sweep leaves the folder alone

In both: {"run": "/home/me/runs/app/...", "pid": 17, "host": "here"}

A page folder whose lease nobody holds is a dead run's; ``sweep`` removes it, unless the run may still be taken up
again. What has no lease is not ours to remove.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from riprap.errors import OwnershipError, RunError
from riprap.ownership import is_ours, open_folder
from riprap.state.pages import LEASE

_KEEP_DEAD_SECONDS = 3600.0
# For so long who only looks (a sweep, `riprap stop`, a start that is about to be refused) may have a lock.
GLANCE_SECONDS = 1.0
_POLL_SECONDS = 0.005
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Lease:
    """A driver's hold on a run and on its page folder, ended by :meth:`release` or by the process's death."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    @classmethod
    def take(cls, folder: Path | None, run_folder: Path) -> Lease:
        """Hold the run in ``run_folder``, and its page folder, which is made if need be; None: the user named another,
        which nobody sweeps."""
        lease = cls([])
        try:
            lease._hold_run(run_folder)
            if folder is not None:
                lease._hold_pages(folder, run_folder)
        except BaseException:
            lease.release()
            raise
        return lease

    def _hold_run(self, run_folder: Path) -> None:
        run = os.open(run_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_run(run_folder, os.fstat(run))
            descriptor = self._open(run)
        finally:
            os.close(run)
        if not lock(descriptor, wait=GLANCE_SECONDS):
            holder = read_lease(descriptor)
            raise RunError(
                f"the run in {run_folder} is alive: process {holder.get('pid')} on {holder.get('host')} holds it. "
                "End it there first, or start a new run without folder="
            )
        _sign(descriptor, run_folder)

    def _hold_pages(self, folder: Path, run_folder: Path) -> None:
        """Hold the page folder of a run that is held: no other driver has it, but a sweep may, and may remove it."""
        deadline = time.monotonic() + GLANCE_SECONDS
        while True:
            try:
                with open_folder(folder, levels=2, make=True) as pages:
                    descriptor = self._open(pages)
            except FileNotFoundError:
                if time.monotonic() >= deadline:
                    raise
                continue
            if not lock(descriptor, wait=GLANCE_SECONDS):
                raise RunError(
                    f"the page folder {folder} is being cleared away by another process. Try again in a moment"
                )
            if os.fstat(descriptor).st_nlink:
                return _sign(descriptor, run_folder)
            os.close(self._descriptors.pop())

    def _open(self, folder: int) -> int:
        descriptor = os.open(
            LEASE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        self._descriptors.append(descriptor)
        return descriptor

    def release(self) -> None:
        """Let go of the run; the next sweep may judge its page folder."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _sign(lease: int, run_folder: Path) -> None:
    about = {"run": str(run_folder), "pid": os.getpid(), "host": socket.gethostname()}
    os.ftruncate(lease, 0)
    os.pwrite(lease, json.dumps(about).encode(), 0)


def _check_run(folder: Path, status: os.stat_result) -> None:
    """Refuse a run folder in which others could have put a plan, a key or a ledger of theirs."""
    ours = is_ours(status)
    if not ours or status.st_mode & 0o022:
        remedy = (
            f"If you trust what is in it, shut them out: chmod go-w {folder}"
            if ours
            else "Take the run up as its own user, or give app.run(runs=...) a folder of your own"
        )
        raise OwnershipError(
            f"the run folder {folder} belongs to user {status.st_uid} and has mode "
            f"{stat.S_IMODE(status.st_mode):04o}: others than user {os.getuid()} could have changed it. {remedy}"
        )


def lock(descriptor: int, *, shared: bool = False, wait: float = 0.0, needed: bool = False) -> bool:
    """Lock a file for as long as it is open; say whether nobody else has it, after so many seconds.

    Where there are no locks nobody ever has one; if one is needed, that is an error.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
            continue
        except OSError as error:
            if needed or error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
                raise
        return True


def is_alive(run_folder: Path) -> bool:
    """Say whether a process has hold of a run, by its folder."""
    try:
        with (run_folder / LEASE).open() as lease:
            return not lock(lease.fileno(), shared=True)
    except FileNotFoundError:
        return False


def sweep(root: Path, *, clock: Callable[[], float] = time.time) -> list[Path]:
    """Remove the page folders of dead runs: ended, without a run folder, or dead for an hour.

    Only what is this user's and carries our lease, and nothing through a link. A root that is not ours has none.
    """
    removed = []
    with contextlib.suppress(FileNotFoundError, OwnershipError), open_folder(root) as opened:
        for name in sorted(os.listdir(opened)):
            with _abandoned(opened, name, clock) as folder:
                if folder is not None:
                    _remove(opened, name, folder)
                    removed.append(root / name)
    return removed


@contextlib.contextmanager
def _abandoned(root: int, name: str, clock: Callable[[], float]) -> Iterator[int | None]:
    """Open a page folder if it is a dead run's, and hold its lease, so that nobody takes it up in between."""
    with contextlib.ExitStack() as held:

        def opened(name: str, flags: int, folder: int) -> int:
            descriptor = os.open(name, _READ | flags, dir_fd=folder)
            held.callback(os.close, descriptor)
            return descriptor

        dead = None
        # What cannot be opened is no folder, a link, just being made, or gone: others sweep too.
        with contextlib.suppress(OSError):
            folder = opened(name, os.O_DIRECTORY, root)
            lease = opened(LEASE, os.O_NONBLOCK, folder)
            ours = is_ours(os.fstat(folder)) and is_ours(os.fstat(lease))
            if ours and stat.S_ISREG(os.fstat(lease).st_mode) and lock(lease):
                run = read_lease(lease).get("run")
                # A run that crashed can be taken up again from its run folder, so its pages wait a while.
                abandoned = clock() - _last_change(folder) > _KEEP_DEAD_SECONDS
                over = run is not None and (not Path(run).is_dir() or (Path(run) / "ended").exists())
                dead = folder if abandoned or over else None
        yield dead


def _remove(root: int, name: str, folder: int) -> None:
    """Remove a page folder; its lease last, for without one nobody would dare to remove the rest."""
    with os.scandir(folder) as entries:
        others = [entry for entry in entries if entry.name != LEASE]
    for entry in others:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.name, ignore_errors=True, dir_fd=folder)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.unlink(LEASE, dir_fd=folder)
        os.rmdir(name, dir_fd=root)


def read_lease(lease: int) -> dict[str, Any]:
    """Read what a lease says: nothing, if it is being written, or was cut short."""
    try:
        holder = json.loads(os.pread(lease, 1 << 16, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _last_change(folder: int) -> float:
    """Return when anything came into a page folder or its stores, or went: a live run changes them every batch."""
    return max(os.fstat(inner).st_mtime for _, _, _, inner in os.fwalk(".", dir_fd=folder))
