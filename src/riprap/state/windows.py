"""What operators keep for each key, held in immutable pages sorted by key.

A page is one Arrow record batch, a row a key, in order of hash:

    hash: uint64 | key: struct<...> | held: int64 | counters: fixed_size_list<int64> | window: list<struct<...>>

``window`` holds tuples that came in with the page, oldest first; ``held`` says how many tuples the key holds in all, so
its contents are the newest ``held`` tuples of its rows in all pages. ``counters`` are whatever numbers the operator
keeps beside the tuples; the newest page has those that count. A batch adds one page with what came in (so writes follow
the input, not the size of the state), and pages of like size are merged, so there are only ever a handful.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.errors import FormatError
from riprap.machine_code import compiled
from riprap.state.hashing import Hashes, first_hash
from riprap.state.keys import KeyTable, key_clash

# To look into one more page takes a batch of a hundred tuples longer than to write so much once more.
SMALL_BYTES = 1 << 16
_COLUMNS = ["hash", "key", "held", "counters", "window"]


@dataclass(frozen=True, slots=True)
class Contents:
    """What some keys hold: key ``i`` has the tuples ``offsets[i]`` to ``offsets[i + 1]``, and row ``i`` of counters."""

    offsets: Ints
    tuples: pa.StructArray
    counters: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)


def make_page(keys: KeyTable, contents: Contents, held: Ints | None = None) -> pa.RecordBatch:
    """Put what some keys hold into a page; ``held`` counts tuples of older pages too, where those still count."""
    names = [f"k{i}" for i in range(len(keys.columns))]
    key = (
        pa.StructArray.from_arrays(list(keys.columns), names)
        if names
        else pa.Array.from_buffers(pa.struct([]), len(keys), [None])
    )
    window = pa.ListArray.from_arrays(pa.array(contents.offsets.astype(np.int32)), contents.tuples)
    width = contents.counters.shape[1]
    counters = pa.FixedSizeListArray.from_arrays(pa.array(contents.counters.ravel()), width)
    held = contents.lengths if held is None else held
    return pa.RecordBatch.from_arrays(
        [pa.array(keys.hashes), key, pa.array(held), counters, window], _COLUMNS
    )


def remake_page(
    page: pa.RecordBatch, rows: Ints, held: Ints, lengths: Ints, tuples: pa.StructArray
) -> pa.RecordBatch:
    """Make a page of some rows of another, with other tuples."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    window = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), tuples)
    same = (page.column(name).take(pa.array(rows)) for name in ("hash", "key", "counters"))
    hashes, key, counters = same
    return pa.RecordBatch.from_arrays([hashes, key, pa.array(held), counters, window], _COLUMNS)


def gather(
    pages: Sequence[pa.RecordBatch], keys: KeyTable, layout: pa.StructType, counters: int = 1
) -> Contents:
    """Collect what ``keys`` (sorted by hash) hold from pages, newest page first; an unknown key has zeros."""
    wanted = np.full(len(keys), -1, np.int64)
    numbers = np.zeros((len(keys), counters), np.int64)
    parts: list[tuple[pa.StructArray, Ints]] = []
    for page in pages:
        rows, held = look_up(hashes_of(page), keys.hashes)
        if not len(held):
            continue
        _check_same_keys(page, rows, keys, held)
        new = wanted[held] < 0
        wanted[held[new]] = held_of(page)[rows[new]]
        numbers[held[new]] = counters_of(page)[rows[new]]
        offsets, tuples = window_of(page)
        length = np.zeros(len(keys), np.int64)
        length[held] = np.minimum(offsets[rows + 1] - offsets[rows], wanted[held])
        end = np.zeros(len(keys), np.int64)
        end[held] = offsets[rows + 1]
        parts.append((tuples.take(pa.array(ranges(end - length, length))), length))
        wanted[held] -= length[held]
    if np.any(wanted > 0):
        raise FormatError(f"state pages lack {int(wanted[wanted > 0].sum())} tuples that they say are held")
    return _weave(parts[::-1], numbers, layout)


def keys_in(page: pa.RecordBatch) -> KeyTable:
    """Return the keys that a page has rows for."""
    key = page.column("key")
    columns = tuple(key.field(i) for i in range(key.type.num_fields))
    has_null = np.zeros(page.num_rows, bool)
    for column in columns:
        has_null |= column.is_null().to_numpy(zero_copy_only=False)
    return KeyTable(hashes_of(page), columns, has_null)


