"""Which store a URL means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pyarrow as pa

from riprap.errors import RiprapError, StoreError
from riprap.state.stores import redis_store, rocks
from riprap.state.stores.base import Buffer, Store
from riprap.state.stores.files import FileStore
from riprap.state.stores.folders import LocalFolder, trouble
from riprap.state.stores.objects import RemoteFolder

_OWN = ("prefix", "chunk")
_USER = re.compile(r"(?<=//)[^/@]*@")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_SIZE = re.compile(r"(\d+) ?([kmg]?)b?", re.IGNORECASE)


def open_store(url: str | Path, *, readonly: bool = False) -> Store:
    """Open a store: a folder, a URL that fsspec knows, ``rocksdb:///folder``, ``redis://host:port/0``, or a user's own.

    open_store("checkpoints")                                  # made if need be
    open_store("s3://bucket/checkpoints")
    open_store("redis://localhost:6379/0?prefix=quotes&chunk=8MB")
    open_store("table_store:TableStore:///var/checkpoints.db")  # module:Class, derived from rr.Store
    """
    text, where = str(url), describe_store(url)
    scheme = text.partition("://")[0] if "://" in text else ""
    store: Store
    if scheme in ("", "file", "local"):
        path = _local_path(text, where)
        folder = LocalFolder(path)
        if not readonly:
            try:
                folder.make()
            except OSError as error:
                raise trouble(where, "opening", error) from error
        store = FileStore(path.as_uri(), where, folder)
    elif scheme == "rocksdb":
        plain, settings = _own_settings(text)
        if "prefix" in settings:
            raise StoreError(f"store {where}: RocksDB has no prefix: each database is a folder of its own")
        path = _local_path(plain, where)
        chunk = _size(settings, where, rocks.DEFAULT_CHUNK)
        store = rocks.RocksStore(text, where, str(path), chunk=chunk, readonly=readonly)
    elif scheme in ("redis", "rediss"):
        plain, settings = _own_settings(text)
        prefix = settings.get("prefix") or redis_store.DEFAULT_PREFIX
        chunk = _size(settings, where, redis_store.DEFAULT_CHUNK)
        store = redis_store.RedisStore(text, where, plain, prefix=prefix, chunk=chunk)
    elif _CLASS.fullmatch(scheme):
        store = _own_store(scheme, where, text)
    else:
        store = FileStore(text, where, RemoteFolder.at(text, where))
    return ReadingStore(store, where) if readonly else store


def describe_store(url: str | Path) -> str:
    """Return a store's URL for messages, without passwords; a local folder is its path."""
    text = str(url)
    if "://" not in text:
        return text
    if text.startswith(("file://", "local://")):
        return unquote(urlsplit(text).path) or text
    _, settings = _own_settings(text)
    # Anything in the query that is not ours may be a secret.
    shown = _USER.sub("", text.partition("?")[0])
    own = {name: value for name, value in settings.items() if name in _OWN}
    return f"{shown}?{urlencode(own)}" if own else shown


def _own_store(name: str, where: str, text: str) -> Store:
    """Open a store of the user's, whose class ``module:Class`` names."""
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store {where}: {error}. Put the module where Python finds it on every host: see PYTHONPATH"
        ) from error
    except Exception as error:
        raise StoreError(f"store {where}: module {module} cannot be imported: {error!r}") from error
    if not isinstance(kind, type) or not issubclass(kind, Store):
        raise StoreError(
            f"store {where}: module {module} has no class {attribute} that is derived from rr.Store"
        )
    try:
        return kind(text)
    except RiprapError:
        raise
    except Exception as error:
        raise StoreError(f"store {where}: {attribute} cannot be opened: {error!r}") from error


def _local_path(text: str, where: str) -> Path:
    if "://" not in text:
        return Path(text).absolute()
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StoreError(f"store {where}: give the whole path after three slashes: {parts.scheme}:///folder")
    return Path(unquote(parts.path))


def _own_settings(url: str) -> tuple[str, dict[str, str]]:
    """Part a URL from the settings in its query that are ours."""
    plain, _, text = url.partition("?")
    query = parse_qsl(text, keep_blank_values=True)
    theirs = urlencode([(name, value) for name, value in query if name not in _OWN])
    own = {name: value for name, value in query if name in _OWN}
    return (f"{plain}?{theirs}" if theirs else plain), own


def _size(settings: dict[str, str], where: str, default: int) -> int:
    if "chunk" not in settings:
        return default
    match = _SIZE.fullmatch(settings["chunk"])
    if not match or not int(match[1]):
        raise StoreError(f"store {where}: chunk={settings['chunk']}: give a size such as 8MB")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]


class ReadingStore(Store):
    """A store opened with ``readonly=True``."""

    def __init__(self, store: Store, where: str) -> None:
        self.url = store.url
        self._store = store
        self._where = where

    def put(self, entry: str, values: Mapping[str, Buffer]) -> None:
        raise self._refusal()

    def get(self, entry: str, key: str) -> pa.Buffer:
        return self._store.get(entry, key)

    def keys(self, entry: str) -> list[str]:
        return self._store.keys(entry)

    def damage(self, entry: str) -> list[str]:
        return self._store.damage(entry)

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        raise self._refusal()

    def entries(self) -> list[str]:
        return self._store.entries()

    def drop(self, entry: str) -> None:
        raise self._refusal()

    def close(self) -> None:
        self._store.close()

    def _refusal(self) -> StoreError:
        return StoreError(f"store {self._where} was opened for reading only. Open it without readonly=True")
