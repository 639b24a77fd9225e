"""Who meets whom in a join, and who leaves a window: the rules, tuple by tuple, over plain numbers.

Rows are numbered over both ports: the left port's first, then the right port's. What the tuples hold is not this
module's business, nor is whether a meeting is a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from riprap.arrays import Bools, Ints
from riprap.kernels.chunk import LAST, Chunk, PathNumbers, places
from riprap.kernels.extents import LONG_AGO
from riprap.kernels.given import Ticks
from riprap.machine_code import compiled

# The columns of what a key holds: each port's start and end, and the time.
WIDTH = 5
_NOW = 4


@dataclass(frozen=True, slots=True)
class Happenings:
    """Tuples of both ports and ticks in one sequence of events.

    Event ``i`` is number ``source[i]`` of the left port's tuples, the right port's, and the ticks, one after the other.
    ``rank``, ``path`` and ``code`` have the order and key of each of those (a tick's code is 0).
    """

    source: Ints
    left_rows: int
    tuples: int
    rank: Ints
    path: PathNumbers
    code: npt.NDArray[np.int32]
    tick_time: Ints
    before: int

    @classmethod
    def of(cls, left: Chunk, right: Chunk, ticks: Ticks | None) -> Happenings:
        """Line up what reaches a join: the lower port first where the order is the same, ticks last."""
        tuples = left.rows + right.rows
        source = np.empty(tuples, np.int64)
        at_left, at_right = places([left, right])
        source[at_left], source[at_right] = np.arange(left.rows), np.arange(left.rows, tuples)
        rank, code = np.concatenate([left.rank, right.rank]), np.concatenate([left.code, right.code])
        path = tuple(np.concatenate(parts) for parts in zip(left.path, right.path, strict=True))
        before = LONG_AGO if ticks is None or ticks.before is None else ticks.before
        times = np.empty(0, np.int64)
        if ticks is not None and len(ticks.rank):
            times = np.maximum(np.maximum.accumulate(ticks.time), before)
            # Until one says what time it is, ticks mean nothing.
            tick_rank, times = ticks.rank[times != LONG_AGO], times[times != LONG_AGO]
            at = np.searchsorted(rank[source], tick_rank, "right")
            source = np.insert(source, at, tuples + np.arange(len(at)))
            rank = np.concatenate([rank, tick_rank])
            path = tuple(np.concatenate([p, np.full(len(at), LAST)]) for p in path)
            code = np.concatenate([code, np.zeros(len(at), np.int32)])
        return cls(source, left.rows, tuples, rank, path, code, times, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of both windows: how many tuples or how much time each holds, and whose unmatched tuples count."""

    empty: tuple[bool, bool]
    by_time: tuple[bool, bool]
    size: tuple[int, int]
    outer: tuple[bool, bool]
    clocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWindows:
    """What the two windows hold, key by key, brought up to date by :func:`meet`.

    Row ``code`` of ``held`` has where the left window starts and ends, the same of the right one, and the key's time:
    together, for they are read together. ``time`` is each row's. ``place`` finds the batch's tuples among the rows.
    """

    held: Ints
    time: Ints
    place: Ints
    has_null: Bools

    @property
    def now(self) -> Ints:
        """The time of each key."""
        return self.held[:, _NOW]


@dataclass(frozen=True, slots=True)
class Meetings:
    """Event by event: its tuple meets rows ``start`` to ``start + length`` of the other port."""

    event: Ints
    start: Ints
    length: Ints


@dataclass(frozen=True, slots=True)
class Leaves:
    """Rows of an outer side that leave, event by event, each before the meetings of event ``before`` and later ones."""

    event: Ints
    before: Ints
    row: Ints
    code: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.event)


def meet(happenings: Happenings, rules: Rules, windows: BothWindows, stamps: Ints) -> tuple[Meetings, Leaves]:
    """Play the events; ``stamps`` are the tuples' times where a column tells them."""
    ticks = happenings.tick_time
    gone = np.stack([_cutoffs(ticks, size) for size in rules.size])
    event, start, length, *left = _play(
        happenings.source, happenings.left_rows, happenings.tuples, happenings.code, windows.place,
        stamps, windows.has_null, bool(windows.has_null.any()), windows.held, windows.time,
        np.array(rules.empty), np.array(rules.by_time), np.array(rules.size), np.array(rules.outer),
        rules.clocked, happenings.before, ticks, gone,
        np.flatnonzero(happenings.source >= happenings.tuples),
    )  # fmt: skip
    leaves = Leaves(*left)
    if len(ticks) and len(leaves):
        # What a tick made leave is found when its key comes up, and put out at the tick, in order of key.
        order = np.lexsort((leaves.code, leaves.event))
        leaves = Leaves(*(a[order] for a in left))
    return Meetings(event, start, length), leaves


def pieces(meetings: Meetings, at_once: int) -> Iterator[slice]:
    """Cut meetings into runs of about so many pairs; there is always one, if only of nothing."""
    cut = np.cumsum(meetings.length) // at_once
    ends = [*(np.flatnonzero(np.diff(cut)) + 1).tolist(), len(cut)]
    yield from map(slice, [0, *ends], ends)


