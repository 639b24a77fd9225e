"""The stores there are, each opened anew as often as a test likes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from tests.pages import code_of
from tests.services.redis import Redis

from riprap.state.stores import Store, open_store
from riprap.state.stores.files import FileStore
from riprap.state.stores.objects import RemoteFolder

# So short that values of a test have several.
CHUNK = 1000

# A folder whose packs are written again sooner than they would be.
SMALL_PACKS = """
from riprap.state.stores import Store, files, open_store
class SmallPacks(Store):
    def __new__(cls, url):
        files._WORTH_REWRITING = 50_000
        return open_store(url.partition("://")[2])
"""

Open = Callable[[], Store]
KINDS = ("folder", "memory", "fsspec", "rocksdb", "redis", "own")


def store_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store that other processes can open too."""
    match kind:
        case "folder":
            return str(tmp_path / "store")
        case "rocksdb":
            return f"rocksdb://{tmp_path}/rocks?chunk={CHUNK}"
        case "small packs":
            _module(request, tmp_path, "small_packs", SMALL_PACKS)
            return f"small_packs:SmallPacks://{tmp_path}/store"
        case "own":
            _module(request, tmp_path, "table_store", code_of("extending.md", "# table_store.py"))
            (tmp_path / "own").mkdir()
            return f"table_store:TableStore://{tmp_path}/own/store.db"
    redis: Redis = request.getfixturevalue("redis")
    return f"{redis.url}?prefix={redis.prefix()}&chunk={CHUNK}"


def _module(request: pytest.FixtureRequest, folder: Path, name: str, code: str) -> None:
    """Write a module where this process finds it and others do."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def opener(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens a store, always the same one, and closes it as it was opened before."""
    opened: list[Store] = []

    def reopen() -> Store:
        for store in opened:
            store.close()
        opened[:] = [_make(kind, request, tmp_path)]
        return opened[0]

    yield reopen
    for store in opened:
        store.close()
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def _make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match kind:
        case "memory":
            return open_store(f"memory://{tmp_path.name}/store")
        case "fsspec":
            root = str(tmp_path / "remote")
            return FileStore(root, root, RemoteFolder(root, LocalFileSystem(), root))
    urls = request.node.stash.setdefault(_URLS, {})
    if kind not in urls:
        urls[kind] = store_url(kind, request, tmp_path)
    return open_store(urls[kind])


_URLS = pytest.StashKey[dict[str, str]]()
