"""Pages in host memory: a folder of immutable Arrow files that any process of the host can map.

The folder is in ``/dev/shm`` where there is one, else in the temporary folder. It is private to the user
(``riprap.ownership``: everything here opens it level by level), belongs to one run (``riprap.state.leases``), and has a
limit.

A page is written whole under a temporary name (a full ``/dev/shm`` is then an error here, and not a SIGBUS in whoever
maps the page), and renamed. It is never changed afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from riprap.errors import FormatError, MissingPageError, PageSpaceError
from riprap.ownership import make_folder, name_of, open_folder

LEASE = "lease"
FORMAT = b"riprap-page/1"
_SUFFIX = ".page"
DEFAULT_LIMIT = 4 << 30
# Containers often have 64 MB of shared memory, too little to be of use.
_LARGE_ENOUGH = 1 << 30
_SMALL = 1 << 18
# To look at all pages takes longer than to write a small one: after a look, a process writes one in so many parts of
# what was left before it looks again.
_LOOKS = 64
_allowance: dict[PageStore, int] = {}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PageStore:
    """The pages of one run on this host. A small value: tasks carry it, and open pages by name.

    The last ``levels`` levels of the folder are the user's alone, or it is refused.
    """

    folder: str
    limit: int = DEFAULT_LIMIT
    levels: int = 1

    def make(self) -> None:
        """Make the folder, if it is not there."""
        make_folder(self.folder, levels=self.levels)

    def write(self, name: str, page: pa.RecordBatch) -> str:
        """Write a page and return its name."""
        page = page.replace_schema_metadata({b"format": FORMAT})
        temporary = f".{name}.{os.getpid()}"
        with self._opened() as folder:
            self._check_limit(folder, name, page.nbytes)
            try:
                # What a process of the same number has left.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                with open(os.open(temporary, _CREATE, 0o600, dir_fd=folder), "wb") as file:
                    if page.nbytes < _SMALL:
                        # As one piece: a page has a dozen buffers, and each would be a call of its own.
                        whole = pa.BufferOutputStream()
                        _write(whole, page)
                        file.write(whole.getvalue())
                    else:
                        with pa.OSFile(name_of(file.fileno()), "wb") as large:
                            _write(large, page)
                os.rename(temporary, name + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise PageSpaceError(
                        f"no space in {self.folder} for page '{name}' of {page.nbytes:,} bytes. Free some, or give "
                        "app.run(pages=...) another folder"
                    ) from error
                raise
        return name

    def read(self, name: str) -> pa.RecordBatch:
        """Map a page. A page that is not there is an error, never an empty state."""
        try:
            with (
                self._opened() as folder,
                open(os.open(name + _SUFFIX, _READ, dir_fd=folder), "rb") as opened,
                pa.memory_map(name_of(opened.fileno())) as file,
            ):
                # From a buffer: out of a file Arrow reads in a thread of its own, which every page would wait for.
                reader = pa.ipc.open_file(file.read_buffer())
                if (reader.schema.metadata or {}).get(b"format") != FORMAT:
                    path = os.path.join(self.folder, name + _SUFFIX)
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

    def link(self, name: str, other: PageStore, page: str) -> None:
        """Take in a page of another store of this host under a name, without copying it.

        That it is not there is a FileNotFoundError, that it cannot be linked another OSError.
        """
        with self._opened() as folder, other._opened() as there:
            os.link(
                page + _SUFFIX, name + _SUFFIX, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False
            )

    def size(self, name: str) -> int:
        """Return a page's size in bytes, 0 when it is gone."""
        try:
            with self._opened() as folder:
                return os.stat(name + _SUFFIX, dir_fd=folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0

    def used(self) -> int:
        """Return the bytes all pages of the run take on this host."""
        with self._opened() as folder:
            return _used(folder)

    def collect(self, keep: Callable[[], Collection[str]], *, before: str | None = None) -> int:
        """Remove every page that ``keep`` does not name, half-written ones included; return how many.

        Those whose names do not sort ``before`` one stay.

        It is asked once the folder has been looked at: a page that comes after that is none of our business.
        """
        with self._opened() as folder:
            listed = os.listdir(folder)
            names = {n + _SUFFIX for n in keep()} | {LEASE}
            removed = 0
            for name in listed:
                # A page that is kept may still be on its way, under its temporary name.
                coming = name.startswith(".") and name[1:].rpartition(".")[0] + _SUFFIX in names
                newer = before is not None and name.lstrip(".") >= before
                if name not in names and not coming and not newer:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                        removed += 1
        return removed

    def _opened(self) -> contextlib.AbstractContextManager[int]:
        return open_folder(self.folder, levels=self.levels)

    def _check_limit(self, folder: int, name: str, size: int) -> None:
        left = _allowance.get(self, 0) - size
        if left >= 0:
            _allowance[self] = left
            return
        used = _used(folder)
        _allowance[self] = (self.limit - used) // _LOOKS - size
        if used + size > self.limit:
            raise PageSpaceError(
                f"state pages take {used:,} bytes in {self.folder} and page '{name}' of {size:,} more would pass "
                f"the limit of {self.limit:,}. Give app.run(page_limit=...) more, or make windows smaller"
            )


def _write(sink: pa.NativeFile, page: pa.RecordBatch) -> None:
    with pa.ipc.new_file(sink, page.schema) as writer:
        writer.write_batch(page)


def _used(folder: int) -> int:
    used = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                # A page may be collected while we look.
                with contextlib.suppress(FileNotFoundError):
                    used += entry.stat(follow_symlinks=False).st_size
    return used


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
