"""The windows of a batch, key by key: what they held before, what came in, and the page that says what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints, Numbers
from riprap.kernels.chunk import Chunk, order_numbers, struct_of
from riprap.kernels.events import Events
from riprap.kernels.extents import LONG_AGO, Extents, find_extents
from riprap.kernels.given import Given
from riprap.kernels.history import History, line_up
from riprap.state.windows import Contents, gather
from riprap.windows import Emit, Window

# Beside a window's tuples: how many tuples its key has seen, and the newest time or number of its key.
_COUNTERS = 2
# The field of a kept tuple with the time or number it counts with.
_MEASURED = "$measured"


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of the keys that a batch touches, as rows of a history."""

    history: History
    extents: Extents
    events: Events
    _old: Contents
    _new: pa.StructArray
    _counters: Ints
    _before: Ints

    @classmethod
    def of(
        cls, window: Window, emit: Emit, given: Given, values: Mapping[str, pa.Array], slot: str = "0"
    ) -> Windows:
        """Find the windows due over the tuples of port 0, of which ``values`` are to be kept."""
        chunk = given.inputs[0]
        events = Events.of(given)
        ticks = given.ticks is not None and len(given.ticks.rank) > 0
        counts = np.bincount(chunk.code, minlength=len(given.keys))
        every_key = ticks or (window.punctuation and len(chunk.marks) > 0) or given.ends is not None
        touched = np.arange(len(given.keys)) if every_key else np.flatnonzero(counts)
        numbers, present = measured_by(window, chunk)
        kept = {**values, **({_MEASURED: pa.array(numbers)} if _keeps_numbers(window) else {})}
        new = struct_of(kept, chunk.rows)
        old = gather(given.pages.get(slot, ()), given.keys.take(touched), new.type, _COUNTERS)
        history = line_up(chunk.code, touched, len(given.keys), old)
        before = old.counters.copy()
        measured, there = np.zeros(len(history.order), numbers.dtype), np.zeros(len(history.order), bool)
        if window.on is not None or _keeps_numbers(window):
            # Old numbers are kept as they count, so they need no second look.
            was = np.zeros(len(old.tuples), numbers.dtype)
            if _keeps_numbers(window):
                was = old.tuples.field(_MEASURED).to_numpy(zero_copy_only=False)
            measured = history.line_up_numbers(was, numbers)
            there = history.line_up_numbers(np.ones(len(old.tuples), bool), present)
        counters = old.counters.copy()
        extents = find_extents(window, emit, history, events, given, measured, there, counters)
        if _keeps_numbers(window):
            kept[_MEASURED] = pa.array(measured[history.place])
            new = struct_of(kept, chunk.rows)
        return cls(history, extents, events, old, new, counters, before)

    def column(self, name: str) -> pa.Array:
        """Return kept values along the history."""
        return self.history.line_up(self._old.tuples.field(name), self._new.field(name))

    def page(self, given: Given) -> pa.RecordBatch | None:
        """Make the page that says what the windows hold now; None where nothing changed."""
        held = self.history.starts[1:] - self.extents.kept
        changed = (held != self._old.lengths) | (self._counters != self._before).any(axis=1)
        return self.history.page(given.keys, self._new, self.extents.kept, self._counters, changed)


def _keeps_numbers(window: Window) -> bool:
    return window.delta is not None or (window.time is not None and window.shape == "sliding")


def measured_by(window: Window, chunk: Chunk) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return each tuple's time or number as it came, and where there is one."""
    if window.on is None:
        return np.full(chunk.rows, LONG_AGO), np.zeros(chunk.rows, bool)
    column = chunk.columns[window.on]
    present = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        # NaN differs from nothing by more than anything: like null, it changes nothing.
        return numbers, present & ~np.isnan(numbers)
    return order_numbers(column).copy(), present