def merge(newer: pa.RecordBatch, older: pa.RecordBatch) -> pa.RecordBatch:
    """Merge two pages into one that says the same, leaving out tuples no key holds any more."""
    hashes, old_row, new_row = align(hashes_of(older), hashes_of(newer))
    _check_equal_where_both(newer, new_row, older, old_row)
    old_start, old_length, old_tuples = _extents(older, old_row)
    new_start, new_length, new_tuples = _extents(newer, new_row)
    pick = np.where(new_row >= 0, new_row + older.num_rows, old_row)
    held = np.concatenate([held_of(older), held_of(newer)])[pick]
    kept = np.clip(held - new_length, 0, old_length)
    starts = np.column_stack([old_start + old_length - kept, new_start + len(old_tuples)]).ravel()
    lengths = np.column_stack([kept, new_length]).ravel()
    tuples = pa.concat_arrays([old_tuples, new_tuples]).take(pa.array(ranges(starts, lengths)))
    offsets = np.zeros(len(hashes) + 1, np.int64)
    np.cumsum(kept + new_length, out=offsets[1:])
    index = pa.array(pick)
    key = pa.concat_arrays([older.column("key"), newer.column("key")]).take(index)
    counters = pa.concat_arrays([older.column("counters"), newer.column("counters")]).take(index)
    window = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), tuples)
    return pa.RecordBatch.from_arrays([pa.array(hashes), key, pa.array(held), counters, window], _COLUMNS)


def _extents(page: pa.RecordBatch, rows: Ints) -> tuple[Ints, Ints, pa.StructArray]:
    """Return where the tuples of some rows start and how many there are; row -1 has none."""
    offsets, tuples = window_of(page)
    if not page.num_rows:
        return np.zeros_like(rows), np.zeros_like(rows), tuples
    start = offsets[rows]
    return start, np.where(rows >= 0, offsets[rows + 1] - start, 0), tuples


def _check_equal_where_both(
    left: pa.RecordBatch, left_row: Ints, right: pa.RecordBatch, right_row: Ints
) -> None:
    both = np.flatnonzero((left_row >= 0) & (right_row >= 0))
    if len(both):
        _check_equal(
            left.column("key").take(pa.array(left_row[both])),
            right.column("key").take(pa.array(right_row[both])),
        )


@compiled(types=("Array(u8, 1, 'C', True), Array(u8, 1, 'C', True)",))
def align(older, newer):  # type: ignore[no-untyped-def]
    """Merge two sorted lists of hashes; return the union, and where each is in either list (-1: nowhere)."""
    hashes = np.empty(len(older) + len(newer), np.uint64)
    old_row = np.full(len(hashes), -1, np.int64)
    new_row = np.full(len(hashes), -1, np.int64)
    i = j = count = 0
    while i < len(older) or j < len(newer):
        take_old = j == len(newer) or (i < len(older) and older[i] <= newer[j])
        take_new = i == len(older) or (j < len(newer) and newer[j] <= older[i])
        if take_old:
            hashes[count] = older[i]
            old_row[count] = i
            i += 1
        if take_new:
            hashes[count] = newer[j]
            new_row[count] = j
            j += 1
        count += 1
    return hashes[:count], old_row[:count], new_row[:count]


def restrict(page: pa.RecordBatch, first_bucket: int, end_bucket: int, buckets: int) -> pa.RecordBatch:
    """Return the part of a page that belongs to some buckets, without copying."""
    hashes = hashes_of(page)
    low = np.searchsorted(hashes, first_hash(first_bucket, buckets))
    high = np.searchsorted(hashes, first_hash(end_bucket, buckets)) if end_bucket < buckets else len(hashes)
    return page.slice(int(low), int(high - low))


def add_page(new: pa.RecordBatch, pages: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, int]:
    """Merge a batch's page with the newest older ones while they are small or not much larger.

    Return the page to write and how many of the older pages it replaces. Each page ends up more than twice the
    size of the one before it, so a state of n tuples is a handful of pages and a tuple is rewritten about log2(n)
    times in its life, small pages apart.
    """
    replaced = 0
    while replaced < len(pages) and (
        pages[replaced].nbytes <= SMALL_BYTES or _weight(pages[replaced]) <= 2 * _weight(new)
    ):
        if not _says_all(new, pages[replaced]):
            new = merge(new, pages[replaced])
        replaced += 1
    return (_without_empty(new) if replaced == len(pages) else new), replaced


def _says_all(newer: pa.RecordBatch, older: pa.RecordBatch) -> bool:
    """Say whether an older page has nothing that counts: every key of it is in the newer one, with all it holds."""
    if older.num_rows > newer.num_rows:
        return False
    rows, repeated = look_up(hashes_of(newer), hashes_of(older))
    if len(repeated) != older.num_rows:
        return False
    _check_equal(newer.column("key").take(pa.array(rows)), older.column("key"))
    lengths = np.diff(window_of(newer)[0])
    return bool((lengths[rows] >= held_of(newer)[rows]).all())


