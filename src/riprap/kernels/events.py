"""The tuples of a port, its punctuations and the ticks of a clock, as one sequence of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints
from riprap.kernels.chunk import EVERY, LAST, Chunk, Marks, PathNumbers, no_marks
from riprap.kernels.given import Given, hash_part, index_among
from riprap.machine_code import compiled


@dataclass(frozen=True, slots=True)
class Events:
    """A batch of one port in order: event ``row_event[i]`` is tuple ``i``, event ``signal_event[j]`` is a tick or a
    punctuation. ``rank`` and ``path`` are every event's order. ``end_event`` has, where the input has ended, the end
    of each key, which is after all its tuples."""

    row_event: Ints
    signal_event: Ints
    is_tick: npt.NDArray[np.bool_]
    time: Ints
    rank: Ints
    path: PathNumbers
    code: npt.NDArray[np.int32]
    end_event: Ints

    @classmethod
    def of(cls, given: Given, port: int = 0) -> Events:
        """Line up what reaches a port; a tick comes after the tuples that it made elsewhere."""
        chunk, ticks = given.inputs[port], given.ticks
        marks = chunk.marks
        at, rank, code, path = marks.at, marks.rank, marks.code, marks.path
        is_tick, time = np.zeros(len(marks), bool), np.zeros(len(marks), np.int64)
        if ticks is not None and len(ticks.rank):
            at = np.concatenate([at, np.searchsorted(chunk.rank, ticks.rank, "right")])
            rank = np.concatenate([rank, ticks.rank])
            order = np.lexsort((rank, at))
            more = len(ticks.rank)
            code = np.concatenate([code, np.full(more, EVERY, np.int32)])[order]
            path = tuple(np.concatenate([p, np.full(more, LAST)])[order] for p in path)
            is_tick = np.concatenate([is_tick, np.ones(more, bool)])[order]
            time = np.concatenate([time, ticks.time])[order]
            at, rank = at[order], rank[order]
        ends = np.zeros(0, np.int64)
        if given.ends is not None:
            ends, keys = given.ends, len(given.ends)
            at = np.concatenate([at, np.searchsorted(chunk.rank, ends, "right")])
            rank = np.concatenate([rank, ends])
            order = np.lexsort((rank, at))
            code = np.concatenate([code, np.arange(keys, dtype=np.int32)])[order]
            path = tuple(np.concatenate([p, np.full(keys, LAST)])[order] for p in path)
            ends = np.argsort(order)[len(order) - keys :]
            at, rank = at[order], rank[order]
        signal = at + np.arange(len(at))
        row = np.arange(chunk.rows)
        if len(at):
            row += np.searchsorted(at, row, "right")
        total = chunk.rows + len(at)
        ranks, codes = np.empty(total, np.int64), np.empty(total, np.int32)
        ranks[row], ranks[signal] = chunk.rank, rank
        codes[row], codes[signal] = chunk.code, code
        paths = []
        for mine, other in zip(chunk.path, path, strict=True):
            whole = np.empty(total, np.int64)
            whole[row], whole[signal] = mine, other
            paths.append(whole)
        told = np.delete(signal, ends)
        return cls(row, told, is_tick, time, ranks, tuple(paths), codes, signal[ends])

    def derive(
        self,
        event: Ints,
        code: npt.NDArray[np.int32],
        columns: Mapping[str, pa.Array],
        given: Given,
        depth: int,
    ) -> Chunk:
        """Make the outputs of events (never falling; of one event, key by key), for an operator of some depth."""
        path = tuple(p[event] for p in self.path)
        if depth == 2:
            wide = np.zeros(len(self.rank), bool)
            wide[self.signal_event] = True
            wide[self.end_event] = True
            part = np.where(wide[event], hash_part(given.keys)[code], 0)
            among = index_among(event * (len(given.keys) + 1) + code) if len(event) else event
            path = (*path, part, among)
        elif depth == 1:
            path = (*path, index_among(event))
        return Chunk(columns, self.rank[event], code, path, no_marks(len(path)))

    def punctuations(self, outputs: Ints, depth: int) -> Marks:
        """Return the port's own punctuations, placed after the outputs (given by event) that each one made."""
        own = self.signal_event[~self.is_tick]
        path = tuple(p[own] for p in self.path) + (np.full(len(own), LAST),) * depth
        return Marks(np.searchsorted(outputs, own, "right"), self.rank[own], self.code[own], path)


def in_event_order(event: Ints, events: int) -> Ints:
    """Return the order that sorts outputs by event and otherwise leaves them as they are."""
    if len(event) < 2 or np.all(event[1:] >= event[:-1]):
        return np.arange(len(event))
    order: Ints = _counting_sort(event, events)
    return order


@compiled(types=("i8[::1], i8",))
def _counting_sort(event, events):  # type: ignore[no-untyped-def]
    start = np.zeros(events + 1, np.int64)
    for e in event:
        start[e + 1] += 1
    for i in range(events):
        start[i + 1] += start[i]
    order = np.empty(len(event), np.int64)
    for i in range(len(event)):
        order[start[event[i]]] = i
        start[event[i]] += 1
    return order
