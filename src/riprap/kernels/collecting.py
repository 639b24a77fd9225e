"""Tumbling windows that are put out whole when they close.

Until then what a window holds is not looked at: of the keys whose windows stay open only the number of tuples is read.
So a batch costs what it brings and what it closes, however much the windows hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints
from riprap.kernels.chunk import struct_of
from riprap.kernels.events import Events, in_event_order
from riprap.kernels.extents import Extents, find_extents
from riprap.kernels.given import Given
from riprap.kernels.history import History, line_up
from riprap.kernels.queues import Queues
from riprap.kernels.windowing import measured_by
from riprap.machine_code import compiled
from riprap.windows import Window, on_close

# Beside a window's tuples: two numbers that the window rules keep, and the number that its first tuple counts with.
_RULES, _FIRST, _COUNTERS = slice(0, 2), 2, 3


@dataclass(frozen=True, slots=True)
class Closed:
    """The windows that close in a batch, in the order in which they do: of each the event, the key and the length.

    ``rows`` are their tuples, window by window; ``page`` says what the others hold now, None where nothing changed;
    ``late`` counts tuples that came after newer ones of their key.
    """

    events: Events
    event: Ints
    code: npt.NDArray[np.int32]
    lengths: Ints
    rows: Ints
    page: pa.RecordBatch | None
    late: int
    _old: pa.StructArray
    _new: pa.StructArray

    def column(self, name: str, rows: Ints) -> pa.Array:
        """Return the values of some rows."""
        old, new = self._old.field(name), self._new.field(name)
        return (pa.concat_arrays([old, new]) if len(old) else new).take(pa.array(rows))


def close_windows(window: Window, given: Given, values: Mapping[str, pa.Array], slot: str = "0") -> Closed:
    """Collect the tuples of port 0, of which ``values`` are to be kept, and find the windows that close."""
    chunk, events = given.inputs[0], Events.of(given)
    marked = len(events.signal_event) > 0 or given.ends is not None
    counts = np.bincount(chunk.code, minlength=len(given.keys))
    touched = np.arange(len(given.keys)) if marked else np.flatnonzero(counts)
    new = struct_of(values, chunk.rows)
    queues = Queues.of(given.pages.get(slot, ()), given.keys.take(touched), _COUNTERS)
    lengths, before = queues.lengths, queues.counters
    arrived = line_up(chunk.code, touched, len(given.keys), queues.first(np.zeros_like(touched), new.type))
    whole = _behind(arrived, lengths, chunk.code, len(given.keys))
    numbers, present = measured_by(window, chunk)
    # Of the old tuples only the first one's number is ever compared with.
    measured, there = np.zeros(len(whole.order), numbers.dtype), np.zeros(len(whole.order), bool)
    first = np.flatnonzero(lengths)
    measured[whole.starts[first]] = before[first, _FIRST].view(numbers.dtype)
    measured[whole.place], there[whole.place] = numbers, present
    counters = before.copy()
    extents = find_extents(window, on_close(), whole, events, given, measured, there, counters[:, _RULES])
    held = whole.starts[1:] - extents.kept
    counters[:, _FIRST] = 0
    if window.delta is not None:
        some = np.flatnonzero(held)
        counters[some, _FIRST] = measured[extents.kept[some]].view(np.int64)
    changed = (held != lengths) | (counters != before).any(axis=1)
    page = arrived.page(given.keys, new, arrived.starts[1:] - held, counters, changed)
    order = in_event_order(extents.event, len(events.rank))
    old, rows = _read(extents, order, queues, whole, arrived, new.type)
    code = touched[extents.key[order]].astype(np.int32)
    sizes = (extents.high - extents.low)[order]
    return Closed(events, extents.event[order], code, sizes, rows, page, extents.late, old, new)


def _behind(arrived: History, lengths: Ints, code: npt.NDArray[np.int32], keys: int) -> History:
    """Return the history with so many old tuples of each key before those that arrived; its order is left open."""
    before = np.cumsum(lengths)
    shift = np.zeros(keys, np.int64)
    shift[arrived.touched] = before
    starts = arrived.starts + np.concatenate([[0], before])
    total = int(starts[-1])
    # Only its length counts, and memory that nobody writes to costs nothing.
    order = np.empty(total, np.int64)
    return History(arrived.touched, starts, arrived.starts[:-1] + before, arrived.place + shift[code], order)


def _read(
    extents: Extents, order: Ints, queues: Queues, whole: History, arrived: History, layout: pa.StructType
) -> tuple[pa.StructArray, Ints]:
    """Read the old tuples of the keys whose windows close; find each window's tuples among them and the new ones."""
    closing = np.zeros(len(queues.lengths), bool)
    closing[extents.key] = True
    old = queues.first(np.where(closing, queues.lengths, 0), layout)
    low, high, key = extents.low[order], extents.high[order], extents.key[order]
    total = int((high - low).sum())
    rows: Ints = _rows(
        key,
        low,
        high,
        whole.starts,
        whole.fresh,
        old.offsets,
        arrived.starts,
        arrived.order,
        len(old.tuples),
        total,
    )
    return old.tuples, rows


@compiled(types=("i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, i8",))
def _rows(key, low, high, starts, fresh, old_at, new_at, new_order, old_rows, total):  # type: ignore[no-untyped-def]
    rows = np.empty(total, np.int64)
    at = 0
    for i in range(len(key)):
        k = key[i]
        for row in range(low[i], high[i]):
            if row < fresh[k]:
                rows[at] = old_at[k] + row - starts[k]
            else:
                rows[at] = old_rows + new_order[new_at[k] + row - fresh[k]]
            at += 1
    return rows