def _weight(page: pa.RecordBatch) -> int:
    rows: int = page.num_rows
    return tuples_in(page) + rows


def _without_empty(page: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out keys that hold nothing; only right in the oldest page, for a row also says that older ones are void."""
    full = (held_of(page) > 0) | counters_of(page).any(axis=1)
    return page if full.all() else page.filter(pa.array(full))


def tuples_in(page: pa.RecordBatch) -> int:
    """Count the tuples a page holds."""
    offsets, _ = window_of(page)
    return int(offsets[-1] - offsets[0])


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """List the numbers of several ranges one after the other.

    >>> ranges(np.array([5, 1]), np.array([2, 3]))
    array([5, 6, 1, 2, 3])
    """
    listed: Ints = _ranges(starts, lengths, int(lengths.sum()))
    return listed


@compiled(types=("i8[::1], i8[::1], i8",))
def _ranges(starts, lengths, total):  # type: ignore[no-untyped-def]
    result = np.empty(total, np.int64)
    at = 0
    for i in range(len(starts)):
        for j in range(lengths[i]):
            result[at] = starts[i] + j
            at += 1
    return result


def _weave(parts: Sequence[tuple[pa.StructArray, Ints]], counters: Ints, layout: pa.StructType) -> Contents:
    """Bring parts (oldest first, each in order of key) together key by key."""
    offsets = np.zeros(len(counters) + 1, np.int64)
    if not parts:
        return Contents(offsets, pa.array([], layout), counters)
    np.cumsum(sum(length for _, length in parts), out=offsets[1:])
    if len(parts) == 1:
        return Contents(offsets, parts[0][0], counters)
    bases = np.cumsum([0, *(len(tuples) for tuples, _ in parts[:-1])])
    starts = np.column_stack([b + np.cumsum(n) - n for b, (_, n) in zip(bases, parts, strict=True)]).ravel()
    lengths = np.column_stack([length for _, length in parts]).ravel()
    tuples = pa.concat_arrays([t for t, _ in parts]).take(pa.array(ranges(starts, lengths)))
    return Contents(offsets, tuples, counters)


def look_up(page: Hashes, wanted: Hashes) -> tuple[Ints, Ints]:
    """Return a page's rows that hold wanted hashes, and which of the wanted they are."""
    if not len(page):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = np.searchsorted(page, wanted)
    rows[rows == len(page)] = 0
    place = np.flatnonzero(page[rows] == wanted)
    return rows[place], place


def _check_same_keys(page: pa.RecordBatch, rows: Ints, keys: KeyTable, places: Ints) -> None:
    if not keys.columns:
        return
    names = [f"k{i}" for i in range(len(keys.columns))]
    wanted = pa.StructArray.from_arrays([c.take(pa.array(places)) for c in keys.columns], names)
    _check_equal(wanted, page.column("key").take(pa.array(rows)))


def _check_equal(left: pa.StructArray, right: pa.StructArray) -> None:
    for i in range(left.type.num_fields):
        a, b = left.field(i), right.field(i)
        if a.equals(b):
            continue
        # To Arrow NaN is not equal to NaN; to a key it is.
        same = pc.equal(a, b)
        if pa.types.is_floating(a.type):
            same = pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b)))
        same = pc.or_kleene(same, pc.and_(a.is_null(), b.is_null())).fill_null(False)
        if not pc.all(same).as_py() and len(same):
            place = same.index(False).as_py()
            fields = range(left.type.num_fields)
            raise key_clash([left.field(f) for f in fields], place, [right.field(f) for f in fields], place)


def hashes_of(page: pa.RecordBatch) -> Hashes:
    """Return the hashes of a page's rows."""
    hashes: Hashes = page.column("hash").to_numpy()
    return hashes


def held_of(page: pa.RecordBatch) -> Ints:
    """Return how many tuples each row's key holds in all."""
    held: Ints = page.column("held").to_numpy()
    return held


def counters_of(page: pa.RecordBatch) -> Ints:
    """Return the counters of a page's rows."""
    column = page.column("counters")
    width = column.type.list_size
    flat = column.values.to_numpy()[column.offset * width : (column.offset + len(column)) * width]
    numbers: Ints = flat.reshape(len(column), width)
    return numbers


def window_of(page: pa.RecordBatch) -> tuple[Ints, pa.StructArray]:
    """Return where the tuples of each row start, and all tuples."""
    window = page.column("window")
    offsets: Ints = window.offsets.to_numpy().astype(np.int64)
    return offsets, window.values
