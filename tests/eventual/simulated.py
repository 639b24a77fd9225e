"""An operator that records its windows, computed in the memory of a test: what it puts out, and what is in its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.runtime.checkpointing.recollection import Recollection
from riprap.stage.arrival import ReadRows
from riprap.stage.batch import clock_page, compute, take_in
from riprap.stage.fused import Outcome, State
from riprap.stage.plan import clock_slot, records_slot
from riprap.stage.recording import (
    RecordOrder,
    clock_after,
    leave_out,
    put_in,
    recollected,
    record_windows,
)
from riprap.state.footprints import CLOSED, OPEN, ReadBack, holding, kinds_in
from riprap.state.windows import counters_of, gather, hashes_of, keys_in, merge, restrict

PUNCTUATION = "a punctuation"
Rows = Sequence[Mapping[str, Any] | str]
NOTHING_DUE = RecordOrder()
# Of each stream that comes in, its rows in a batch, and punctuations among them.
BatchRows = Mapping[str, Rows]


def plan_of(app: rr.Application, *, buckets: int = 4) -> Plan:
    """Return the plan of the one element that records its windows."""
    (plan,) = (
        p for p in compile_graph(app.graph(), buckets=buckets, tasks=1).plans if p.recorded is not None
    )
    return plan


@dataclass
class Segment:
    """What the log has of a batch."""

    outputs: list[dict[str, Any]]
    controls: list[pa.RecordBatch]
    open: int
    clock: int | None


@dataclass
class SimulatedElement:
    """The operator at work. ``log`` has a segment a batch, ``input`` what each batch had."""

    plan: Plan
    state: dict[str, Sequence[pa.RecordBatch]] = field(default_factory=dict)
    log: list[Segment] = field(default_factory=list)
    input: list[tuple[BatchRows, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = dict.fromkeys(self.plan.slots, ())

    @property
    def open(self) -> int:
        return self.log[-1].open if self.log else 0

    def run(
        self, rows: BatchRows, *, tasks: int = 1, order: RecordOrder = NOTHING_DUE, ends: bool = False
    ) -> None:
        """Compute a batch, and put it into the log."""
        batch = len(self.log)
        outputs, controls, clock = self._compute(rows, batch, tasks, order, None, ends)
        kinds = np.concatenate([kinds_in(c) for c in controls]) if controls else np.empty(0, np.int8)
        now = self.open + int((kinds == OPEN).sum()) - int((kinds == CLOSED).sum())
        self.log.append(Segment(outputs, controls, now, clock))
        self.input.append((rows, tasks, ends))

    def lose(self, upto: int) -> Recollection:
        """Lose all memory, and come back from the log up to a batch; return what was found there.

        What is computed again beyond that batch is compared with what the log has of it.
        """
        found = ReadBack(self.log[upto].open if upto >= 0 else 0)
        for batch in range(upto, -1, -1):
            if found.complete:
                break
            for control in self.log[batch].controls:
                found.add(batch, control)
        oldest, page = found.recollect()
        base = upto if oldest is None else oldest
        clock = self.log[base].clock if base >= 0 else None
        recollection = Recollection(batch=upto, base=base, page=page, clock=clock)
        self.come_back(recollection)
        return recollection

    def come_back(self, found: Recollection) -> None:
        """Lose all memory, and come back by what was found in a log."""
        self.state = dict.fromkeys(self.plan.slots, ())
        if found.page is not None:
            for slot, page in recollected(self.plan, found.page, found.base).items():
                self.state[slot] = (page,)
        operator = self.plan.recorded
        assert operator is not None
        if found.clock is not None:
            assert operator.clock is not None
            self.state[clock_slot(operator.clock)] = (clock_page(self.plan, found.clock),)
        for batch in range(found.base + 1, len(self.log)):
            rows, tasks, ends = self.input[batch]
            outputs, controls, clock = self._compute(rows, batch, tasks, NOTHING_DUE, found.page, ends)
            if batch <= found.batch:
                assert not controls, "what is in the log is recorded once more"
            else:
                assert outputs == self.log[batch].outputs, f"batch {batch} comes out otherwise"
                # What was due then is not now.
                self.log[batch] = replace(self.log[batch], controls=controls)
            assert clock == self.log[batch].clock

    def contents(self) -> dict[str, dict[int, Any]]:
        """Return what each key holds, slot by slot; without the index, which may be older after a loss."""
        found: dict[str, dict[int, Any]] = {}
        for slot, pages in self.state.items():
            if not pages or slot == records_slot(self._name):
                continue
            held: dict[int, Any] = {}
            for page in pages:
                keys = keys_in(page)
                layout, width = page.column("window").type.value_type, counters_of(page).shape[1]
                contents = gather(list(pages), keys, layout, width)
                for i, key in enumerate(keys.hashes):
                    tuples = contents.tuples[contents.offsets[i] : contents.offsets[i + 1]].to_pylist()
                    numbers = contents.counters[i].tolist()
                    if tuples or any(numbers):
                        held[int(key)] = (tuples, numbers)
            if held:
                found[slot] = held
        return found

    def check_index(self) -> None:
        """Check that the windows that are open are those whose record is known, and that so many are open."""
        own = [pages for slot, pages in self.state.items() if slot.startswith(f"{self._name}/")]
        holders = set()
        for pages in own:
            hashes = (
                np.unique(np.concatenate([hashes_of(p) for p in pages])) if pages else np.empty(0, np.uint64)
            )
            holders |= set(hashes[holding(pages, hashes)].tolist())
        index = self.state[records_slot(self._name)]
        known = np.unique(np.concatenate([hashes_of(p) for p in index])) if index else np.empty(0, np.uint64)
        assert holders == set(known[holding(index, known)].tolist())
        assert len(holders) == self.open

    @property
    def _name(self) -> str:
        assert self.plan.recorded is not None
        return self.plan.recorded.name

    def _compute(
        self,
        rows: BatchRows,
        batch: int,
        tasks: int,
        order: RecordOrder,
        recollection: pa.RecordBatch | None,
        ends: bool,
    ) -> tuple[list[dict[str, Any]], list[pa.RecordBatch], int | None]:
        dealt = min(tasks, self.plan.buckets)
        plan = replace(self.plan, tasks=dealt)
        read = {e.name: self._read(e.name, number, rows, batch) for number, e in enumerate(plan.entries)}
        outcomes: list[tuple[State, Outcome]] = []
        outputs, controls, clocks = [], [], set()
        for task in range(dealt):
            span = plan.span(task)
            arrival = take_in(plan, read, span, batch=batch)
            own = [restrict(recollection, *span, plan.buckets)] if recollection is not None else []
            for page in own:
                arrival = leave_out(arrival, page, batch)
            state = {s: [restrict(p, *span, plan.buckets) for p in pages] for s, pages in self.state.items()}
            outcome = compute(plan, arrival, state, span, end=batch if ends else None, lead=task == 0)
            footprints = record_windows(plan, state, outcome, batch, order)
            if footprints is not None:
                controls.append(_travelled(footprints.control))
            for page in own:
                put_in(plan, state, outcome, page, batch)
            clocks.add(clock_after(plan, state, outcome))
            outcomes.append((state, outcome))
            (chunk,) = outcome.outputs.values()
            tags = outcome.arrival.tags_at(chunk.rank, chunk.path)
            table = pa.table({n: chunk.columns[n] for n in sorted(chunk.columns)})
            table = table.append_column(
                "$tag", pa.array(np.column_stack(tags).tolist(), pa.list_(pa.int64()))
            )
            outputs += table.to_pylist()
        for slot in self.state:
            parts = [outcome.pages_of(slot, state[slot]) for state, outcome in outcomes]
            self.state[slot] = parts[0] if dealt == 1 else [reduce(merge, pages) for pages in parts if pages]
        assert len(clocks) == 1
        return sorted(outputs, key=lambda row: row["$tag"]), controls, clocks.pop()

    def _read(self, stream: str, number: int, rows: BatchRows, batch: int) -> ReadRows:
        schema = self.plan.graph[stream].schema
        both = list(rows.get(stream, ()))
        marks = np.flatnonzero([each == PUNCTUATION for each in both])
        given = [each for each in both if each != PUNCTUATION]
        table = pa.Table.from_pylist(given, schema)

        def tags_at(places: np.ndarray) -> tuple[np.ndarray, ...]:
            head = (np.full(len(places), batch), np.full(len(places), number), places)
            more = (np.zeros(len(places)),) * (self.plan.inlets[stream].tags - 3)
            return tuple(numbers.astype(np.int64) for numbers in (*head, *more))

        places = np.setdiff1d(np.arange(len(both)), marks)
        columns = {
            name: table.column(name).combine_chunks()
            if table.num_rows
            else pa.array([], schema.field(name).type)
            for name in schema.names
        }
        punctuations = tags_at(marks) if len(marks) else ()
        return ReadRows(columns, np.arange(len(given)), tags_at(places), punctuations)


def _travelled(page: pa.RecordBatch) -> pa.RecordBatch:
    """Return a page as it is after it was written and read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.schema) as writer:
        writer.write_batch(page)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def check_losses(
    app: Callable[[], rr.Application],
    batches: Sequence[BatchRows],
    orders: Sequence[RecordOrder],
    tasks: Sequence[int],
) -> SimulatedElement:
    """Run batches; lose everything after each, with the log up to each batch before, and compare."""
    golden = SimulatedElement(plan_of(app()))
    for number, rows in enumerate(batches):
        golden.run(rows, tasks=tasks[number % len(tasks)], order=orders[number % len(orders)])
        golden.check_index()
    golden.run({}, ends=True)
    golden.check_index()
    for upto in range(-1, len(batches) + 1):
        lost = SimulatedElement(golden.plan, log=list(golden.log), input=list(golden.input))
        assert lost.lose(upto).base <= upto
        assert lost.contents() == golden.contents()
        lost.check_index()
    return golden
