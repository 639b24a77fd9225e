"""What a durable store is: entries, one for each operator, with values by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa

Buffer: TypeAlias = bytes | memoryview | pa.Buffer

_KEY = re.compile(r"[A-Za-z0-9._-]{1,200}")
_ENTRY = re.compile(r"[A-Za-z0-9._/-]{1,200}")


class Store:
    """Values by entry and key. What :meth:`put` has returned from is durable, each value whole or not there.

    One process at a time writes to an entry; any number may read it meanwhile. Threads may share a store. Entries and
    keys are letters, digits, ``.``, ``_`` and ``-``; entries have ``/`` besides.

    Derive a store of your own from this class, in a module that Python finds. ``store="module:Class://place"`` then
    makes one with that text, in every process that needs it. Raise :class:`riprap.StoreError` when the store cannot be
    used now: what was to be saved is saved again later.
    """

    url: str

    def __init__(self, url: str) -> None:
        """Take the address by which another process can open the store, passwords included."""
        self.url = url

    def put(self, entry: str, values: Mapping[str, Buffer]) -> None:
        """Write many values at once; a key that is there gets its new value."""
        raise NotImplementedError

    def get(self, entry: str, key: str) -> pa.Buffer:
        """Return a value. Raise ``KeyError`` where there is none, ``CorruptValueError`` where it is damaged."""
        raise NotImplementedError

    def keys(self, entry: str) -> list[str]:
        """List the keys of an entry in order, none where it does not exist."""
        raise NotImplementedError

    def damage(self, entry: str) -> list[str]:
        """Say what of an entry is damaged so that nobody can tell which keys it had."""
        return []

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        """Remove values; keys that are not there are fine."""
        raise NotImplementedError

    def entries(self) -> list[str]:
        """List the entries that hold anything, in order."""
        raise NotImplementedError

    def drop(self, entry: str) -> None:
        """Remove an entry with all its values, damaged ones included."""
        self.delete(entry, self.keys(entry))

    def close(self) -> None:
        """Let go of files and connections. Buffers that were read stay as they are."""


def check_entry(entry: str) -> str:
    """Return the name of an entry, or raise where it is none."""
    if not _ENTRY.fullmatch(entry):
        raise ValueError(f"entry {entry!r}: give 1 to 200 letters, digits, '.', '_', '-' or '/'")
    return entry


def check_keys(keys: Iterable[str]) -> list[str]:
    """Return keys as a list, or raise where one is none."""
    listed = list(keys)
    for key in listed:
        if not _KEY.fullmatch(key):
            raise ValueError(f"key {key!r}: give 1 to 200 letters, digits, '.', '_' or '-'")
    return listed


def view(value: Buffer) -> memoryview:
    """Look at a value's bytes without copying them."""
    return memoryview(value).cast("B")