def pairs_of(
    meetings: Meetings, which: slice, happenings: Happenings, windows: BothWindows
) -> tuple[Ints, Ints, Ints]:
    """List the pairs of some meetings: the left row, the right row, and the event."""
    pairs: tuple[Ints, Ints, Ints] = _expand(
        meetings.event[which], meetings.start[which], meetings.length[which],
        happenings.source, happenings.left_rows, windows.place,
    )  # fmt: skip
    return pairs


def _cutoffs(time: Ints, size: int) -> Ints:
    """Return the youngest time that has left a window of time ``size`` at each time."""
    return np.maximum(time, LONG_AGO + size) - size


@compiled(
    types=(
        "i8[::1], i8, i8, i4[::1], i8[::1], i8[::1], b1[::1], b1, "
        "i8[:, ::1], i8[::1], b1[::1], b1[::1], i8[::1], b1[::1], b1, i8, i8[::1], i8[:, ::1], i8[::1]",
    )
)
def _play(  # type: ignore[no-untyped-def]
    source, left_rows, tuples, code, place, stamps, has_null, any_null, held, time,
    empty, by_time, size, outer, clocked, clock, tick_time, gone, tick_event,
):  # fmt: skip
    timed = by_time[0] or by_time[1]
    met, start, length = np.empty(tuples, np.int64), np.empty(tuples, np.int64), np.empty(tuples, np.int64)
    # No row leaves twice.
    room = len(time) if outer[0] or outer[1] else 0
    left, before = np.empty(room, np.int64), np.empty(room, np.int64)
    left_row, left_code = np.empty(room, np.int64), np.empty(room, np.int32)
    meetings = leaves = 0
    for event in range(len(source)):
        number = source[event]
        if number >= tuples:
            clock = tick_time[number - tuples]
            continue
        port = 1 if number >= left_rows else 0
        other = 1 - port
        key, row = code[number], place[number]
        if any_null and has_null[key]:
            if outer[port]:
                left[leaves], before[leaves] = event, event + 1
                left_row[leaves], left_code[leaves] = row, key
                leaves += 1
            continue
        # 1. Time goes on, and what is too old leaves.
        if timed:
            held[key, _NOW] = clock if clocked else max(held[key, _NOW], stamps[number])
            leaves = _expire(
                key, event, held, held[key, _NOW], time, by_time, size, outer, clocked, gone, tick_event,
                leaves, left, before, left_row, left_code,
            )  # fmt: skip
            time[row] = held[key, _NOW]
        # 2. The tuple enters its window, and the oldest one leaves a full window.
        if not empty[port]:
            if not by_time[port] and held[key, 2 * port + 1] - held[key, 2 * port] == size[port]:
                if outer[port]:
                    left[leaves], before[leaves] = event, event
                    left_row[leaves], left_code[leaves] = held[key, 2 * port], key
                    leaves += 1
                held[key, 2 * port] += 1
            held[key, 2 * port + 1] += 1
        # 3. It meets the other window.
        low, high = held[key, 2 * other], held[key, 2 * other + 1]
        if high > low:
            met[meetings], start[meetings], length[meetings] = event, low, high - low
            meetings += 1
        # 4. Where its own window is empty it leaves at once.
        if empty[port] and outer[port]:
            left[leaves], before[leaves] = event, event + 1
            left_row[leaves], left_code[leaves] = row, key
            leaves += 1
    if clocked and len(tick_time):
        for key in range(len(held)):
            leaves = _expire(
                key, len(source), held, clock, time, by_time, size, outer, clocked, gone, tick_event,
                leaves, left, before, left_row, left_code,
            )  # fmt: skip
    return (
        met[:meetings], start[:meetings], length[:meetings],
        left[:leaves], before[:leaves], left_row[:leaves], left_code[:leaves],
    )  # fmt: skip


@compiled
def _expire(  # type: ignore[no-untyped-def]
    key, event, held, now, time, by_time, size, outer, clocked, gone, tick_event,
    leaves, left, before, left_row, left_code,
):  # fmt: skip
    if now == LONG_AGO:
        return leaves
    for port in range(2):
        if not by_time[port]:
            continue
        cutoff = max(now, LONG_AGO + size[port]) - size[port]
        row, end = held[key, 2 * port], held[key, 2 * port + 1]
        while row < end and time[row] <= cutoff:
            if outer[port]:
                at = event
                if clocked:
                    # It left at the first tick that made it too old, which may be some ticks ago.
                    tick = np.searchsorted(gone[port], time[row])
                    if tick < len(tick_event) and tick_event[tick] < event:
                        at = tick_event[tick]
                left[leaves], before[leaves] = at, at
                left_row[leaves], left_code[leaves] = row, key
                leaves += 1
            row += 1
        held[key, 2 * port] = row
    return leaves


@compiled(types=("i8[::1], i8[::1], i8[::1], i8[::1], i8, i8[::1]",))
def _expand(event, start, length, source, left_rows, place):  # type: ignore[no-untyped-def]
    total = length.sum()
    left, right = np.empty(total, np.int64), np.empty(total, np.int64)
    made = np.empty(total, np.int64)
    pair = 0
    for i in range(len(event)):
        number = source[event[i]]
        own = place[number]
        for other in range(start[i], start[i] + length[i]):
            if number < left_rows:
                left[pair], right[pair] = own, other
            else:
                left[pair], right[pair] = other, own
            made[pair] = event[i]
            pair += 1
    return left, right, made
