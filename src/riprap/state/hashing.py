"""The hash of a key: ours, specified, and the same in every process on every run.

| value | hashed as |
|---|---|
| null | a fixed number |
| integers of any width, boolean, date (days), timestamp (microseconds) | the value as 64 bits |
| float, double | the bits as a double; -0.0 as 0.0, every NaN alike |
| decimal | the value at scale 38 as 256 bits, whatever its own scale |
| string, binary | its bytes (UTF-8) |
| several columns | folded from left to right |

A key's bucket is the top of its hash, so the keys of a bucket stand together in anything sorted by hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.machine_code import compiled

Hashes = npt.NDArray[np.uint64]

NULL_HASH = np.uint64(0x9AE16A3B2F90404F)
NO_KEY_HASH = np.uint64(0)


def hash_arrays(columns: Sequence[pa.Array]) -> Hashes:
    """Hash the rows of one or more key columns.

    >>> hash_arrays([pa.array([1], pa.int8())]) == hash_arrays([pa.array([1], pa.int64())])
    array([ True])
    """
    result = _hash_array(columns[0])
    for column in columns[1:]:
        result = _mix(result * np.uint64(0x9E3779B97F4A7C15) ^ _hash_array(column))
    return result


def buckets_of(hashes: Hashes, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each hash: the hash range cut into equal parts."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def first_hash(bucket: int, buckets: int) -> np.uint64:
    """Return the lowest hash of a bucket."""
    return np.uint64((((bucket << 32) + buckets - 1) // buckets) << 32)


def _hash_array(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_decimal(kind):
        hashes = _hash_decimals(array)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        hashes = _hash_text(array.cast(pa.large_binary()))
    else:
        hashes = _mix(_bits(array))
    if nulls is not None:
        hashes[nulls] = NULL_HASH
    return hashes


def _bits(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_floating(kind):
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        values[np.isnan(values)] = np.nan
        bits: Hashes = values.view(np.uint64)
        return bits
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    bits = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return bits


def _hash_decimals(array: pa.Array) -> Hashes:
    # Every decimal of 38 digits fits 76 digits at scale 38.
    wide = array.cast(pa.decimal256(76, 38))
    width = wide.type.byte_width
    first = wide.offset * width
    bytes_ = np.frombuffer(wide.buffers()[1], np.uint8)[first : first + len(wide) * width]
    return _mix(_fnv(np.arange(len(wide) + 1) * width, bytes_))


def _hash_text(array: pa.Array) -> Hashes:
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return _mix(_fnv(starts, bytes_))


def _mix(bits: Any) -> Hashes:
    """Finish with splitmix64, so that near keys land far apart."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = bits ^ (bits >> np.uint64(31))
    return mixed


@compiled(types=("i8[::1], u1[::1]",))
def _fnv(starts, data):  # type: ignore[no-untyped-def]
    result = np.empty(len(starts) - 1, np.uint64)
    for i in range(len(result)):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(starts[i], starts[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        result[i] = h
    return result
