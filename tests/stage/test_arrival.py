"""What arrives with a batch, against plain sorting: every row in its place, with its key, in the buckets asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.kernels.chunk import EVERY, order_numbers
from riprap.kernels.events import Events
from riprap.kernels.given import Given
from riprap.stage.arrival import Arrival, Intake, ReadRows, arrive
from riprap.state.hashing import buckets_of, hash_arrays
from riprap.state.keys import encode_keys

KEYS = st.sampled_from(["a", "b", "c", "d", None])


def rows(
    values: list[dict[str, Any]], kinds: dict[str, pa.DataType], position: list[int] | None = None
) -> ReadRows:
    columns = {n: pa.array([v[n] for v in values], kind) for n, kind in kinds.items()}
    return ReadRows(columns, np.array(position if position is not None else range(len(values)), np.int64))


def listed(arrival: Arrival, name: str) -> list[tuple[Any, ...]]:
    """Return the tag, key and id of each tuple."""
    chunk = arrival.chunks[name]
    tags = [
        (*(int(c[r]) for c in arrival.tags), *(int(p[row]) for p in chunk.path))
        for row, r in enumerate(chunk.rank)
    ]
    keys = [tuple(c[int(code)].as_py() for c in arrival.keys.columns) for code in chunk.code]
    assert np.all(np.diff(chunk.rank) >= 0)
    return list(zip(tags, keys, chunk.columns["id"].to_pylist(), strict=True))


def in_span(key: Any, span: tuple[int, int] | None, buckets: int) -> bool:
    if span is None:
        return True
    return bool(span[0] <= buckets_of(hash_arrays([pa.array([key], pa.string())]), buckets)[0] < span[1])


KINDS = {"k": pa.string(), "at": pa.int64(), "id": pa.int64()}


@st.composite
def sources(draw: st.DrawFn) -> list[tuple[list[dict[str, Any]], list[int]]]:
    """Draw rows of two sources: their ordering numbers do not fall, and packets of them may come in any order."""
    found = []
    for source in range(2):
        ats = sorted(draw(st.lists(st.integers(0, 5), max_size=8)))
        values = [{"k": draw(KEYS), "at": at, "id": 100 * source + n} for n, at in enumerate(ats)]
        order = draw(st.permutations(range(len(ats))))
        found.append(([values[n] for n in order], list(order)))
    return found


@settings(max_examples=120, deadline=None)
@given(drawn=sources(), aligned=st.booleans(), ordered=st.booleans(), batch=st.integers(0, 3), data=st.data())
def test_rows_of_sources_are_in_order_with_their_keys(
    drawn: list[tuple[list[dict[str, Any]], list[int]]],
    aligned: bool,
    ordered: bool,
    batch: int,
    data: st.DataObject,
) -> None:
    buckets = data.draw(st.integers(1, 5))
    first = data.draw(st.integers(0, buckets - 1))
    span = data.draw(st.none() | st.just((first, data.draw(st.integers(first + 1, buckets)))))
    entries = [
        Intake(name=f"s{n}", key=("k",), ordering="at" if ordered else None, number=n)
        for n in range(len(drawn))
    ]
    read = {f"s{n}": rows(values, KINDS, position) for n, (values, position) in enumerate(drawn)}
    aligned = aligned and ordered

    arrival = arrive(entries, read, batch=batch, aligned=aligned, span=span, buckets=buckets)

    for n, (values, position) in enumerate(drawn):
        wanted = sorted(
            (
                (*(() if aligned else (batch,)), *((v["at"],) if ordered else ()), n, place),
                (v["k"],),
                v["id"],
            )
            for v, place in zip(values, position, strict=True)
            if in_span(v["k"], span, buckets)
        )
        assert listed(arrival, f"s{n}") == sorted(wanted, key=lambda w: w[0])
    # Every rank is one tuple's, and its tag says which.
    ranks = sorted(int(r) for c in arrival.chunks.values() for r in c.rank)
    assert ranks == list(range(len(ranks)))
    tags = list(zip(*(c.tolist() for c in arrival.tags), strict=True))
    assert tags == sorted(tags)
    assert np.all(arrival.keys.hashes[1:] > arrival.keys.hashes[:-1])


TAGS = st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2))


@settings(max_examples=150, deadline=None)
@given(
    short=st.lists(TAGS, unique=True, max_size=6),
    long=st.lists(st.tuples(TAGS, st.integers(0, 2)), unique=True, max_size=6),
    marks=st.lists(TAGS, max_size=4),
    roots=st.sampled_from([(None, None), (0, 1), (1, 1)]),
    batch=st.integers(0, 5),
)
def test_what_comes_by_channels_is_ordered_by_tags(
    short: list[tuple[int, ...]],
    long: list[tuple[tuple[int, ...], int]],
    marks: list[tuple[int, ...]],
    roots: tuple[int | None, int | None],
    batch: int,
) -> None:
    flat = [(*tag, more) for tag, more in long]
    marks = [mark for mark in marks if mark not in short]

    def by_channel(
        tags: list[tuple[int, ...]], depth: int, base: int, marks: list[tuple[int, ...]]
    ) -> ReadRows:
        def columns(of: list[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
            return tuple(np.array([t[i] for t in of], np.int64) for i in range(depth))

        ids = pa.array([base + n for n in range(len(tags))], pa.int64())
        keys = pa.array(["a"] * len(tags), pa.string())
        return ReadRows(
            {"k": keys, "id": ids}, np.arange(len(tags)), columns(tags), columns(marks) if marks else ()
        )

    entries = [Intake(name=n, key=("k",), root=root) for n, root in zip(("one", "two"), roots, strict=True)]
    read = {"one": by_channel(short, 3, 0, marks), "two": by_channel(flat, 4, 100, [])}

    arrival = arrive(entries, read, batch=batch)

    def whole(tag: tuple[int, ...], root: int | None) -> tuple[int, ...]:
        return tag if root is None else (batch, root, *tag)

    for name, tags, base, root in (("one", short, 0, roots[0]), ("two", flat, 100, roots[1])):
        wanted = sorted((whole(t, root), ("a",), base + n) for n, t in enumerate(tags))
        assert listed(arrival, name) == wanted
    # One rank for all that derives from the same tuple of a source.
    found = list(zip(*(c.tolist() for c in arrival.tags), strict=True))
    distinct = {*(whole(t, roots[0]) for t in (*short, *marks)), *(whole(t[:3], roots[1]) for t in flat)}
    assert found == sorted(distinct)
    one = arrival.chunks["one"].marks
    ordered = sorted(whole(m, roots[0]) for m in marks)
    assert [found[r] for r in one.rank] == ordered
    assert one.at.tolist() == [sum(whole(t, roots[0]) < m for t in short) for m in ordered]
    assert set(one.code.tolist()) <= {EVERY}
    assert len(arrival.chunks["two"].marks) == 0
    assert arrival.marked == bool(marks)
    assert arrival.from_sources == (roots == (None, None))


def test_ticks_go_to_every_task_and_on_from_one() -> None:
    times = [datetime(1970, 1, 1, 0, 0, n, tzinfo=UTC) for n in (2, 1)]
    clock = ReadRows(
        {"t": pa.array(times, pa.timestamp("us", "UTC")), "at": pa.array([9, 3], pa.int64())},
        np.array([1, 0]),
    )
    feed = rows([{"k": "a", "at": 3, "id": 0}, {"k": "b", "at": 5, "id": 1}], KINDS)
    entries = [
        Intake(name="feed", key=("k",), ordering="at", number=0),
        Intake(name="clock", key=None, ordering="at", tick="t", number=1),
    ]
    read = {"feed": feed, "clock": clock}

    whole = arrive(entries, read, aligned=True)
    parts = [arrive(entries, read, aligned=True, span=(n, n + 1), buckets=4) for n in range(4)]

    assert listed(whole, "feed") == [((3, 0, 0), ("a",), 0), ((5, 0, 1), ("b",), 1)]
    assert (whole.ticks["clock"].rank.tolist(), whole.ticks["clock"].time.tolist()) == (
        [1, 3],
        [1000000, 2000000],
    )
    assert whole.marked
    for part in parts:
        assert part.ticks["clock"].time.tolist() == [1000000, 2000000]
    assert [p.chunks["clock"].rows for p in parts] == [2, 0, 0, 0]


def test_a_tick_comes_after_the_tuples_it_made_in_another_element() -> None:
    made = (np.array([3]), np.array([1]), np.array([0]), np.array([77]), np.array([0]))
    entries = [Intake(name="feed", key=("k",)), Intake(name="clock", key=None, tick="t")]
    read = {
        "feed": ReadRows({"k": pa.array(["a"]), "id": pa.array([0])}, np.arange(1), made),
        "clock": ReadRows({"t": pa.array([5], pa.timestamp("us"))}, np.arange(1), made[:3]),
    }

    arrival = arrive(entries, read)

    # They have the tick's rank, as they would have had there, and a tick comes after what has its rank.
    assert arrival.chunks["feed"].rank.tolist() == arrival.ticks["clock"].rank.tolist() == [0]
    assert [p.tolist() for p in arrival.chunks["feed"].path] == [[77], [0]]
    reaches = Given(
        inputs=(arrival.chunks["feed"],),
        keys=arrival.keys,
        ticks=replace(arrival.ticks["clock"], before=None),
    )
    events = Events.of(reaches)
    assert (events.row_event.tolist(), events.signal_event.tolist()) == ([0], [1])


def test_a_stream_without_a_key_stays_together() -> None:
    entries = [
        Intake(name="keyed", key=("k",), number=0),
        Intake(name="plain", key=None, number=1),
    ]
    read = {
        "keyed": rows([{"k": "a", "id": 0}, {"k": "b", "id": 1}], {"k": pa.string(), "id": pa.int64()}),
        "plain": rows([{"id": n} for n in range(5)], {"id": pa.int64()}),
    }

    parts = [arrive(entries, read, span=(n, n + 1), buckets=6) for n in range(6)]

    assert sorted(p.chunks["plain"].rows for p in parts) == [0, 0, 0, 0, 0, 5]
    assert sum(p.chunks["keyed"].rows for p in parts) == 2


@pytest.mark.parametrize("key", [(), None])
def test_without_a_key_there_is_one(key: tuple[str, ...] | None) -> None:
    entries = [Intake(name="feed", key=key, number=0)]

    arrival = arrive(entries, {"feed": rows([{"id": 0}, {"id": 1}], {"id": pa.int64()})})

    assert arrival.chunks["feed"].code.tolist() == [0, 0]
    assert len(arrival.keys) == 1


def test_rows_of_one_position_keep_the_order_they_were_read_in() -> None:
    read = rows([{"k": "a", "id": n} for n in range(4)], {"k": pa.string(), "id": pa.int64()}, [7, 7, 3, 7])

    arrival = arrive([Intake(name="feed", key=("k",), number=0)], {"feed": read})

    assert arrival.chunks["feed"].columns["id"].to_pylist() == [2, 0, 1, 3]
    assert arrival.chunks["feed"].rank.tolist() == [0, 1, 2, 3]


def test_widening_brings_in_keys_that_have_state() -> None:
    entries = [
        Intake(name="feed", key=("k",), number=0),
        Intake(name="clock", key=None, tick="t", number=1),
    ]
    read = {
        "feed": rows([{"k": k, "id": n} for n, k in enumerate("acb")], {"k": pa.string(), "id": pa.int64()}),
        "clock": ReadRows({"t": pa.array([5], pa.timestamp("us"))}, np.array([0])),
    }
    arrival = arrive(entries, read)
    more, _ = encode_keys([pa.array(["z", "a", None])], 3)

    wide = arrival.widen([more, more])
    alone = arrive(entries, {**read, "feed": rows([], {"k": pa.string(), "id": pa.int64()})}).widen([more])

    assert set(wide.keys.columns[0].to_pylist()) == {"a", "b", "c", "z", None}
    assert listed(wide, "feed") == listed(arrival, "feed")
    # Ticks are for every key, even where a batch has none.
    assert set(alone.keys.columns[0].to_pylist()) == {"a", "z", None}
    assert alone.chunks["clock"].code.tolist() == [EVERY]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-3, 0, 7]),
        (pa.int64(), [-(2**63) + 1, 0, 2**63 - 1]),
        (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]),
        (
            pa.timestamp("us"),
            [datetime(1969, 12, 31), datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 0, 0, 1)],
        ),
    ],
)
def test_order_numbers_sort_as_the_column_does(kind: pa.DataType, values: list[Any]) -> None:
    numbers = order_numbers(pa.array([values[1], None, values[2], values[0]], kind))

    assert np.argsort(numbers).tolist() == [1, 3, 0, 2]
    assert len(set(numbers.tolist())) == 4
