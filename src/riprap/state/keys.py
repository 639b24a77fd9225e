"""The keys of a batch: each distinct key once, in order of hash, and a small number for every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.errors import RunError
from riprap.state.hashing import NO_KEY_HASH, Hashes, buckets_of, hash_arrays

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Distinct keys sorted by hash. A row's *code* is the place of its key in this table."""

    hashes: Hashes
    columns: tuple[pa.Array, ...]
    has_null: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.hashes)

    def span(self, first_bucket: int, end_bucket: int, buckets: int) -> tuple[int, int]:
        """Return the codes [low, high) of the keys in a range of buckets."""
        low, high = np.searchsorted(buckets_of(self.hashes, buckets), [first_bucket, end_bucket])
        return int(low), int(high)

    def take(self, codes: npt.NDArray[np.int64]) -> KeyTable:
        """Return the keys of some codes, given in rising order."""
        if len(codes) == len(self):
            return self
        index = pa.array(codes)
        return KeyTable(self.hashes[codes], tuple(c.take(index) for c in self.columns), self.has_null[codes])

    def slice(self, low: int, high: int) -> KeyTable:
        return KeyTable(
            self.hashes[low:high],
            tuple(c.slice(low, high - low) for c in self.columns),
            self.has_null[low:high],
        )


def encode_keys(columns: Sequence[pa.Array], rows: int) -> tuple[KeyTable, Codes]:
    """Find the distinct keys of some rows, and each row's code."""
    if not columns:
        return KeyTable(np.array([NO_KEY_HASH]), (), np.zeros(1, bool)), np.zeros(rows, np.int32)
    distinct, codes = _distinct(columns)
    hashes = hash_arrays(distinct)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    clash = np.flatnonzero(hashes[1:] == hashes[:-1])
    if len(clash):
        raise key_clash(distinct, int(order[clash[0]]), distinct, int(order[clash[0] + 1]))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    columns = tuple(c.take(pa.array(order)) for c in distinct)
    has_null = np.zeros(len(order), bool)
    for column in columns:
        if column.null_count:
            has_null |= column.is_null().to_numpy(zero_copy_only=False)
    # Arrow takes numbers of any width as they are, NumPy would make them wider first.
    code = pa.array(place).take(codes)
    # To Numba an array that must not be written to is of another type, and every kernel would be compiled for it too.
    return KeyTable(hashes, tuple(columns), has_null), code.to_numpy(zero_copy_only=False, writable=True)


def join_tables(tables: Sequence[KeyTable]) -> tuple[KeyTable, list[Codes]]:
    """Bring key tables together; return also, for each, the place of its keys in the whole."""
    if not tables[0].columns:
        return tables[0], [np.zeros(len(t), np.int32) for t in tables]
    columns = [pa.concat_arrays(parts) for parts in zip(*(t.columns for t in tables), strict=True)]
    hashes, first, inverse = np.unique(
        np.concatenate([t.hashes for t in tables]), return_index=True, return_inverse=True
    )
    index = pa.array(first)
    has_null = np.concatenate([t.has_null for t in tables])[first]
    joined = KeyTable(hashes, tuple(c.take(index) for c in columns), has_null)
    ends = np.cumsum([len(t) for t in tables])[:-1]
    return joined, [part.astype(np.int32) for part in np.split(inverse, ends)]


def key_clash(left: Sequence[pa.Array], i: int, right: Sequence[pa.Array], j: int) -> RunError:
    """Say that two keys have one hash: state is kept by hash, so going on would mix them up."""
    return RunError(
        f"keys {[c[i].as_py() for c in left]} and {[c[j].as_py() for c in right]} have the same 64-bit hash. "
        "Their states would mix, so the run stops; add a column to the key to tell them apart"
    )


def _distinct(columns: Sequence[pa.Array]) -> tuple[list[pa.Array], pa.Array]:
    encoded = [_encode(column) for column in columns]
    if len(encoded) == 1:
        dictionary, codes = encoded[0]
        return [dictionary], codes
    combined, many = np.zeros(len(columns[0]), np.int64), 1
    for dictionary, indices in encoded:
        codes = indices.cast(pa.int64()).to_numpy()
        many *= max(len(dictionary), 1)
        if many > np.iinfo(np.int64).max:
            # More combinations than there are numbers: number those that occur.
            combined, many = np.unique(combined, return_inverse=True)[1], len(combined) * len(dictionary)
        combined = combined * max(len(dictionary), 1) + codes
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    rows = pa.array(first)
    picked = (column.take(rows) for column in columns)
    # Pages keep plain columns: the next batch's may be encoded otherwise.
    plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in picked]
    return plain, pa.array(codes)


def _encode(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Dictionary-encode with null as a value, and with all NaN alike and -0.0 as 0.0."""
    if pa.types.is_dictionary(column.type) and _needs_decoding(column.dictionary):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        mask = column.is_null()
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0.0)
        values[np.isnan(values)] = np.nan
        column = pc.if_else(mask, None, pa.array(values, column.type))
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    dictionary, indices = encoded.dictionary, encoded.indices
    if indices.null_count:
        # Null gets a value of its own, at the end.
        indices = indices.cast(pa.int64()).fill_null(len(dictionary))
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    return dictionary, indices


def _needs_decoding(dictionary: pa.Array) -> bool:
    """Say whether a dictionary may have one key under two codes: null, a value twice, or floats (NaN, -0.0)."""
    repeats = dictionary.null_count > 0 or len(dictionary.unique()) < len(dictionary)
    return bool(repeats or pa.types.is_floating(dictionary.type))
