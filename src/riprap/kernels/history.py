"""Line up, key by key, what a window held before a batch and what came in with it.

The window of a key at any moment of the batch is then a run of consecutive rows, so kernels slide over plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints
from riprap.machine_code import compiled
from riprap.state.keys import Codes, KeyTable
from riprap.state.windows import Contents, make_page, ranges


@dataclass(frozen=True, slots=True)
class History:
    """Rows of old and new tuples. Those of touched key ``i`` are ``starts[i]`` to ``starts[i + 1]``; its new ones
    begin at ``fresh[i]``. ``place`` says where each tuple of the batch went."""

    touched: Ints
    starts: Ints
    fresh: Ints
    place: Ints
    order: Ints

    def line_up(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Put a column of old tuples and the same column of the batch into history order."""
        both = pa.concat_arrays([old, new]) if len(old) else new
        return both.take(pa.array(self.order))

    def line_up_numbers(self, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Put numbers of old tuples and of the batch's into history order."""
        both: npt.NDArray[Any] = np.concatenate([old, new])[self.order]
        return both

    def start_of(self, keys: int) -> tuple[Ints, Ints]:
        """Return, for every key of the batch's table, where its history starts and where its new tuples begin."""
        starts = np.zeros(keys, np.int64)
        fresh = np.zeros(keys, np.int64)
        starts[self.touched] = self.starts[:-1]
        fresh[self.touched] = self.fresh
        return starts, fresh

    def page(
        self,
        keys: KeyTable,
        new: pa.StructArray,
        low: Ints,
        counters: Ints,
        changed: npt.NDArray[np.bool_] | None = None,
    ) -> pa.RecordBatch | None:
        """Make the state page of what came in: of each touched key, the tuples of this batch from row ``low`` on.

        ``low`` is the first row each key still holds. Keys that got no tuple are in the page only where ``changed``
        says that they hold less than before, or that their counters differ.
        """
        counts = self.starts[1:] - self.fresh
        written = np.flatnonzero(counts > 0 if changed is None else (counts > 0) | changed)
        if not len(written):
            return None
        held = (self.starts[1:] - low)[written]
        kept = np.minimum(counts[written], held)
        rows = self.order[ranges(self.starts[1:][written] - kept, kept)] - self.old_rows
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=offsets[1:])
        contents = Contents(offsets, new.take(pa.array(rows)), counters[written])
        return make_page(keys.take(self.touched[written]), contents, held)

    @property
    def old_rows(self) -> int:
        return len(self.order) - len(self.place)


def line_up(code: Codes, touched: Ints, keys: int, old: Contents) -> History:
    """Line up a batch's tuples behind the old contents of the touched keys (``old`` is in the order of those)."""
    counts = np.bincount(code, minlength=keys)
    starts = np.zeros(len(touched) + 1, np.int64)
    np.cumsum(old.lengths + counts[touched], out=starts[1:])
    fresh = starts[:-1] + old.lengths
    next_place = np.zeros(keys, np.int64)
    next_place[touched] = fresh
    order, place = _scatter(code, next_place, starts, old.offsets)
    return History(touched, starts, fresh, place, order)


@compiled(types=("i4[::1], i8[::1], i8[::1], i8[::1]",))
def _scatter(code, next_place, starts, old_offsets):  # type: ignore[no-untyped-def]
    old_rows = old_offsets[-1]
    order = np.empty(old_rows + len(code), np.int64)
    place = np.empty(len(code), np.int64)
    for i in range(len(starts) - 1):
        for j in range(old_offsets[i + 1] - old_offsets[i]):
            order[starts[i] + j] = old_offsets[i] + j
    for row in range(len(code)):
        at = next_place[code[row]]
        next_place[code[row]] = at + 1
        order[at] = old_rows + row
        place[row] = at
    return order, place
