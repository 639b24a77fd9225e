"""Hold tuples back until they are due: delays and throttles.

What a key holds is a queue: tuples come due in the order in which they came. By a column's time, tuples let older ones
go; by a clock's, ticks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.durations import Duration
from riprap.errors import GraphError
from riprap.expressions import type_name
from riprap.graph.checks import Here, Inputs, Streams, has
from riprap.graph.operator import Needed, PassesOn, Traits, passed_on, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, order_numbers, struct_of
from riprap.kernels.events import Events, in_event_order
from riprap.kernels.extents import LONG_AGO
from riprap.kernels.given import Given, Result
from riprap.kernels.history import History, line_up
from riprap.kernels.queues import Queues
from riprap.machine_code import compiled
from riprap.operators.keyed import Keyed
from riprap.protection import Policy
from riprap.windows import microseconds

# Beside the tuples that wait: the newest time of the key, and when its last tuple was due. Both are kept with the sign
# turned over, so that 0 is LONG_AGO.
_COUNTERS = 2
_DUE = "due"
_FAR = np.iinfo(np.int64).max
# So far from the ends of 64 bits that no time plus this runs over.
LONGEST = 1 << 60
WAITING = Traits(
    does="lets tuples wait",
    state=("the tuples that wait, and when each is due",),
    pages="window groups",
    key="by, or none",
    stale="holds tuples that were put out since, and puts them out again",
    holds=True,
    punctuation="ends here",
)


@dataclass(frozen=True, slots=True)
class ClockTimes:
    """A clock's time over a batch: before its first tick, and from each tick on. It never goes back."""

    rank: Ints
    time: Ints

    @classmethod
    def of(cls, given: Given) -> ClockTimes | None:
        """Return what the operator's clock says, None where it has none."""
        ticks = given.ticks
        if ticks is None:
            return None
        before = LONG_AGO if ticks.before is None else ticks.before
        return cls(ticks.rank, np.maximum.accumulate(np.concatenate([[before], ticks.time])))

    @property
    def ticks(self) -> int:
        return len(self.rank)

    def heard(self, chunk: Chunk) -> Ints:
        """Return how many ticks came before each tuple; a tick comes after the tuples of its rank."""
        heard: Ints = np.searchsorted(self.rank, chunk.rank)
        return heard

    def at(self, chunk: Chunk) -> Ints:
        """Return the time at which each tuple comes."""
        return self.time[self.heard(chunk)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Keyed, PassesOn):
    """An operator in which tuples wait until they are due, key by key in order of arrival."""

    slots = ("0",)

    on: str | None = None

    @property
    def spacing(self) -> tuple[int, int]:
        """How much later a tuple is due than it comes, and than the one before it, in microseconds."""
        raise NotImplementedError

    @property
    def depth(self) -> int:
        return 2 if self.clock is not None else 1

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | frozenset(self.by) | named_column(self.on),)

    def layout(self, needed: Needed) -> str:
        return (
            f"time{of_column(self.on)} by {', '.join(self.by)}: {typed(self.schema, passed_on(self, needed))}"
        )

    def run(self, given: Given) -> Result:
        """Let go what comes due in a batch; return also the new state page."""
        (chunk,) = given.inputs
        events, clock, keys = Events.of(given), ClockTimes.of(given), len(given.keys)
        ticked = (clock is not None and clock.ticks > 0) or given.ends is not None
        touched = np.arange(keys) if ticked else np.flatnonzero(np.bincount(chunk.code, minlength=keys))
        columns = {f"c{i}": chunk.columns[name] for i, name in enumerate(sorted(given.needed[self.name]))}
        new = struct_of({_DUE: pa.array(np.zeros(chunk.rows, np.int64)), **columns}, chunk.rows)
        queues = Queues.of(given.pages.get("0", ()), given.keys.take(touched), _COUNTERS)
        counters = queues.counters ^ LONG_AGO
        until = _until(self, chunk, touched, clock, counters[:, 0])
        leaving = queues.lengths if given.ends is not None else queues.due(_DUE, until)
        old = queues.first(leaving, new.type)
        history = line_up(chunk.code, touched, keys, old)
        due = history.line_up_numbers(
            *(part.field(_DUE).to_numpy(zero_copy_only=False) for part in (old.tuples, new))
        )
        leaves, kept = _find(self, chunk, history, events, clock, due, counters)
        if given.ends is not None:
            stays = np.flatnonzero(leaves < 0)
            leaves[stays] = np.repeat(events.end_event[touched], np.diff(history.starts))[stays]
            kept = history.starts[1:]
        counters ^= LONG_AGO
        gone = np.flatnonzero(leaves >= 0)
        rows = gone[in_event_order(leaves[gone], len(events.rank))]
        index = pa.array(history.order[rows])
        put_out = {
            name: pa.concat_arrays([old.tuples.field(c), new.field(c)]).take(index)
            for name, c in zip(sorted(given.needed[self.name]), columns, strict=True)
        }
        code = np.repeat(touched, np.diff(history.starts))[rows].astype(np.int32)
        output = events.derive(leaves[rows], code, put_out, given, self.depth)
        new = struct_of({_DUE: pa.array(due[history.place]), **columns}, chunk.rows)
        held = queues.lengths - leaving + history.starts[1:] - kept
        changed = (held != queues.lengths) | (counters != queues.counters).any(axis=1)
        page = history.page(given.keys, new, history.starts[1:] - held, counters, changed)
        return Result(outputs=(output,), pages={"0": page} if page is not None else {})


