"""Pieces of streams against plain lists: merging, cutting and numbering keep everything in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.kernels.chunk import (
    EVERY,
    FIRST,
    LAST,
    Chunk,
    Marks,
    concatenate,
    concatenate_arrays,
    empty_chunk,
    merge_streams,
    no_marks,
    places,
    struct_of,
)
from riprap.kernels.events import Events
from riprap.kernels.given import Given, Ticks, index_among
from riprap.state.keys import encode_keys


@dataclass(frozen=True)
class Item:
    """A tuple, or a punctuation, and its place."""

    rank: int
    path: tuple[int, ...]
    code: int
    value: int | None

    @property
    def order(self) -> tuple[int, ...]:
        return (self.rank, *self.path)

    def deepen(self, depth: int) -> Item:
        return Item(self.rank, self.path + (FIRST,) * (depth - len(self.path)), self.code, self.value)


def chunk_of(items: Sequence[Item], depth: int) -> Chunk:
    tuples = [i for i in items if i.value is not None]
    marks = [i for i in items if i.value is None]
    at = [sum(other.value is not None for other in items[:n]) for n, i in enumerate(items) if i.value is None]

    def path(of: Sequence[Item]) -> tuple[np.ndarray, ...]:
        return tuple(np.array([i.path[d] for i in of], np.int64) for d in range(depth))

    return Chunk(
        {"v": pa.array([i.value for i in tuples], pa.int64())},
        np.array([i.rank for i in tuples], np.int64),
        np.array([i.code for i in tuples], np.int32),
        path(tuples),
        Marks(
            np.array(at, np.int64),
            np.array([m.rank for m in marks], np.int64),
            np.array([m.code for m in marks], np.int32),
            path(marks),
        ),
    )


def items_of(chunk: Chunk) -> list[Item]:
    """Read a chunk back as a list."""
    values = chunk.columns["v"].to_pylist()
    assert len(values) == chunk.rows == len(chunk.code)
    marks = chunk.marks
    assert len(marks.path) == len(chunk.path)
    assert all(0 <= at <= chunk.rows for at in marks.at)
    assert np.all(np.diff(marks.at) >= 0)
    tuples = [
        Item(int(chunk.rank[n]), tuple(int(p[n]) for p in chunk.path), int(chunk.code[n]), v)
        for n, v in enumerate(values)
    ]
    found: list[Item] = []
    for n in range(chunk.rows + 1):
        found += [
            Item(int(marks.rank[m]), tuple(int(p[m]) for p in marks.path), int(marks.code[m]), None)
            for m in np.flatnonzero(marks.at == n)
        ]
        found += tuples[n : n + 1]
    return found


@st.composite
def streams(draw: st.DrawFn, marks: bool = True) -> tuple[list[Item], int]:
    """Draw a stream: items in order, and how many numbers their paths have."""
    depth = draw(st.integers(0, 2))
    place = st.tuples(st.integers(0, 4), *[st.sampled_from([0, 1, 2, LAST])] * depth)
    orders = sorted(draw(st.lists(place, max_size=8)))
    values = st.none() | st.integers(0, 99) | st.integers(0, 99) if marks else st.integers(0, 99)
    return [Item(o[0], o[1:], draw(st.sampled_from([0, 1, EVERY])), draw(values)) for o in orders], depth


@settings(max_examples=200, deadline=None)
@given(drawn=st.lists(streams(), min_size=1, max_size=4))
def test_merging_is_by_order_and_then_by_stream(drawn: list[tuple[list[Item], int]]) -> None:
    depth = max(d for _, d in drawn)

    merged = merge_streams([chunk_of(items, d) for items, d in drawn])

    # Sorting keeps what is equal in the order it had.
    assert items_of(merged) == sorted(
        (i.deepen(depth) for items, _ in drawn for i in items), key=lambda i: i.order
    )
    assert len(merged.path) == depth


@settings(max_examples=100, deadline=None)
@given(drawn=st.lists(streams(marks=False), min_size=1, max_size=3))
def test_places_number_the_tuples_of_all_ports(drawn: list[tuple[list[Item], int]]) -> None:
    depth = max(d for _, d in drawn)

    found = places([chunk_of(items, d) for items, d in drawn])

    ported = [
        (i.deepen(depth).order, port, n) for port, (items, _) in enumerate(drawn) for n, i in enumerate(items)
    ]
    place = {(port, n): number for number, (_, port, n) in enumerate(sorted(ported))}
    assert [f.tolist() for f in found] == [
        [place[port, n] for n in range(len(items))] for port, (items, _) in enumerate(drawn)
    ]


@settings(max_examples=60, deadline=None)
@given(drawn=streams(), more=st.integers(0, 3))
def test_a_longer_path_comes_first_of_any_with_its_beginning(
    drawn: tuple[list[Item], int], more: int
) -> None:
    items, depth = drawn

    deepened = chunk_of(items, depth).deepen(more)

    assert items_of(deepened) == [i.deepen(max(more, depth)) for i in items]


def test_a_number_is_added_to_tuples_and_punctuations() -> None:
    items = [Item(0, (7,), 0, 5), Item(1, (8,), EVERY, None)]

    assert items_of(chunk_of(items, 1).append(3)) == [Item(0, (7, 3), 0, 5), Item(1, (8, 3), EVERY, None)]


@settings(max_examples=60, deadline=None)
@given(drawn=streams(), data=st.data())
def test_taking_tuples_keeps_all_punctuations(drawn: tuple[list[Item], int], data: st.DataObject) -> None:
    items, depth = drawn
    chunk = chunk_of(items, depth)
    rows = sorted(data.draw(st.sets(st.integers(0, max(chunk.rows - 1, 0)), max_size=chunk.rows)))

    taken = chunk.take(np.array(rows, np.int64))

    tuples = [n for n, i in enumerate(items) if i.value is not None]
    kept = {tuples[r] for r in rows}
    assert items_of(taken) == [i for n, i in enumerate(items) if i.value is None or n in kept]
    assert items_of(chunk.without_marks()) == [i for i in items if i.value is not None]


@settings(max_examples=60, deadline=None)
@given(drawn=streams(), data=st.data())
def test_a_slice_has_the_punctuations_among_its_tuples(
    drawn: tuple[list[Item], int], data: st.DataObject
) -> None:
    items, depth = drawn
    chunk = chunk_of(items, depth)
    start = data.draw(st.integers(0, chunk.rows))
    stop = data.draw(st.integers(start, chunk.rows))

    found = items_of(chunk.slice(start, stop))

    seen = [sum(i.value is not None for i in items[:n]) for n in range(len(items))]
    assert found == [
        i
        for n, i in zip(seen, items, strict=True)
        if (start <= n <= stop if i.value is None else start <= n < stop)
    ]


def test_streams_of_one_port_may_bring_other_columns() -> None:
    def chunk(*names: str) -> Chunk:
        columns = {n: pa.array([1]) for n in names}
        return Chunk(columns, np.array([0]), np.array([0], np.int32))

    merged = merge_streams([chunk("a", "b", "c"), chunk("c", "a")])

    # What only one of them brings is for another reader.
    assert list(merged.columns) == ["a", "c"]
    assert merged.rows == 2


def test_nothing_merged_with_nothing_has_its_columns() -> None:
    schema = pa.schema([("v", pa.int64())])

    merged = merge_streams([empty_chunk(schema, 1), empty_chunk(schema, 3)])

    assert (merged.rows, len(merged.path), len(merged.marks.path), list(merged.columns)) == (0, 3, 3, ["v"])
    assert concatenate([], schema, 2).columns["v"].type == pa.int64()


def test_columns_that_are_encoded_differently_go_together() -> None:
    plain = pa.array(["a", None])

    assert concatenate_arrays([plain.dictionary_encode(), plain]).to_pylist() == ["a", None, "a", None]
    assert struct_of({"x": plain.dictionary_encode()}, 2).to_pylist() == [{"x": "a"}, {"x": None}]
    assert len(struct_of({}, 3)) == 3


def given_of(items: Sequence[Item], depth: int, ticks: Sequence[tuple[int, int]]) -> Given:
    heard = Ticks(np.array([r for r, _ in ticks], np.int64), np.array([t for _, t in ticks], np.int64))
    keys, _ = encode_keys([pa.array(["a", "b"])], 2)
    return Given(inputs=(chunk_of(items, depth),), keys=keys, ticks=heard)


@settings(max_examples=150, deadline=None)
@given(
    drawn=streams(),
    ticks=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=4, unique_by=lambda t: t[0]
    ).map(sorted),
)
def test_events_are_everything_that_reaches_a_port_in_order(
    drawn: tuple[list[Item], int], ticks: list[tuple[int, int]]
) -> None:
    items, depth = drawn

    events = Events.of(given_of(items, depth, ticks))

    # A tick comes after all that has its rank.
    after = [Item(rank, (LAST,) * depth, EVERY, None) for rank, _ in ticks]
    wanted = sorted([*items, *after], key=lambda i: i.order)
    assert events.rank.tolist() == [i.rank for i in wanted]
    assert [tuple(int(p[n]) for p in events.path) for n in range(len(wanted))] == [i.path for i in wanted]
    assert events.code.tolist() == [i.code for i in wanted]
    assert events.row_event.tolist() == [n for n, i in enumerate(wanted) if i.value is not None]
    assert events.signal_event.tolist() == [n for n, i in enumerate(wanted) if i.value is None]
    assert events.time[events.is_tick].tolist() == [t for _, t in ticks]


def test_punctuations_go_behind_what_they_made() -> None:
    items = [Item(0, (), 0, 5), Item(1, (), EVERY, None), Item(2, (), EVERY, None), Item(3, (), 1, 6)]
    events = Events.of(given_of(items, 0, []))
    made = np.array([0, 1, 1, 3])

    marks = events.punctuations(made, 2)

    assert marks.at.tolist() == [3, 3]
    assert marks.rank.tolist() == [1, 2]
    assert [p.tolist() for p in marks.path] == [[LAST, LAST]] * 2


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_outputs_of_events_are_in_order(depth: int) -> None:
    items = [Item(0, (7,), 0, 5), Item(1, (8,), EVERY, None), Item(3, (9,), 1, 6)]
    given_ = given_of(items, 1, [(2, 50)])
    events = Events.of(given_)
    event = np.array([0, 1, 1, 1, 2, 3])
    code = np.array([0, 0, 0, 1, 1, 1], np.int32)

    made = events.derive(event, code, {"v": pa.array(range(6))}, given_, depth)

    orders = [(int(made.rank[n]), *(int(p[n]) for p in made.path)) for n in range(6)]
    assert orders == sorted(orders)
    assert len(made.path) == 1 + depth == len(made.marks.path)
    assert depth == 0 or len(set(orders)) == 6
    hashed = [int(h >> np.uint64(1)) for h in given_.keys.hashes]
    if depth == 2:
        # Made by a tuple: no key; made by a punctuation or a tick: key by key.
        assert made.path[1].tolist() == [0, hashed[0], hashed[0], hashed[1], hashed[1], 0]
        assert made.path[2].tolist() == [0, 0, 1, 0, 0, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=20).map(sorted))
def test_members_of_a_run_are_numbered(events: list[int]) -> None:
    found = index_among(np.array(events, np.int64)).tolist()

    assert found == [events[:n].count(e) for n, e in enumerate(events)]


def test_no_marks_have_paths_too() -> None:
    assert (len(no_marks(2)), len(no_marks(2).path)) == (0, 2)
