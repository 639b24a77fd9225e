"""Find the windows that are due in a batch, as runs of rows of each key's history.

This is the one place that knows how windows fill, slide, close and put out. What is computed over them is not its
business: it gives, for each output, the first row of the window, the row after its last, and the event that made it
due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from riprap.arrays import Ints, Numbers
from riprap.kernels.events import Events
from riprap.kernels.given import Given
from riprap.kernels.history import History
from riprap.machine_code import compiled
from riprap.windows import Emit, Every, Window

_COUNT, _TIME, _DELTA, _PUNCTUATION = range(4)
_TUPLES, _PERIOD, _CLOSE = range(3)
LONG_AGO = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Extents:
    """The windows that are due, key by key: window ``i`` is rows ``low[i]`` to ``high[i]`` of the history, for touched
    key ``key[i]``, because of event ``event[i]``. ``kept`` is the first row each touched key still holds, and ``late``
    how many tuples told an earlier time than their key's newest."""

    key: Ints
    low: Ints
    high: Ints
    event: Ints
    kept: Ints
    late: int


def find_extents(
    window: Window,
    emit: Emit,
    history: History,
    events: Events,
    given: Given,
    measured: Numbers,
    present: npt.NDArray[np.bool_],
    counters: Ints,
) -> Extents:
    """Run the window rules over a batch.

    ``measured`` has, along the history, the numbers that time or change is read off (as they were for old rows); it is
    overwritten with what counts for each row. ``present`` says where there is one. ``counters`` has each touched key's
    (tuples seen, newest number) and is brought up to date.
    """
    clocked = given.ticks is not None
    event = np.zeros(len(history.order), np.int64)
    event[history.place] = events.row_event
    size, period = _sizes(window, emit, measured)
    last = _unpack(counters[:, 1], window, measured)
    before = given.ticks.before if given.ticks is not None else None
    timed = window.time is not None and window.on is not None
    told = measured.copy() if timed else measured
    key, low, high, due, kept, seen, newest = _find(
        history.starts, history.fresh, event, measured, present,
        events.signal_event, events.is_tick, events.time,
        events.end_event[history.touched] if given.ends is not None else events.end_event,
        counters[:, 0].copy(), last, clocked, LONG_AGO if before is None else before,
        window.shape == "tumbling", _measure(window), size, _rule(emit), period, measured.dtype == np.int64,
    )  # fmt: skip
    if window.shape == "sliding" and isinstance(emit, Every) and emit.tuples not in (None, 1):
        counters[:, 0] = seen % emit.tuples
    if window.on is not None:
        counters[:, 1] = _pack(newest, window)
    late = int(np.count_nonzero(present & (told < measured))) if timed else 0
    return Extents(key, low, high, due, kept, late)


def _measure(window: Window) -> int:
    if window.punctuation:
        return _PUNCTUATION
    return _COUNT if window.tuples is not None else _TIME if window.time is not None else _DELTA


def _rule(emit: Emit) -> int:
    if not isinstance(emit, Every):
        return _CLOSE
    return _TUPLES if emit.tuples is not None else _PERIOD


def _sizes(window: Window, emit: Emit, measured: Numbers) -> tuple[Any, int]:
    size = next((s for s in (window.tuples, window.time, window.delta) if s is not None), 0)
    if measured.dtype == np.int64:
        # Whole numbers differ by more than 2.5 where they do by more than 2.
        size = min(int(size), np.iinfo(np.int64).max)
    period = (emit.tuples or emit.time or 1) if isinstance(emit, Every) else 1
    return measured.dtype.type(size), period


def _pack(newest: Numbers, window: Window) -> Ints:
    """Turn the newest numbers into counters that are 0 where there was none."""
    if newest.dtype == np.float64:
        return newest.view(np.int64)
    flipped: Ints = newest ^ LONG_AGO if window.time is not None else newest
    return flipped


def _unpack(counters: Ints, window: Window, measured: Numbers) -> Numbers:
    if measured.dtype == np.float64:
        return counters.copy().view(np.float64)
    return counters ^ LONG_AGO if window.time is not None else counters.copy()


