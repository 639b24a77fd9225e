"""Window pages against a model of plain queues, through any sequence of batches, merges and cuts."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.errors import RunError
from riprap.state.hashing import buckets_of
from riprap.state.keys import KeyTable, encode_keys
from riprap.state.windows import Contents, add_page, gather, make_page, merge, ranges, restrict, tuples_in

LAYOUT = pa.struct([("a0", pa.int64()), ("a1", pa.string())])
Batch = list[tuple[Any, int]]


def page_of(batch: Batch, size: int, seen: dict[Any, int], kind: pa.DataType) -> pa.RecordBatch:
    """Make the page of a batch: each key's newest ``size`` tuples of it."""
    keys, _ = encode_keys(
        [pa.array(list(dict.fromkeys(k for k, _ in batch)), kind)], len({k for k, _ in batch})
    )
    order = [c.as_py() for c in keys.columns[0]]
    windows = [[v for k, v in batch if k == key][-size:] for key in order]
    offsets = np.cumsum([0, *map(len, windows)])
    tuples = pa.array([{"a0": v, "a1": f"{v}"} for window in windows for v in window], LAYOUT)
    return make_page(keys, Contents(np.array([seen[key] for key in order]), offsets, tuples))


def read(pages: list[pa.RecordBatch], keys: KeyTable, size: int) -> dict[Any, tuple[int, list[int]]]:
    """Gather the windows of some keys, as what was seen of each and its tuples."""
    contents = gather(pages, keys, size, LAYOUT)
    tuples = contents.tuples.to_pylist()
    assert all(t["a1"] == f"{t['a0']}" for t in tuples)
    return {
        key.as_py(): (
            int(contents.seen[i]),
            [t["a0"] for t in tuples[contents.offsets[i] : contents.offsets[i + 1]]],
        )
        for i, key in enumerate(keys.columns[0])
    }


class Model:
    """What the pages should hold: for each key, how many tuples came and the newest of them."""

    def __init__(self, size: int) -> None:
        self.seen: dict[Any, int] = {}
        self.windows: dict[Any, deque[int]] = {}
        self._size = size

    def add(self, batch: Batch) -> None:
        for key, value in batch:
            self.seen[key] = self.seen.get(key, 0) + 1
            self.windows.setdefault(key, deque(maxlen=self._size)).append(value)

    def read(self, keys: list[Any]) -> dict[Any, tuple[int, list[int]]]:
        return {k: (self.seen.get(k, 0), list(self.windows.get(k, ()))) for k in keys}


KEYS = ["a", "b", "c", "d", "e", "", None]
TUPLE = st.tuples(st.sampled_from(KEYS), st.integers(0, 999))
BATCHES = st.lists(st.lists(TUPLE, min_size=1, max_size=12), max_size=15)


