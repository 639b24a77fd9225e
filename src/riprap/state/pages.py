"""Pages in host memory: a folder of immutable Arrow files that any process of the host can map.

The folder is in ``/dev/shm`` where there is one, else in the temporary folder. It is private to the user, belongs to
one run, has a limit, and holds a *lease*: a file the owning driver keeps locked. A folder whose lease nobody holds is
a dead run's; ``sweep`` removes it, unless the run may still be taken up again.

A page is written whole under a temporary name (a full ``/dev/shm`` is then an error here, and not a SIGBUS in whoever
maps the page), and renamed. It is never changed afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from riprap.errors import FormatError, MissingPageError, PageSpaceError

LEASE = "lease"
FORMAT = b"riprap-page/1"
_SUFFIX = ".page"
DEFAULT_LIMIT = 4 << 30
_KEEP_DEAD_SECONDS = 3600.0
# Containers often have 64 MB of shared memory, too little to be of use.
_LARGE_ENOUGH = 1 << 30
_SMALL = 1 << 18


@dataclass(frozen=True, slots=True)
class PageStore:
    """The pages of one run on this host. A small value: tasks carry it, and open pages by name."""

    folder: str
    limit: int = DEFAULT_LIMIT

    def write(self, name: str, page: pa.RecordBatch) -> str:
        """Write a page and return its name."""
        page = page.replace_schema_metadata({b"format": FORMAT})
        self._check_limit(name, page.nbytes)
        temporary = os.path.join(self.folder, f".{name}.{os.getpid()}")
        try:
            if page.nbytes < _SMALL:
                # As one piece: a page has a dozen buffers, and each would be a call of its own.
                whole = pa.BufferOutputStream()
                _write(whole, page)
                with open(temporary, "wb", opener=_private) as file:
                    file.write(whole.getvalue())
            else:
                os.close(_private(temporary, os.O_WRONLY | os.O_CREAT))
                with pa.OSFile(temporary, "wb") as large:
                    _write(large, page)
            os.rename(temporary, self._path(name))
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PageSpaceError(
                    f"no space in {self.folder} for page '{name}' of {page.nbytes:,} bytes. Free some, or give "
                    "app.run(pages=...) another folder"
                ) from error
            raise
        return name

    def read(self, name: str) -> pa.RecordBatch:
        """Map a page. A page that is not there is an error, never an empty state."""
        path = self._path(name)
        try:
            with pa.memory_map(path) as file:
                reader = pa.ipc.open_file(file)
                if (reader.schema.metadata or {}).get(b"format") != FORMAT:
                    raise FormatError(
                        f"page {path} has format {reader.schema.metadata}, this version reads {FORMAT!r}"
                    )
                return reader.get_batch(0)
        except FileNotFoundError:
            raise MissingPageError(
                f"state page '{name}' is not in {self.folder}, though the ledger names it. It may be on another "
                "host, or the host's memory was cleared. On several hosts, give app.run(pages=...) a folder they share"
            ) from None
        except pa.ArrowInvalid as error:
            raise MissingPageError(f"state page '{name}' in {self.folder} cannot be read: {error}") from error

    def size(self, name: str) -> int:
        """Return a page's size in bytes, 0 when it is gone."""
        try:
            return os.stat(self._path(name)).st_size
        except FileNotFoundError:
            return 0

    def used(self) -> int:
        """Return the bytes all pages of the run take on this host."""
        with os.scandir(self.folder) as entries:
            # A page may be collected while we look.
            return sum(self.size(e.name.removesuffix(_SUFFIX)) for e in entries if e.name.endswith(_SUFFIX))

    def collect(self, keep: Callable[[], Collection[str]]) -> int:
        """Remove every page that ``keep`` does not name, half-written ones included; return how many.

        It is asked once the folder has been looked at: a page that comes after that is none of our business.
        """
        there = os.listdir(self.folder)
        names = {n + _SUFFIX for n in keep()} | {LEASE}
        removed = 0
        for name in there:
            # A page that is kept may still be on its way, under its temporary name.
            coming = name.startswith(".") and name[1:].rpartition(".")[0] + _SUFFIX in names
            if name not in names and not coming:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, name))
                    removed += 1
        return removed

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name + _SUFFIX)

    def _check_limit(self, name: str, size: int) -> None:
        used = self.used()
        if used + size > self.limit:
            raise PageSpaceError(
                f"state pages take {used:,} bytes in {self.folder} and page '{name}' of {size:,} more would pass "
                f"the limit of {self.limit:,}. Give app.run(page_limit=...) more, or make windows smaller"
            )


def _write(sink: pa.NativeFile, page: pa.RecordBatch) -> None:
    with pa.ipc.new_file(sink, page.schema) as writer:
        writer.write_batch(page)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_TRUNC, 0o600)


class Lease:
    """A driver's hold on a page folder, ended by :meth:`release` or by the process's death."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path, run_folder: Path) -> Lease:
        """Make the page folder if need be and hold it for the run in ``run_folder``."""
        # Given a mode and parents, mkdir leaves the mode of the parents open.
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        file = open(folder / LEASE, "a+")  # noqa: SIM115  (held for the life of the run)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise PageSpaceError(f"{folder} belongs to a run that is still alive: {run_folder}") from None
        file.truncate(0)
        file.write(json.dumps({"run": str(run_folder), "pid": os.getpid()}))
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Let go of the folder; the next sweep may judge it."""
        self._file.close()


def page_root() -> Path:
    """Return where page folders go on this host: shared memory where it is large enough, else the temporary folder."""
    shared = Path("/dev/shm")
    usable = (
        shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).total >= _LARGE_ENOUGH
    )
    base = shared if usable else Path(tempfile.gettempdir())
    return base / f"riprap-{os.getuid()}"


def limit_for(root: Path, asked: int | None) -> int:
    """Return the page limit: what was asked for, or the default, as far as half the free space allows."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if asked is None:
        return min(DEFAULT_LIMIT, free // 2)
    if asked > free:
        raise PageSpaceError(
            f"page_limit={asked:,} bytes, but {root} has {free:,} free. Ask for less, or free some"
        )
    return asked


def sweep(root: Path, *, clock: Callable[[], float] = time.time) -> list[Path]:
    """Remove the page folders of dead runs: ended, without a run folder, or dead for an hour."""
    removed = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        with contextlib.ExitStack() as held:
            try:
                lease = held.enter_context(open(folder / LEASE))
                # Held until the folder is gone, so that nobody takes it up in between.
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                run_folder = _run_folder(lease.read()) or folder
            except (BlockingIOError, NotADirectoryError):
                continue
            except FileNotFoundError:
                # One just being made, or the rest of one: its age tells.
                run_folder = folder
            # A run that crashed can be taken up again from its run folder, so its pages wait a while.
            abandoned = clock() - _last_change(folder) > _KEEP_DEAD_SECONDS
            if abandoned or not run_folder.is_dir() or (run_folder / "ended").exists():
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _run_folder(lease: str) -> Path | None:
    try:
        return Path(json.loads(lease)["run"])
    except (ValueError, KeyError, TypeError):
        return None


def _last_change(folder: Path) -> float:
    """Return when anything came into a page folder or its stores, or went: a live run changes them every batch."""
    found = [0.0]
    # Others sweep too: what is gone is left out.
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.stat(path).st_mtime)
    return max(found)
