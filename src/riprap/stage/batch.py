"""A task's part of a batch: its rows put in order, clocks told, and the operators run on the state before.

Tasks of a run leave what comes of it as pages (`riprap.runtime.task`); fault injection keeps it in memory
(`riprap.faults.replay`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from riprap.kernels.given import Pages
from riprap.stage.arrival import Arrival, ReadRows, arrive
from riprap.stage.fused import Outcome, State, run_stage
from riprap.stage.plan import Plan, clock_slot, is_bookkeeping
from riprap.state.hashing import first_hash
from riprap.state.keys import KeyTable
from riprap.state.windows import Contents, counters_of, gather, keys_in, make_page


def take_in(plan: Plan, rows: Mapping[str, ReadRows], span: tuple[int, int], *, batch: int) -> Arrival:
    """Put a batch's rows in order, those of the buckets of a span. Without state any row may be any task's."""
    return arrive(
        plan.entries,
        rows,
        batch=batch,
        aligned=plan.aligned,
        root=plan.origin + 2,
        span=span if plan.keyed else None,
        buckets=plan.buckets,
    )


def compute(
    plan: Plan,
    arrival: Arrival,
    state: State,
    span: tuple[int, int],
    *,
    end: int | None = None,
    tables: Mapping[str, pa.Table] | None = None,
    lead: bool = True,
    key: bytes = b"",
    watch: Collection[str] = (),
) -> Outcome:
    """Compute what arrived, from the state of a span's buckets.

    A batch without rows may be the ``end`` of the input: the number is the frontier of what is still put out. The rest
    is as for `run_stage`.
    """
    arrival, clocks = _keep_time(plan, arrival, state, span, ending=end is not None)
    if end is not None:
        arrival = arrival.ended(end)
    outcome = run_stage(plan, arrival, state, tables=tables, lead=lead, key=key, watch=watch)
    for slot, page in clocks.items():
        outcome.keep(slot, page, state[slot])
    return outcome


def _keep_time(
    plan: Plan,
    arrival: Arrival,
    state: State,
    span: tuple[int, int],
    *,
    ending: bool = False,
) -> tuple[Arrival, dict[str, pa.RecordBatch]]:
    """Tell the clocks' last ticks before the batch, and put every key that has state into an arrival that has marks.

    Return also the pages that say each clock's time from now on: one row for every bucket, so that they can be dealt
    out with the buckets.
    """
    clock_keys = _clock_keys(plan, span)
    ticks, pages = {}, {}
    for clock, clock_ticks in arrival.ticks.items():
        slot = clock_slot(clock)
        ticked, last = gather(state[slot], clock_keys, pa.struct([]), counters=2).counters.max(axis=0)
        ticks[clock] = replace(clock_ticks, before=int(last) if ticked else None)
        if len(clock_ticks.time):
            latest = max(int(clock_ticks.time.max()), int(last)) if ticked else int(clock_ticks.time.max())
            pages[slot] = _clock_page(clock_keys, latest)
    arrival = replace(arrival, ticks=ticks)
    if ending or (arrival.marked and any(o.heeds or o.clock for o in plan.graph)):
        # Only operators that have the stage's key: what is kept otherwise is in one bucket, under a key of its own.
        kept = [
            keys_in(p) for slot, slot_pages in state.items() if not is_bookkeeping(slot) for p in slot_pages
        ]
        kinds = [c.type for c in arrival.keys.columns]
        arrival = arrival.widen(k for k in kept if [c.type for c in k.columns] == kinds)
    return arrival, pages


def clock_page(plan: Plan, time: int) -> pa.RecordBatch:
    """Make the page that says a clock's time to all buckets."""
    return _clock_page(_clock_keys(plan, (0, plan.buckets)), time)


def clock_time(pages: Pages) -> int | None:
    """Return the time of a clock by its pages, None if it has not ticked. It never falls."""
    return max((int(counters_of(page)[:, 1].max()) for page in pages if page.num_rows), default=None)


def _clock_keys(plan: Plan, span: tuple[int, int]) -> KeyTable:
    buckets = range(*span)
    hashes = np.array([first_hash(b, plan.buckets) for b in buckets], np.uint64)
    return KeyTable(hashes, (), np.zeros(len(buckets), bool))


def _clock_page(keys: KeyTable, time: int) -> pa.RecordBatch:
    counters = np.column_stack([np.ones(len(keys), np.int64), np.full(len(keys), time)])
    nothing = pa.array([], pa.struct([]))
    return make_page(keys, Contents(np.zeros(len(keys) + 1, np.int64), nothing, counters))
