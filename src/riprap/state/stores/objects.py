"""Packs behind any URL that fsspec knows: object stores, HDFS, a server's disk, memory.

The layout is that of a local folder. An object store shows an object when all of it has arrived, so there a pack is
written under its own name; elsewhere it is written as ``<pack>.part`` and moved. Whether a move is one step is up to
the file system; if it is not, a pack that is half there is seen as such by its size, and its values are not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from riprap.errors import CorruptValueError, StoreError
from riprap.state.stores.folders import folder_name
from riprap.state.stores.packs import HEAD_BYTES, Pack, PackName, PackPlace, index_length, read_index

_WHOLE_OBJECTS = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2", "tos"}
# Most indices are shorter than this, so one request reads them.
_FIRST_READ = 1 << 16


class RemoteFolder:
    """Packs in a folder of an fsspec file system."""

    lists_cheaply = False

    def __init__(self, where: str, system: Any, root: str) -> None:
        self._where = where
        self._system = system
        self._root = root.rstrip("/")
        protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
        self._whole = bool(protocols & _WHOLE_OBJECTS)

    @classmethod
    def at(cls, url: str, where: str) -> RemoteFolder:
        """Return the folder behind a URL; what its file system needs may be missing."""
        try:
            system, root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise StoreError(f"store {where}: fsspec lacks what this kind of URL needs: {error}") from error
        except ValueError as error:
            raise StoreError(
                f"store {where}: {error}. Give a folder, or a URL that begins with redis://, rocksdb:// or the name of "
                "a file system that fsspec knows, such as s3://"
            ) from error
        return cls(where, system, root)

    def entries(self) -> list[str]:
        names = [name for name, kind in self._listed(self._root) if kind == "directory"]
        return sorted(unquote(name) for name in names if not name.startswith("."))

    def packs(self, entry: str) -> set[PackName]:
        names = (PackName.parse(name) for name, _ in self._listed(self._path(entry)))
        return {name for name in names if name}

    def index(self, entry: str, name: PackName) -> Pack:
        path = self._path(entry, name)
        with self._our_errors("reading"):
            size = int(self._system.info(path)["size"])
            beginning = self._system.cat_file(path, 0, min(size, _FIRST_READ))
            needed = HEAD_BYTES + index_length(beginning, size, path)
            if needed > len(beginning):
                beginning = self._system.cat_file(path, 0, needed)
        return read_index(name, beginning, size, path)

    def read(self, entry: str, pack: Pack, place: PackPlace) -> pa.Buffer:
        path = self._path(entry, pack.name)
        offset, length = place
        with self._our_errors("reading"):
            # An empty range means the whole file to some of them.
            data = self._system.cat_file(path, offset, offset + length) if length else b""
        if len(data) != length:
            raise CorruptValueError(f"{path} ends after {offset + len(data):,} of {pack.size:,} bytes")
        return pa.py_buffer(data)

    def write(self, entry: str, pack: Pack, pieces: Sequence[memoryview]) -> None:
        path = self._path(entry, pack.name)
        content = b"".join(pieces)
        with self._our_errors("writing"):
            if self._whole:
                self._system.pipe_file(path, content)
                return
            part = f"{path}.part"
            self._system.makedirs(self._path(entry), exist_ok=True)
            try:
                self._system.pipe_file(part, content)
                self._system.mv(part, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._system.rm_file(part)
                raise

    def remove(self, entry: str, name: PackName) -> None:
        with self._our_errors("deleting"), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(entry, name))

    def tidy(self, entry: str) -> None:
        """Leave parts alone: nobody can tell whether their writers are alive. They go with the entry."""

    def drop(self, entry: str) -> None:
        with self._our_errors("deleting"), contextlib.suppress(FileNotFoundError):
            self._system.rm(self._path(entry), recursive=True)

    def _listed(self, folder: str) -> list[tuple[str, str]]:
        """List names and kinds, of what is there now and not when somebody looked last."""
        with self._our_errors("reading"):
            self._system.invalidate_cache(folder)
            try:
                items = self._system.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [(item["name"].rstrip("/").rpartition("/")[2], item["type"]) for item in items]

    def _path(self, entry: str, name: PackName | None = None) -> str:
        folder = f"{self._root}/{folder_name(entry)}"
        return f"{folder}/{name}" if name else folder

    @contextlib.contextmanager
    def _our_errors(self, doing: str) -> Iterator[None]:
        """Turn what a file system raises into our error: each has errors of its own."""
        try:
            yield
        except (OSError, StoreError, CorruptValueError):
            raise
        except Exception as error:
            raise StoreError(
                f"store {self._where}: {doing} failed: {type(error).__name__}: {error}. See whether it can be reached "
                "from here, and with which rights"
            ) from error
