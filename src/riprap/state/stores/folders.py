"""A local folder of packs: written under a temporary name, synced, renamed; read by mapping them into memory.

    <root>/<entry>/<pack>           the packs of an entry; the folders are 0700, the files 0600
    <root>/<entry>/.<pack>.part     one being written: its writer keeps it locked, and without a lock it is a dead one's
    <root>/.dropped-<token>/        an entry on its way out

A "/" in the name of an entry is "%2F" in the name of its folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from riprap.errors import CorruptValueError, StoreError
from riprap.state.stores.packs import HEAD_BYTES, Pack, PackName, PackPlace, index_length, read_index

_PART = ".part"
_DROPPED = ".dropped-"
# How many pieces the system takes in one call.
_PIECES = min(1024, os.sysconf("SC_IOV_MAX"))


class Folder(Protocol):
    """Where packs are. A pack or entry that is not there raises ``FileNotFoundError`` when it is read."""

    # Whether looking for new packs costs next to nothing, so that every get() may do it.
    lists_cheaply: bool

    def entries(self) -> list[str]:
        """List the entries that have packs."""

    def packs(self, entry: str) -> set[PackName]:
        """List the packs of an entry, none where it does not exist."""

    def index(self, entry: str, name: PackName) -> Pack:
        """Read the index of a pack."""

    def read(self, entry: str, pack: Pack, place: PackPlace) -> pa.Buffer:
        """Read some bytes of a pack."""

    def write(self, entry: str, pack: Pack, pieces: Sequence[memoryview]) -> None:
        """Write a pack; when this returns it is durable, and before that nobody sees it."""

    def remove(self, entry: str, name: PackName) -> None:
        """Remove a pack, if it is there."""

    def tidy(self, entry: str) -> None:
        """Remove what writers that died have left of an entry."""

    def drop(self, entry: str) -> None:
        """Remove an entry."""


class LocalFolder:
    """Packs on a disk of this host, or on one that is mounted."""

    lists_cheaply = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def make(self) -> None:
        """Make the folder if need be, private to the user."""
        # Given a mode and parents, mkdir leaves the mode of the parents open.
        self._root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.mkdir(mode=0o700, exist_ok=True)
        for leftover in self._root.glob(f"{_DROPPED}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def entries(self) -> list[str]:
        names = self._names(self._root)
        return sorted(
            unquote(name) for name in names if not name.startswith(".") and self.packs(unquote(name))
        )

    def packs(self, entry: str) -> set[PackName]:
        try:
            names = self._names(self._path(entry))
        except (FileNotFoundError, NotADirectoryError):
            # Without its root, a folder, this is not an empty store but a disk that is away.
            os.stat(os.path.join(self._root, "."))
            return set()
        return {name for name in map(PackName.parse, names) if name}

    def index(self, entry: str, name: PackName) -> Pack:
        path = self._path(entry, name)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                head = file.read(HEAD_BYTES)
                beginning = head + file.read(index_length(head, size, path))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise CorruptValueError(f"{path} cannot be read: {error.strerror}") from error
        return read_index(name, beginning, size, path)

    def read(self, entry: str, pack: Pack, place: PackPlace) -> pa.Buffer:
        path = self._path(entry, pack.name)
        offset, length = place
        # Looked at before it is mapped: touching what a file lacks would end the process.
        if (size := os.stat(path).st_size) != pack.size:
            raise CorruptValueError(f"{path} has {size:,} bytes instead of {pack.size:,}")
        with pa.memory_map(path) as file:
            file.seek(offset)
            return file.read_buffer(length)

    def write(self, entry: str, pack: Pack, pieces: Sequence[memoryview]) -> None:
        folder, path = self._path(entry), self._path(entry, pack.name)
        if not os.path.isdir(folder):
            os.stat(self._root)
            os.mkdir(folder, 0o700)
            _sync_folder(self._root)
        part = os.path.join(folder, f".{pack.name}{_PART}")
        descriptor = _create_locked(part)
        try:
            _write_all(descriptor, pieces)
            os.fsync(descriptor)
            os.rename(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        finally:
            os.close(descriptor)
        _sync_folder(folder)

    def remove(self, entry: str, name: PackName) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(entry, name))

    def tidy(self, entry: str) -> None:
        folder = self._path(entry)
        for name in self._names(folder) if os.path.isdir(folder) else ():
            if name.endswith(_PART):
                with contextlib.suppress(OSError):
                    _remove_unlocked(os.path.join(folder, name))

    def drop(self, entry: str) -> None:
        gone = self._root / f"{_DROPPED}{uuid.uuid4().hex[:12]}"
        try:
            # In one step, so that nobody sees half an entry.
            os.rename(self._path(entry), gone)
        except FileNotFoundError:
            os.stat(self._root)
            return
        shutil.rmtree(gone, ignore_errors=True)

    def _names(self, folder: str | Path) -> Collection[str]:
        return os.listdir(folder)

    def _path(self, entry: str, name: PackName | None = None) -> str:
        folder = os.path.join(self._root, folder_name(entry))
        return os.path.join(folder, str(name)) if name else folder


def folder_name(entry: str) -> str:
    """Return the name of an entry's folder; a name that begins with a dot is none of an entry."""
    name = quote(entry, safe="")
    return "%2E" + name[1:] if name.startswith(".") else name


def trouble(where: str, doing: str, error: OSError) -> StoreError:
    """Say what a file system's error means for the store, and what to do."""
    hints = {
        errno.ENOSPC: "Free some space, or name a store with more",
        errno.EDQUOT: "Free some space, or ask for a larger quota",
        errno.EROFS: "Mount it for writing, or name another store",
        errno.EACCES: "Give this user the right to write there, or name another store",
        errno.EPERM: "Give this user the right to write there, or name another store",
        errno.ENOENT: "Is its disk mounted? The folder was there, and is made only when a store is opened",
        errno.ENOTDIR: "Name a folder",
        errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    }
    hint = hints.get(error.errno or 0, "See whether its disk is well")
    return StoreError(f"store {where}: {doing} failed: {error.strerror or error}. {hint}")


def _create_locked(path: str) -> int:
    """Create a file and lock it; who tidies up may come in between, and then it is created again."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Where there are no locks nobody gets one, so nobody removes the file either.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, pieces: Sequence[memoryview]) -> None:
    left = list(pieces)
    first = 0
    while first < len(left):
        written = os.writev(descriptor, left[first : first + _PIECES])
        while first < len(left) and written >= len(left[first]):
            written -= len(left[first])
            first += 1
        if written:
            left[first] = left[first][written:]


def _sync_folder(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