def waiting(
    here: Here,
    stream: Streams,
    by: str | Sequence[str],
    on: str | None,
    clock: Stream | None,
    protect: Policy | None,
) -> dict[str, Any]:
    """Check what a delay or a throttle is given, and return its fields."""
    inputs = here.port(stream)
    keys = here.keys(by, inputs)
    return {
        **here.basics(inputs, protect=protect),
        "schema": inputs.schema,
        "clock": timing(here, inputs, on, clock),
        "by": keys,
        "on": on,
    }


def timing(here: Here, inputs: Inputs, on: str | None, clock: Stream | None) -> str | None:
    """Check what tells the time: a column or a clock, one of them."""
    if on is not None:
        if on not in inputs.schema.names:
            raise here.error(f"on= names column '{on}', which does not exist", has(inputs.schema))
        kind = inputs.schema.field(on).type
        if not pa.types.is_timestamp(kind):
            raise here.error(f"time is read off a timestamp, '{on}' is {type_name(kind)}", "Cast it")
    return here.clock(clock, needed=on is None, why="its time")


def duration(here: Here, time: Duration) -> int:
    try:
        return min(microseconds("time=", time), LONGEST)
    except GraphError as error:
        raise here.error(str(error), "Give it one greater than 0") from None


def named_column(column: str | None) -> frozenset[str]:
    return frozenset({column} if column else ())


def of_column(on: str | None) -> str:
    return f" of {on}" if on else ""


def _until(operator: Held, chunk: Chunk, touched: Ints, clock: ClockTimes | None, newest: Ints) -> Ints:
    """Return each touched key's time when the batch has been done."""
    if clock is not None:
        return np.full(len(touched), clock.time[-1])
    until = newest.copy()
    np.maximum.at(
        until, np.searchsorted(touched, chunk.code), order_numbers(chunk.columns[operator.on or ""])
    )
    return until


def _find(
    operator: Held,
    chunk: Chunk,
    history: History,
    events: Events,
    clock: ClockTimes | None,
    due: Ints,
    counters: Ints,
) -> tuple[Ints, Ints]:
    """Say at which event each row of the history leaves (-1: not yet), and the first row that each key still holds.

    ``due`` is filled in for what came in, and ``counters`` are brought up to date.
    """
    delay, gap = operator.spacing
    event, told = np.zeros(len(due), np.int64), np.zeros(len(due), np.int64)
    event[history.place] = events.row_event
    newest, spaced = counters[:, 0], counters[:, 1]
    if clock is None:
        told[history.place] = order_numbers(chunk.columns[operator.on or ""])
        leaves, kept = _leave_by_column(
            history.starts, history.fresh, event, told, due, newest, spaced, delay, gap
        )
        now: Ints | int = newest
    else:
        told[history.place] = clock.heard(chunk)
        tick = events.signal_event[events.is_tick]
        leaves, kept = _leave_by_clock(
            history.starts, history.fresh, event, told, due, clock.time, tick, spaced, delay, gap
        )
        now = int(clock.time[-1])
    # Where the next tuple is not held up by the last one, that is forgotten.
    spaced[spaced <= now + (delay - gap)] = LONG_AGO
    return leaves, kept


@compiled(inline="always")
def _due(now, spaced, delay, gap):  # type: ignore[no-untyped-def]
    """Return when a tuple that comes now is due: as long as there is no time, as soon as there is one."""
    if now == LONG_AGO:
        return LONG_AGO + 1
    return max(now + delay, spaced + gap if spaced < _FAR - gap else _FAR)


@compiled
def _leave_by_column(starts, fresh, event, time, due, newest, spaced, delay, gap):  # type: ignore[no-untyped-def]
    leaves = np.full(len(due), -1, np.int64)
    kept = starts[:-1].copy()
    for k in range(len(fresh)):
        for row in range(fresh[k], starts[k + 1]):
            now = max(newest[k], time[row])
            newest[k] = now
            due[row] = _due(now, spaced[k], delay, gap)
            if now != LONG_AGO:
                spaced[k] = due[row]
            while kept[k] <= row and due[kept[k]] <= now:
                leaves[kept[k]] = event[row]
                kept[k] += 1
    return leaves, kept


@compiled
def _leave_by_clock(starts, fresh, event, heard, due, time, tick, spaced, delay, gap):  # type: ignore[no-untyped-def]
    leaves = np.full(len(due), -1, np.int64)
    kept = starts[:-1].copy()
    for k in range(len(fresh)):
        for row in range(starts[k], starts[k + 1]):
            if row >= fresh[k]:
                now = time[heard[row]]
                due[row] = _due(now, spaced[k], delay, gap)
                if now != LONG_AGO:
                    spaced[k] = due[row]
                if due[row] <= now:
                    leaves[row] = event[row]
                    kept[k] += 1
                    continue
            # What is not due when it comes is due at a later tick, for the time of ticks rises.
            at = np.searchsorted(time[1:], due[row])
            if at < len(tick):
                leaves[row] = tick[at]
                kept[k] += 1
    return leaves, kept
