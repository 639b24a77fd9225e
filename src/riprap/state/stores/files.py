"""Values in packs: each put() is one file, and the indices of an entry's packs are read once and kept."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from riprap.errors import CorruptValueError, StoreError
from riprap.state.stores.base import Buffer, Store, check_entry, check_keys
from riprap.state.stores.folders import Folder, trouble
from riprap.state.stores.packs import (
    Pack,
    PackName,
    live_keys,
    make_pack,
    needless,
    newest_editions,
    removable,
)

# A pack that is live to less than a third is written again, unless it is too small to matter.
_WORTH_REWRITING = 1 << 20
# Each is made because somebody took the file away within the one before it.
_ATTEMPTS = 100


@dataclass
class _Index:
    """What is known of an entry: its packs oldest first, those that cannot be read, and the pack of each live key."""

    packs: list[Pack] = field(default_factory=list)
    damaged: dict[PackName, str] = field(default_factory=dict)
    outdated: set[PackName] = field(default_factory=set)
    live: dict[str, Pack] = field(default_factory=dict)
    next_number: int = 0

    def set(self, packs: Collection[Pack]) -> None:
        # Two threads may have read the same pack, and an older edition may still be among them.
        named = {pack.name: pack for pack in packs}
        self.packs = [named[name] for name in newest_editions(named)]
        self.live = live_keys(self.packs)
        self.next_number = max([self.next_number, *(name.number + 1 for name in named)])


class FileStore(Store):
    """A store of packs in a folder, local or behind fsspec."""

    def __init__(self, url: str, where: str, folder: Folder) -> None:
        self.url = url
        self._where = where
        self._folder = folder
        self._indices: dict[str, _Index] = {}
        self._looking = threading.Lock()
        self._writing = threading.Lock()

    def put(self, entry: str, values: Mapping[str, Buffer]) -> None:
        check_entry(entry)
        check_keys(values)
        if not values:
            return
        with self._writing, self._our_errors("writing"):
            self._folder.tidy(entry)
            index = self._look(entry)
            self._write(entry, index, values)
            # The values are there, so what cannot be removed now is left to the next put.
            with contextlib.suppress(OSError, StoreError):
                self._remove(entry, needless(index.packs))
                for name in index.outdated:
                    self._folder.remove(entry, name)

    def get(self, entry: str, key: str) -> pa.Buffer:
        check_entry(entry)
        check_keys([key])
        anew = self._folder.lists_cheaply
        for _ in range(_ATTEMPTS):
            with self._our_errors("reading"):
                index = self._look(entry, anew=anew)
                pack = index.live.get(key)
                if pack is not None:
                    try:
                        return self._folder.read(entry, pack, pack.values[key])
                    except FileNotFoundError:
                        # Written again, or replaced, since we looked.
                        anew = True
                        continue
            if anew and index.damaged:
                raise CorruptValueError(
                    f"store {self._where}: '{key}' is in no pack of entry '{entry}' that can be read, and "
                    + "; ".join(index.damaged.values())
                )
            if anew:
                raise KeyError(key)
            anew = True
        raise StoreError(
            f"store {self._where}: '{key}' of entry '{entry}' could not be read: its file goes away whenever it was "
            "found. See whether another process writes to this entry, or empties the folder"
        )

    def keys(self, entry: str) -> list[str]:
        check_entry(entry)
        with self._our_errors("reading"):
            return sorted(self._look(entry).live)

    def damage(self, entry: str) -> list[str]:
        check_entry(entry)
        with self._our_errors("reading"):
            return list(self._look(entry).damaged.values())

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        check_entry(entry)
        unwanted = set(check_keys(keys))
        with self._writing, self._our_errors("deleting"):
            index = self._look(entry)
            unwanted &= index.live.keys()
            if not unwanted:
                return
            # Room first: on a full disk, what comes after may not find any.
            self._remove(entry, removable(index.packs, unwanted))
            for pack in list(index.packs):
                self._write_again(entry, index, pack, unwanted)
            noted = unwanted & {key for pack in index.packs for key in pack.values}
            if noted:
                self._write(entry, index, {}, noted)
            self._remove(entry, needless(index.packs))

    def entries(self) -> list[str]:
        with self._our_errors("reading"):
            return [entry for entry in self._folder.entries() if (i := self._look(entry)).live or i.damaged]

    def drop(self, entry: str) -> None:
        check_entry(entry)
        with self._writing, self._our_errors("deleting"):
            self._folder.drop(entry)
            with self._looking:
                self._indices.pop(entry, None)

    def close(self) -> None:
        with self._looking:
            self._indices.clear()

    def _look(self, entry: str, *, anew: bool = True) -> _Index:
        """Return what is known of an entry, having read the packs that are new."""
        with self._looking:
            if entry in self._indices and not anew:
                return self._indices[entry]
            index = self._indices.setdefault(entry, _Index())
            editions = self._folder.packs(entry)
            names = newest_editions(editions)
            index.outdated = editions.difference(names)
            indexed = {pack.name: pack for pack in index.packs}
            packs, damaged = [], {}
            for name in names:
                try:
                    packs.append(indexed.get(name) or self._folder.index(entry, name))
                except FileNotFoundError:
                    continue
                except CorruptValueError as error:
                    damaged[name] = str(error)
            index.damaged = damaged
            index.next_number = max([index.next_number, *(name.number + 1 for name in names)])
            if packs != index.packs:
                index.set(packs)
            return index

    def _write(
        self, entry: str, index: _Index, values: Mapping[str, Buffer], gone: Collection[str] = ()
    ) -> None:
        name = PackName(index.next_number, uuid.uuid4().hex[:12])
        pack, pieces = make_pack(name, values, gone)
        self._folder.write(entry, pack, pieces)
        with self._looking:
            index.set([*index.packs, pack])

    def _write_again(self, entry: str, index: _Index, old: Pack, unwanted: set[str]) -> None:
        """Write what is left of a pack as its next edition, if that is little."""
        left = [key for key in old.values if key in index.live and index.live[key].name == old.name]
        left = [key for key in left if key not in unwanted]
        bytes_left = sum(old.values[key][1] for key in left)
        if old.size < _WORTH_REWRITING or bytes_left * 3 >= old.size or not unwanted & old.values.keys():
            return
        try:
            values = {key: self._folder.read(entry, old, old.values[key]) for key in left}
            pack, pieces = make_pack(old.name.next_edition(), values, old.gone)
            self._folder.write(entry, pack, pieces)
        except (OSError, StoreError, CorruptValueError):
            # No loss: the old edition serves.
            return
        with self._looking:
            index.set([*index.packs, pack])
        self._folder.remove(entry, old.name)

    def _remove(self, entry: str, packs: Collection[Pack]) -> None:
        removed = {pack.name for pack in packs}
        for name in sorted(removed):
            self._folder.remove(entry, name)
        with self._looking:
            index = self._indices[entry]
            index.set([pack for pack in index.packs if pack.name not in removed])

    @contextlib.contextmanager
    def _our_errors(self, doing: str) -> Iterator[None]:
        """Turn a file system's error into ours."""
        try:
            yield
        except OSError as error:
            raise trouble(self._where, doing, error) from error