@settings(max_examples=100, deadline=None)
@given(batches=BATCHES, size=st.integers(1, 20), data=st.data())
def test_pages_hold_what_plain_queues_hold(batches: list[Batch], size: int, data: st.DataObject) -> None:
    model, pages = Model(size), list[pa.RecordBatch]()
    keys, _ = encode_keys([pa.array(KEYS)], len(KEYS))
    for batch in batches:
        model.add(batch)
        new = page_of(batch, size, model.seen, pa.string())
        if data.draw(st.booleans()):
            new, replaced = add_page(new, pages, size)
            pages = [new, *pages[replaced:]]
        else:
            pages = [new, *pages]
        some = keys.take(np.array(sorted(data.draw(st.sets(st.integers(0, len(KEYS) - 1)))), np.int64))

        assert read(pages, some, size) == model.read([k.as_py() for k in some.columns[0]])

    while len(pages) > 1:
        pages = [merge(pages[0], pages[1], size), *pages[2:]]
        assert read(pages, keys, size) == model.read([k.as_py() for k in keys.columns[0]])


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, size=st.integers(1, 5), buckets=st.integers(1, 6), data=st.data())
def test_a_restricted_page_holds_exactly_its_buckets(
    batches: list[Batch], size: int, buckets: int, data: st.DataObject
) -> None:
    model, pages = Model(size), list[pa.RecordBatch]()
    for batch in batches:
        model.add(batch)
        pages = [page_of(batch, size, model.seen, pa.string()), *pages]
    first = data.draw(st.integers(0, buckets - 1))
    end = data.draw(st.integers(first + 1, buckets))

    parts = [restrict(page, first, end, buckets) for page in pages]

    keys, _ = encode_keys([pa.array(KEYS)], len(KEYS))
    mine = (buckets_of(keys.hashes, buckets) >= first) & (buckets_of(keys.hashes, buckets) < end)
    whole = model.read(keys.columns[0].to_pylist())
    wanted = {k: state if inside else (0, []) for (k, state), inside in zip(whole.items(), mine, strict=True)}
    assert read(parts, keys, size) == wanted
    # A part can be merged and counted as a whole page can.
    if parts:
        merged = parts[0]
        for part in parts[1:]:
            merged = merge(merged, part, size)
        assert read([merged], keys, size) == wanted
        assert tuples_in(merged) == sum(len(window) for _, window in wanted.values())


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=150))
def test_the_number_of_pages_grows_as_the_logarithm_of_the_state(sizes: list[int]) -> None:
    pages: list[pa.RecordBatch] = []
    seen: dict[Any, int] = {}
    start = 0
    for count in sizes:
        batch = [(key, key) for key in range(start, start + count)]
        start += count
        seen.update(dict.fromkeys((k for k, _ in batch), 1))
        new, replaced = add_page(page_of(batch, 1, seen, pa.int64()), pages, 1)
        pages = [new, *pages[replaced:]]

        assert sum(map(tuples_in, pages)) == start
        assert len(pages) <= 1 + math.log2(start)
        assert all(tuples_in(old) > 2 * tuples_in(young) for young, old in pairwise(pages))


def test_merging_leaves_out_what_no_window_holds() -> None:
    old = page_of([("a", 1), ("a", 2), ("b", 3)], 2, {"a": 2, "b": 1}, pa.string())
    new = page_of([("a", 4), ("a", 5)], 2, {"a": 4}, pa.string())

    merged = merge(new, old, 2)

    keys, _ = encode_keys([pa.array(["a", "b"])], 2)
    assert tuples_in(merged) == 3
    assert read([merged], keys, 2) == {"a": (4, [4, 5]), "b": (1, [3])}


def test_nothing_is_in_no_pages() -> None:
    keys, _ = encode_keys([pa.array(["a"])], 1)

    assert read([], keys, 3) == {"a": (0, [])}


def test_tuples_without_values_are_counted() -> None:
    keys, _ = encode_keys([], 0)
    nothing = pa.Array.from_buffers(pa.struct([]), 3, [None])
    page = make_page(keys, Contents(np.array([3]), np.array([0, 3]), nothing))

    merged = merge(page, page, 5)

    assert tuples_in(merged) == 5
    assert len(gather([merged, page], keys, 9, pa.struct([])).tuples) == 8


@pytest.mark.parametrize("by", ["merge", "gather"])
def test_keys_of_one_hash_in_two_pages_stop_the_run(by: str) -> None:
    one = page_of([("a", 1)], 2, {"a": 1}, pa.string())
    forged = KeyTable(np.array(one.column("hash")), (pa.array(["z"]),), np.array([False]))
    other = make_page(
        forged, Contents(np.array([1]), np.array([0, 1]), pa.array([{"a0": 1, "a1": "1"}], LAYOUT))
    )

    with pytest.raises(RunError, match="have the same 64-bit hash"):
        merge(other, one, 2) if by == "merge" else gather([one], forged, 2, LAYOUT)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_ranges_lists_each_range_in_turn(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([s for s, _ in pairs], np.int64)
    lengths = np.array([n for _, n in pairs], np.int64)

    assert ranges(starts, lengths).tolist() == [i for s, n in pairs for i in range(s, s + n)]
