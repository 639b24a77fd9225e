"""Window pages against a model of plain lists, through any sequence of batches, merges and cuts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.errors import FormatError, RunError
from riprap.state.hashing import buckets_of
from riprap.state.keys import KeyTable, encode_keys
from riprap.state.windows import (
    Contents,
    add_page,
    gather,
    keys_in,
    make_page,
    merge,
    ranges,
    restrict,
    tuples_in,
)

LAYOUT = pa.struct([("a0", pa.int64()), ("a1", pa.string())])
KEYS = ["a", "b", "c", "d", "e", "", None]


@dataclass(frozen=True)
class Change:
    """What a batch does to a key: tuples come, the oldest leave, and numbers are noted.

    ``whole`` has the page hold all that the key holds, so that older pages no longer count.
    """

    new: tuple[int, ...]
    leave: int
    counters: tuple[int, int]
    whole: bool = False


Batch = dict[Any, Change]
State = tuple[tuple[int, int], list[int]]


class Model:
    """What the pages should say: each key's counters and tuples."""

    def __init__(self) -> None:
        self.state: dict[Any, State] = {}

    def add(self, batch: Batch) -> pa.RecordBatch:
        """Take a batch, and make the page that says so."""
        windows, held = {}, {}
        for key, change in batch.items():
            tuples = [*self.state.get(key, ((0, 0), []))[1], *change.new][change.leave :]
            self.state[key] = (change.counters, tuples)
            held[key] = len(tuples)
            windows[key] = tuples if change.whole else tuples[max(0, len(tuples) - len(change.new)) :]
        return page_of(windows, held, {k: c.counters for k, c in batch.items()})

    def read(self, keys: Sequence[Any]) -> dict[Any, State]:
        return {k: self.state.get(k, ((0, 0), [])) for k in keys}


def page_of(
    windows: dict[Any, list[int]],
    held: dict[Any, int],
    counters: dict[Any, tuple[int, int]],
    kind: Any = None,
) -> pa.RecordBatch:
    keys, _ = encode_keys([pa.array(list(windows), kind or pa.string())], len(windows))
    order = keys.columns[0].to_pylist()
    offsets = np.cumsum([0, *(len(windows[k]) for k in order)])
    tuples = pa.array([{"a0": v, "a1": f"{v}"} for k in order for v in windows[k]], LAYOUT)
    numbers = np.array([counters[k] for k in order], np.int64).reshape(len(order), 2)
    return make_page(keys, Contents(offsets, tuples, numbers), np.array([held[k] for k in order], np.int64))


def read(pages: Sequence[pa.RecordBatch], keys: KeyTable) -> dict[Any, State]:
    """Gather what some keys hold."""
    contents = gather(pages, keys, LAYOUT, counters=2)
    tuples = contents.tuples.to_pylist()
    assert all(t["a1"] == f"{t['a0']}" for t in tuples)
    bounds = list(pairwise(contents.offsets.tolist()))
    return {
        key.as_py(): (tuple(contents.counters[i].tolist()), [t["a0"] for t in tuples[slice(*bounds[i])]])
        for i, key in enumerate(keys.columns[0])
    }


CHANGES = st.builds(
    Change,
    new=st.lists(st.integers(0, 999), max_size=4).map(tuple),
    leave=st.sampled_from([0, 0, 0, 1, 2, 5, 100]),
    counters=st.tuples(st.sampled_from([0, 0, 1, -3]), st.sampled_from([0, 0, 2**62, -(2**63)])),
    whole=st.booleans(),
)
BATCHES = st.lists(st.dictionaries(st.sampled_from(KEYS), CHANGES, min_size=1), max_size=12)
EVERY_KEY, _ = encode_keys([pa.array(KEYS)], len(KEYS))


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, data=st.data())
def test_pages_hold_what_plain_lists_hold(batches: list[Batch], data: st.DataObject) -> None:
    model, pages = Model(), list[pa.RecordBatch]()
    for batch in batches:
        new = model.add(batch)
        replaced = 0
        if data.draw(st.booleans()):
            new, replaced = add_page(new, pages)
        pages = [new, *pages[replaced:]]
        some = EVERY_KEY.take(np.array(sorted(data.draw(st.sets(st.integers(0, len(KEYS) - 1)))), np.int64))

        assert read(pages, some) == model.read(some.columns[0].to_pylist())

    while len(pages) > 1:
        pages = [merge(pages[0], pages[1]), *pages[2:]]
        assert read(pages, EVERY_KEY) == model.read(EVERY_KEY.columns[0].to_pylist())
    if pages:
        # A single page has nothing that no key holds.
        assert tuples_in(pages[0]) == sum(len(tuples) for _, tuples in model.state.values())


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, data=st.data())
def test_pages_may_be_merged_in_any_neighbouring_pairs(batches: list[Batch], data: st.DataObject) -> None:
    model = Model()
    pages = [model.add(batch) for batch in batches][::-1]
    while len(pages) > 1:
        place = data.draw(st.integers(0, len(pages) - 2))
        pages[place : place + 2] = [merge(pages[place], pages[place + 1])]

        assert read(pages, EVERY_KEY) == model.read(EVERY_KEY.columns[0].to_pylist())


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, buckets=st.integers(1, 6), data=st.data())
def test_a_restricted_page_holds_exactly_its_buckets(
    batches: list[Batch], buckets: int, data: st.DataObject
) -> None:
    model = Model()
    pages = [model.add(batch) for batch in batches][::-1]
    first = data.draw(st.integers(0, buckets - 1))
    end = data.draw(st.integers(first + 1, buckets))

    parts = [restrict(page, first, end, buckets) for page in pages]

    places = buckets_of(EVERY_KEY.hashes, buckets)
    whole = model.read(EVERY_KEY.columns[0].to_pylist())
    wanted = {
        key: state if first <= bucket < end else ((0, 0), [])
        for (key, state), bucket in zip(whole.items(), places, strict=True)
    }
    assert read(parts, EVERY_KEY) == wanted
    # A part can be merged and counted as a whole page can.
    if parts:
        merged = parts[0]
        for part in parts[1:]:
            merged = merge(merged, part)
        assert read([merged], EVERY_KEY) == wanted
        assert tuples_in(merged) == sum(len(tuples) for _, tuples in wanted.values())


