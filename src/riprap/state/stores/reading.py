"""A store that cannot be changed through this handle: for those who look while a run is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from riprap.errors import StoreError
from riprap.state.stores.base import Buffer, Store


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
