"""Durable stores, in which what a host would lose outlives it: folders, object stores, RocksDB, Redis."""

from riprap.errors import CorruptValueError, StoreError
from riprap.state.stores.base import Buffer, Store
from riprap.state.stores.opening import describe_store, open_store

__all__ = ["Buffer", "CorruptValueError", "Store", "StoreError", "describe_store", "open_store"]
