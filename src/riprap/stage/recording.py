"""What a task does beside computing where an operator records its open windows in its output log.

    a new batch            compute -> records of what opened, closed, and is due (`riprap.state.footprints`)
    one computed again     rows of windows whose records are of this batch or later are left out -> compute -> those
                           windows whose records are of this batch are put in, as they were at its end

A window comes into the state with the batch of its record, and nothing of it is there before: so no kernel need know of
all this, and none ever sees a part of a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.arrays import Bools
from riprap.graph.operator import Operator
from riprap.kernels.chunk import Chunk
from riprap.stage.arrival import Arrival
from riprap.stage.batch import clock_time
from riprap.stage.fused import Outcome, State
from riprap.stage.plan import Plan, clock_slot, records_slot
from riprap.state.footprints import (
    CHECK,
    CheckOrder,
    Footprints,
    TouchedState,
    find_footprints,
    kinds_in,
    later,
    pages_at,
)
from riprap.state.hashing import Hashes
from riprap.state.pages import PageStore
from riprap.state.windows import restrict


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """What of a batch is to be recorded beside what must be.

    If the batch is computed again, ``recollection`` names the page with the windows that were found in the log.
    """

    upto: int = -1
    most: int = 0
    recollection: str | None = None


@dataclass(slots=True)
class Recording:
    """A task's part in it, for one batch: ``control`` is the page of records, None if there are none."""

    plan: Plan
    batch: int
    order: RecordOrder
    recollection: pa.RecordBatch | None
    control: pa.RecordBatch | None = None
    _read: int = 0
    _checks: int = 0
    _clock: int | None = None

    @classmethod
    def of(
        cls, plan: Plan, pages: PageStore, span: tuple[int, int], batch: int, order: RecordOrder
    ) -> Recording | None:
        """Take up the order for a batch; None where no windows are recorded."""
        if plan.recorded is None:
            return None
        page = None
        if order.recollection is not None:
            page = restrict(pages.read(order.recollection), *span, plan.buckets)
        return cls(plan, batch, order, page)

    def admit(self, arrival: Arrival) -> Arrival:
        """Return what arrived, without the rows of windows whose records hold the batch already."""
        self._read = sum(chunk.rows for name, chunk in arrival.chunks.items() if name not in arrival.ticks)
        return arrival if self.recollection is None else leave_out(arrival, self.recollection, self.batch)

    def note(
        self, state: State, outcome: Outcome, clock: Callable[[], float] = time.perf_counter
    ) -> Mapping[str, float]:
        """Record what is to be recorded, once the batch is computed from a state; return how long that took."""
        began = clock()
        footprints = record_windows(self.plan, state, outcome, self.batch, self.order)
        if footprints is not None:
            self.control = footprints.control
            self._checks = int(np.count_nonzero(kinds_in(footprints.control) == CHECK))
        if self.recollection is not None:
            put_in(self.plan, state, outcome, self.recollection, self.batch)
        self._clock = clock_after(self.plan, state, outcome)
        return {"record": clock() - began}

    @property
    def counts(self) -> Mapping[str, Any]:
        """How many tuples were read, the time of the operator's clock, and how many windows were recorded: ``checks``
        are those that need not have been."""
        records = 0 if self.control is None else self.control.num_rows
        return {"read": self._read, "clock": self._clock, "records": records, "checks": self._checks}


def record_windows(
    plan: Plan, state: State, outcome: Outcome, batch: int, order: RecordOrder
) -> Footprints | None:
    """Record the windows of a batch that was computed from a state, and keep in mind what is recorded."""
    operator = plan.recorded
    assert operator is not None
    slots, records = _slots(operator), records_slot(operator.name)
    touched = TouchedState(
        fresh={slot: outcome.fresh[slot] for slot in slots if slot in outcome.fresh},
        now={slot: outcome.pages_of(slot, state[slot]) for slot in slots},
        records=state[records],
        reopens=operator.reopens,
    )
    footprints = find_footprints(touched, batch, CheckOrder(order.upto, order.most))
    if footprints is not None:
        outcome.keep(records, footprints.index, state[records])
    return footprints


def clock_after(plan: Plan, state: State, outcome: Outcome) -> int | None:
    """Return the time of the clock that the operator hears, after a batch; None if there is none, or no tick yet."""
    operator = plan.recorded
    assert operator is not None
    if operator.clock is None:
        return None
    slot = clock_slot(operator.clock)
    return clock_time(outcome.pages_of(slot, state[slot]))


def leave_out(arrival: Arrival, recollection: pa.RecordBatch, batch: int) -> Arrival:
    """Leave out the rows of windows whose records hold a batch already."""
    known = later(recollection, batch)
    if not len(known):
        return arrival
    wanted = ~_among(arrival.keys.hashes, known)

    def cut(chunk: Chunk) -> Chunk:
        return chunk.take(np.flatnonzero(wanted[chunk.code])) if chunk.rows else chunk

    chunks = {n: chunk if n in arrival.ticks else cut(chunk) for n, chunk in arrival.chunks.items()}
    return replace(arrival, chunks=chunks)


def put_in(plan: Plan, state: State, outcome: Outcome, recollection: pa.RecordBatch, batch: int) -> None:
    """Put the windows whose records are of a batch into the state after it."""
    for slot, page in recollected(plan, recollection, batch).items():
        outcome.keep(slot, page, state[slot])


def recollected(plan: Plan, recollection: pa.RecordBatch, batch: int) -> Mapping[str, pa.RecordBatch]:
    """Return pages, by slot, with the windows whose records are of a batch."""
    operator = plan.recorded
    assert operator is not None
    pages, index = pages_at(recollection, batch)
    return pages if index is None else {**pages, records_slot(operator.name): index}


def _slots(operator: Operator) -> list[str]:
    return [f"{operator.name}/{slot}" for slot in operator.slots]


def _among(hashes: Hashes, known: Hashes) -> Bools:
    places = np.searchsorted(known, hashes)
    places[places == len(known)] = 0
    among: Bools = known[places] == hashes
    return among