@compiled(
    types=(
        "i8[::1], i8[::1], i8[::1], i8[::1], b1[::1], i8[::1], b1[::1], i8[::1], i8[::1], i8[::1], i8[::1], "
        "b1, i8, b1, i8, i8, i8, i8, b1",
    )
)
def _find(  # type: ignore[no-untyped-def]
    starts, fresh, event, measured, present, signal_event, is_tick, signal_time, end_event,
    seen, last, clocked, clock_time, tumbling, measure, size, rule, period, whole,
):  # fmt: skip
    out = np.empty((len(event) + 16, 4), np.int64)
    kept = np.empty(len(starts) - 1, np.int64)
    found = 0
    for k in range(len(starts) - 1):
        low, row, end, s = starts[k], fresh[k], starts[k + 1], 0
        now, tick_time, count = last[k], clock_time, seen[k]
        while row < end or s < len(signal_event):
            if found + 2 > len(out):
                out = _grown(out)
            is_signal = s < len(signal_event) and (row == end or signal_event[s] < event[row])
            happens = signal_event[s] if is_signal else event[row]
            # 1. Time goes on, and passes the moments at which an output is due or a window closes.
            moved = False
            before = tick_time
            after = tick_time
            if is_signal and is_tick[s]:
                after = max(signal_time[s], tick_time)
                tick_time = after
                moved = True
            elif not is_signal and not clocked and measure == _TIME:
                before = np.int64(now)
                after = max(np.int64(measured[row]) if present[row] else before, before)
                moved = True
            if moved and before == LONG_AGO and after != LONG_AGO and measure == _TIME and not tumbling:
                # What came before time began is as old as can be.
                low = row
            if moved and row > low and tumbling and measure == _TIME:
                if after // np.int64(size) > before // np.int64(size):
                    if rule == _CLOSE:
                        found = _put(out, found, k, low, row, happens)
                    low = row
            elif moved and row > low and rule == _PERIOD:
                moment = (before // period + 1) * period
                if measure != _TIME and moment <= after:
                    found = _put(out, found, k, low, row, happens)
                while measure == _TIME and moment <= after and low < row:
                    while low < row and measured[low] < moment - size:
                        low += 1
                    if found + 2 > len(out):
                        out = _grown(out)
                    if low < row:
                        found = _put(out, found, k, low, row, happens)
                    moment += period
            # 2. What happens changes the window.
            if is_signal:
                if not is_tick[s] and measure == _PUNCTUATION:
                    if row > low and rule == _CLOSE:
                        found = _put(out, found, k, low, row, happens)
                    low = row
                s += 1
            else:
                if measure == _TIME:
                    now = after
                elif measure == _DELTA:
                    now = measured[row] if present[row] else now
                    if tumbling and row > low and _differ(now, measured[low], size, whole):
                        if rule == _CLOSE:
                            found = _put(out, found, k, low, row, happens)
                        low = row
                measured[row] = now
                row += 1
                count += 1
            # 3. Old tuples leave.
            if not tumbling:
                if measure == _COUNT:
                    low = max(low, row - np.int64(size))
                elif measure == _TIME and after != LONG_AGO:
                    while low < row and measured[low] <= after - size:
                        low += 1
                elif measure == _DELTA and not is_signal:
                    while low < row and _differ(now, measured[low], size, whole):
                        low += 1
            # 4. A tuple may be the one after which an output is due, or the one that fills the window.
            if is_signal:
                continue
            if rule == _TUPLES and (period == 1 or (row - low if tumbling else count) % period == 0):
                found = _put(out, found, k, low, row, happens)
            if tumbling and measure == _COUNT and row - low == size:
                if rule == _CLOSE:
                    found = _put(out, found, k, low, row, happens)
                low = row
        # 5. At the end of the input windows close, and what would be due next is put out.
        if len(end_event) and row > low:
            if found + 2 > len(out):
                out = _grown(out)
            time = tick_time if clocked else np.int64(now) if measure == _TIME else LONG_AGO
            if tumbling or (rule == _PERIOD and measure != _TIME):
                if rule != _TUPLES:
                    found = _put(out, found, k, low, row, end_event[k])
                low = row if tumbling else low
            elif rule == _PERIOD and time != LONG_AGO:
                moment = (time // period + 1) * period
                while low < row and measured[low] < moment - size:
                    low += 1
                if low < row:
                    found = _put(out, found, k, low, row, end_event[k])
        kept[k] = low
        seen[k] = count
        last[k] = now
    return (
        out[:found, 0].copy(),
        out[:found, 1].copy(),
        out[:found, 2].copy(),
        out[:found, 3].copy(),
        kept,
        seen,
        last,
    )


@compiled
def _differ(one, other, size, whole):  # type: ignore[no-untyped-def]
    low, high = min(one, other), max(one, other)
    # The difference of two whole numbers may be more than fits; a size fits on top of a negative one.
    return high > low + size if whole and low < 0 else high - low > size


@compiled(inline="always")
def _put(out, found, k, low, high, happens):  # type: ignore[no-untyped-def]
    out[found, 0] = k
    out[found, 1] = low
    out[found, 2] = high
    out[found, 3] = happens
    return found + 1


@compiled
def _grown(out):  # type: ignore[no-untyped-def]
    larger = np.empty((2 * len(out), 4), np.int64)
    larger[: len(out)] = out
    return larger
