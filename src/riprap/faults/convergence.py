"""Which keys hold the same again: state in a trial against that of the golden run, key by key and bit by bit."""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Bools
from riprap.kernels.given import Pages
from riprap.operators.custom.instances import HELD
from riprap.state.hashing import Hashes
from riprap.state.windows import counters_of, hashes_of, held_of, merge, ranges, window_of


def held_by(pages: Pages, hashes: Hashes) -> list[pa.RecordBatch]:
    """Return what pages say of some keys."""
    held = []
    for page in pages:
        rows = np.flatnonzero(np.isin(hashes_of(page), hashes))
        if len(rows):
            held.append(page.take(pa.array(rows)))
    return held


def same(one: Pages, other: Pages, hashes: Hashes) -> Bools:
    """Say of each of some keys whether two states hold the same for it."""
    pages = [_whole(held_by(each, hashes)) for each in (one, other)]
    rows = [_rows_of(page, hashes) for page in pages]
    equal = np.ones(len(hashes), bool)
    nothing = [row < 0 for row in rows]
    # A key that is not there holds nothing, as one does that is there and holds nothing.
    for page, row, missing in zip(pages, rows, reversed(nothing), strict=True):
        if page is not None:
            held = np.flatnonzero((row >= 0) & missing)
            equal[held] = (held_of(page)[row[held]] == 0) & ~counters_of(page)[row[held]].any(axis=1)
    both = np.flatnonzero(~nothing[0] & ~nothing[1])
    if len(both) and pages[0] is not None and pages[1] is not None:
        equal[both] = _equal_rows(pages[0], rows[0][both], pages[1], rows[1][both])
    return equal


def _whole(pages: Pages) -> pa.RecordBatch | None:
    return reduce(merge, pages) if pages else None


def _rows_of(page: pa.RecordBatch | None, hashes: Hashes) -> npt.NDArray[np.int64]:
    if page is None:
        return np.full(len(hashes), -1, np.int64)
    keys = hashes_of(page)
    at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    return np.where(keys[at] == hashes, at, -1)


def _equal_rows(
    one: pa.RecordBatch, rows: npt.NDArray[np.int64], other: pa.RecordBatch, their_rows: npt.NDArray[np.int64]
) -> Bools:
    held = held_of(one)[rows]
    equal: Bools = (held == held_of(other)[their_rows]) & (
        counters_of(one)[rows] == counters_of(other)[their_rows]
    ).all(axis=1)
    candidates = np.flatnonzero(equal & (held > 0))
    if not len(candidates):
        return equal
    lengths = held[candidates]
    tuples = []
    for page, numbers in ((one, rows), (other, their_rows)):
        offsets, all_tuples = window_of(page)
        ends = offsets[numbers[candidates] + 1]
        tuples.append(all_tuples.take(pa.array(ranges(ends - lengths, lengths))))
    agree = np.ones(len(tuples[0]), bool)
    for index in [0] if tuples[0].type == HELD else range(tuples[0].type.num_fields):
        agree &= same_values(tuples[0].field(index), tuples[1].field(index))
    starts = np.cumsum(lengths) - lengths
    equal[candidates] = np.logical_and.reduceat(agree, starts)
    return equal


def same_values(one: pa.Array, other: pa.Array) -> Bools:
    """Say which values are the same, bit by bit: null is null, and -0.0 is not 0.0."""
    one, other = (a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in (one, other))
    nulls = [a.is_null().to_numpy(zero_copy_only=False) for a in (one, other)]
    if pa.types.is_floating(one.type):
        width = one.type.bit_width // 8
        bits = [a.fill_null(0).to_numpy(zero_copy_only=False).view(f"u{width}") for a in (one, other)]
        equal = bits[0] == bits[1]
    elif pa.types.is_nested(one.type):
        return np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
    else:
        equal = pa.compute.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    alike: Bools = np.where(nulls[0] | nulls[1], nulls[0] & nulls[1], equal)
    return alike
