"""Files and folders that are ours alone: never reached through a link, refused if others could have had a hand in them.

Names in places that all users share (``/dev/shm``, ``/tmp``) can be guessed, so somebody else may have been there
first: with a link to what they want us to remove, or a folder whose content they exchange. What is opened here is
opened level by level and looked at once it is open, so nothing can be put in its place in between.

    /dev/shm / riprap-1000 / app-2026... / state / sums
    `- base   `- levels: each a folder, no link, of this user, mode 0700
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from riprap.errors import OwnershipError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Where a file that is open has a name, for libraries that take nothing but names.
_DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


@contextlib.contextmanager
def open_folder(path: str | Path, *, levels: int = 1, make: bool = False) -> Iterator[int]:
    """Open a folder whose last ``levels`` levels are this user's alone; yield its descriptor.

    Levels that are missing are made if asked for. What is above them is taken as it is: the system's, or named by the
    user.
    """
    # As text: it is done for every page, and pathlib takes longer than the system.
    level, *own = os.path.abspath(path).rsplit(os.sep, levels)
    opened = os.open(level or os.sep, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in own:
            level, outer = f"{level}{os.sep}{name}", opened
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=outer)
            try:
                opened = os.open(name, _FOLDER, dir_fd=outer)
            except OSError as error:
                # A link is reported as one loop too many, or as what it is not.
                _refuse(level, os.stat(name, dir_fd=outer, follow_symlinks=False), error)
                raise
            os.close(outer)
            _refuse(level, os.fstat(opened), None)
        yield opened
    finally:
        os.close(opened)


def make_folder(path: str | Path, *, levels: int = 1) -> None:
    """Make a folder whose last ``levels`` levels are this user's alone; refuse one that is somebody else's."""
    with open_folder(path, levels=levels, make=True):
        pass


def remove_folder(path: str | Path, *, levels: int = 1) -> None:
    """Remove a folder of ours with all that is in it, following no link; one that is not there, or not ours, stays."""
    whole = Path(path).absolute()
    with (
        contextlib.suppress(FileNotFoundError, OwnershipError),
        open_folder(whole.parent, levels=levels - 1) as parent,
    ):
        if is_ours(os.stat(whole.name, dir_fd=parent, follow_symlinks=False)):
            shutil.rmtree(whole.name, ignore_errors=True, dir_fd=parent)


def read_file(path: str | Path, *, secret: bool = False) -> bytes:
    """Read a file that nobody but this user, or root, could have written; nor read, if it is a secret."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & (0o077 if secret else 0o022):
            raise OwnershipError(
                f"{path} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}: others than "
                f"user {os.getuid()} could have {'read or ' if secret else ''}written it, so it is not used"
            )
        return file.read()


def name_of(descriptor: int) -> str:
    """Return a name under which a file that is open can be opened, whatever its own name leads to by now."""
    return f"{_DESCRIPTORS}/{descriptor}"


def is_ours(status: os.stat_result) -> bool:
    """Say whether something belongs to this user."""
    return status.st_uid == os.getuid()


def _refuse(level: str, status: os.stat_result, error: OSError | None) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        why = "is a link"
    elif not stat.S_ISDIR(status.st_mode):
        why = "is no folder"
    elif not is_ours(status):
        why = f"belongs to user {status.st_uid}"
    elif mode & 0o077:
        why = f"is open to others (mode {mode:04o})"
    else:
        return
    raise OwnershipError(
        f"{level} {why}, and must be a folder that user {os.getuid()} alone can use: others could exchange what is "
        "in it. Remove it if you may, or give another folder: app.run(pages=...) for state pages, runs= for runs"
    ) from error