def test_a_key_that_holds_nothing_is_forgotten_in_the_oldest_page_only() -> None:
    model = Model()
    old = model.add({"a": Change((1,), 0, (0, 0))})
    gone = model.add({"a": Change((), 1, (0, 0))})
    large = Model().add({f"{n}": Change((n,), 0, (0, 0)) for n in range(9)})

    forgotten, replaced = add_page(gone, [old])
    kept, none_replaced = add_page(gone, [large, old])

    assert (forgotten.num_rows, replaced) == (0, 1)
    # While an older page holds tuples of it, its row must stay to say that they no longer count.
    assert (keys_in(kept).columns[0].to_pylist(), none_replaced) == (["a"], 0)


def test_a_key_with_counters_is_not_forgotten() -> None:
    page, _ = add_page(Model().add({"a": Change((), 0, (0, 7))}), [])

    assert read([page], EVERY_KEY)["a"] == ((0, 7), [])


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=150))
def test_the_number_of_pages_grows_as_the_logarithm_of_the_state(sizes: list[int]) -> None:
    pages: list[pa.RecordBatch] = []
    start = 0
    for count in sizes:
        batch = range(start, start + count)
        start += count
        page = page_of(
            {k: [k] for k in batch}, dict.fromkeys(batch, 1), dict.fromkeys(batch, (0, 0)), pa.int64()
        )
        new, replaced = add_page(page, pages)
        pages = [new, *pages[replaced:]]

        assert sum(map(tuples_in, pages)) == start
        assert len(pages) <= 1 + math.log2(start)
        assert all(tuples_in(old) > 2 * tuples_in(young) for young, old in pairwise(pages))


def test_merging_leaves_out_what_no_key_holds() -> None:
    model = Model()
    old = model.add({"a": Change((1, 2), 0, (0, 0)), "b": Change((3,), 0, (0, 0))})
    new = model.add({"a": Change((4, 5), 3, (0, 0))})

    merged = merge(new, old)

    assert tuples_in(merged) == 2
    assert merged.column("held").to_pylist() == [
        {"a": 1, "b": 1}[k] for k in keys_in(merged).columns[0].to_pylist()
    ]


def test_the_keys_of_a_page_are_told() -> None:
    page = Model().add(dict.fromkeys(["b", None, "a"], Change((1,), 0, (0, 0))))

    keys = keys_in(page)

    assert set(keys.columns[0].to_pylist()) == {"a", "b", None}
    assert keys.hashes.tolist() == page.column("hash").to_pylist()
    assert [k is None for k in keys.columns[0].to_pylist()] == keys.has_null.tolist()


def test_nothing_is_in_no_pages() -> None:
    keys, _ = encode_keys([pa.array(["a"])], 1)

    assert read([], keys) == {"a": ((0, 0), [])}


def test_tuples_without_values_are_counted() -> None:
    keys, _ = encode_keys([], 0)
    nothing = pa.Array.from_buffers(pa.struct([]), 3, [None])
    page = make_page(keys, Contents(np.array([0, 3]), nothing, np.zeros((1, 1), np.int64)), np.array([5]))

    merged = merge(page, page)

    assert tuples_in(merged) == 5
    assert len(gather([merged], keys, pa.struct([])).tuples) == 5


def test_pages_that_lack_tuples_are_not_taken_for_less() -> None:
    model = Model()
    model.add({"a": Change((1, 2), 0, (0, 0))})
    second = model.add({"a": Change((3,), 0, (0, 0))})

    with pytest.raises(FormatError, match="state pages lack 2 tuples that they say are held"):
        read([second], EVERY_KEY)


@pytest.mark.parametrize("by", ["merge", "gather"])
def test_keys_of_one_hash_in_two_pages_stop_the_run(by: str) -> None:
    one = Model().add({"a": Change((1,), 0, (0, 0))})
    forged = KeyTable(np.array(one.column("hash")), (pa.array(["z"]),), np.array([False]))
    tuples = pa.array([{"a0": 1, "a1": "1"}], LAYOUT)
    other = make_page(forged, Contents(np.array([0, 1]), tuples, np.zeros((1, 2), np.int64)))

    with pytest.raises(RunError, match="have the same 64-bit hash"):
        merge(other, one) if by == "merge" else gather([one], forged, LAYOUT, counters=2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_ranges_lists_each_range_in_turn(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([s for s, _ in pairs], np.int64)
    lengths = np.array([n for _, n in pairs], np.int64)

    assert ranges(starts, lengths).tolist() == [i for s, n in pairs for i in range(s, s + n)]
