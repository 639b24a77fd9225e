"""Run the fused operators of a processing element over a batch, by plain function calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.errors import OperatorError, RiprapError
from riprap.graph.operator import Operator
from riprap.kernels.chunk import EVERY, Chunk, merge_streams
from riprap.kernels.given import Given, Pages, Result
from riprap.kernels.user_code import FAILURES, describe
from riprap.stage.arrival import Arrival
from riprap.stage.plan import Plan
from riprap.state.windows import add_page, merge

State = Mapping[str, Pages]
Kernel = Callable[[Given], Result]


@dataclass(frozen=True, slots=True)
class OperatorActivity:
    """What an operator did in a batch.

    ``ports`` and ``streams`` say how many tuples came in by each port and went out on each stream, where that is not
    said already: where there are several. ``marks_in`` and ``marks_out`` are punctuations, ``late`` is how many tuples
    came after newer ones of their key.
    """

    tuples_in: int
    tuples_out: int
    seconds: float
    ports: tuple[int, ...] = ()
    streams: Mapping[str, int] = field(default_factory=dict)
    marks_in: int = 0
    marks_out: int = 0
    late: int = 0


@dataclass(slots=True)
class Outcome:
    """What a batch came to: its input, rows for each sink and outlet, new pages by ``operator/slot`` (with how many of
    the newest older pages each replaces), what each operator did, what came in with the batch alone, by slot, and the
    streams that were to be watched."""

    arrival: Arrival
    outputs: dict[str, Chunk] = field(default_factory=dict)
    pages: dict[str, tuple[pa.RecordBatch, int]] = field(default_factory=dict)
    activity: dict[str, OperatorActivity] = field(default_factory=dict)
    fresh: dict[str, pa.RecordBatch] = field(default_factory=dict)
    watched: dict[str, Chunk] = field(default_factory=dict)

    def keep(self, slot: str, page: pa.RecordBatch, older: Pages) -> None:
        """Add a page to a slot's state, merging it with older ones where that is due."""
        self.fresh[slot] = merge(page, self.fresh[slot]) if slot in self.fresh else page
        if slot in self.pages:
            newest, replaced = self.pages[slot]
            page, more = add_page(merge(page, newest), older[replaced:])
            self.pages[slot] = (page, replaced + more)
        else:
            self.pages[slot] = add_page(page, older)

    def pages_of(self, slot: str, older: Pages) -> Pages:
        """Return a slot's pages as they are now, newest first."""
        newest, replaced = self.pages.get(slot, (None, 0))
        return older if newest is None else (newest, *older[replaced:])


def run_stage(
    plan: Plan,
    arrival: Arrival,
    state: State,
    *,
    tables: Mapping[str, pa.Table] | None = None,
    lead: bool = True,
    key: bytes = b"",
    watch: Collection[str] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Run every operator once, each after its inputs; then let control ports have what reached them.

    ``tables`` are those of lookups. Of several tasks one is the ``lead``, which alone passes on what all of them got.
    ``key`` seals objects of users' classes in pages that others might get at. ``watch`` names streams of which the
    outcome is to have all tuples.
    """
    graph = plan.graph
    stage = _Stage(plan, state, tables or {}, key, Outcome(arrival), dict(arrival.chunks), clock)
    last = {stream: operator for operator in graph for stream in operator.inputs}
    kept = {stream for operator in graph for stream in operator.control}
    for operator in graph:
        if not operator.ports:
            rows = stage.chunks[operator.name].rows
            stage.outcome.activity[operator.name] = OperatorActivity(rows, rows, 0.0)
        else:
            stage.run(operator, lead=lead)
        for stream in operator.outputs:
            if stream in watch:
                stage.outcome.watched[stream] = stage.chunks[stream]
        for stream in operator.inputs:
            if last[stream] is operator and stream not in kept:
                # Memory follows the widest part of the graph.
                stage.chunks.pop(stream, None)
    for operator in graph:
        if operator.control:
            stage.run_control(operator)
    return stage.outcome


@dataclass(frozen=True, slots=True)
class _Stage:
    """A batch on its way through the operators."""

    plan: Plan
    state: State
    tables: Mapping[str, pa.Table]
    key: bytes
    outcome: Outcome
    chunks: dict[str, Chunk]
    clock: Callable[[], float]

    def run(self, operator: Operator, *, lead: bool) -> None:
        began = self.clock()
        given = self._given(operator, self._inputs(operator))
        result = self._call(operator.run, operator, given, began)
        if not operator.outputs:
            (chunk,) = result.outputs
            self.outcome.outputs[operator.name] = chunk if lead else _own_marks(chunk)
        for stream, chunk in zip(operator.outputs, result.outputs, strict=False):
            self.chunks[stream] = chunk

    def _inputs(self, operator: Operator) -> tuple[Chunk, ...]:
        """Return the tuples of each port, with paths of one length.

        Where there are several streams, each adds its number to the path, so that no two tuples of what the operator
        puts out are at the same place.
        """
        streams = [s for port in operator.ports for s in port]
        depth = max(len(self.chunks[s].path) for s in streams)
        chunks = {s: self.chunks[s].deepen(depth) for s in streams}
        if len(streams) == 1:
            return (chunks[streams[0]],)
        numbers = iter(range(len(streams)))
        return tuple(
            merge_streams([chunks[s].append(next(numbers)) for s in port]) for port in operator.ports
        )

    def run_control(self, operator: Operator) -> None:
        control = merge_streams([self.chunks[s] for s in operator.control])
        given = replace(self._given(operator, ()), control=control)
        self._call(operator.steer, operator, given, self.clock())

    def _given(self, operator: Operator, inputs: tuple[Chunk, ...]) -> Given:
        return Given(
            inputs=inputs,
            keys=self.outcome.arrival.keys,
            pages={
                s: self.outcome.pages_of(f"{operator.name}/{s}", self._older(operator, s))
                for s in operator.slots
            },
            needed={stream: self.plan.needed[stream] for stream in operator.outputs},
            ticks=self.outcome.arrival.ticks[operator.clock] if operator.clock else None,
            table=self.tables.get(operator.name),
            tags=self.outcome.arrival.tags,
            origin=self.plan.origin if self.outcome.arrival.from_sources else self.plan.origin + 2,
            key=self.key,
            ends=self.outcome.arrival.ends,
        )

    def _older(self, operator: Operator, slot: str) -> Pages:
        return self.state.get(f"{operator.name}/{slot}", ())

    def _call(self, kernel: Kernel, operator: Operator, given: Given, began: float) -> Result:
        try:
            result = kernel(given)
        except RiprapError:
            raise
        except FAILURES as error:
            raise self._blame(kernel, operator, given, error) from error
        spent = self.clock() - began
        if given.control is not None:
            # By then the rest of the batch is done, and what comes by a control port makes no output.
            before = self.outcome.activity[operator.name]
            activity = replace(
                before, tuples_in=before.tuples_in + given.control.rows, seconds=before.seconds + spent
            )
        else:
            activity = _activity(operator, given, result, spent)
        self.outcome.activity[operator.name] = activity
        for slot, page in result.pages.items():
            self.outcome.keep(f"{operator.name}/{slot}", page, self._older(operator, slot))
        return result

    def _blame(self, kernel: Kernel, operator: Operator, given: Given, error: BaseException) -> OperatorError:
        """Find the first tuple on which the operator fails, by running it on ever shorter beginnings of the batch."""
        inputs = given.inputs or ((given.control,) if given.control else ())
        ranks = np.unique(np.concatenate([c.rank for c in inputs]))
        # The least number of tuples on which it fails again lies between these; one more than there are: on none.
        low, high = 0, len(ranks) + 1
        while low < high:
            middle = (low + high) // 2
            ends = (int(np.searchsorted(c.rank, ranks[middle - 1], "right")) if middle else 0 for c in inputs)
            until = tuple(c.slice(0, end) for c, end in zip(inputs, ends, strict=True))
            shorter = replace(given, inputs=until) if given.inputs else replace(given, control=until[0])
            try:
                kernel(shorter)
                low = middle + 1
            except FAILURES as again:
                error, high = again, middle
        where = "at a tick or a punctuation" if low == 0 else "at a tuple that could not be found again"
        if 0 < low <= len(ranks):
            arrival, origin = self.outcome.arrival, self.plan.origin
            tag = [int(column[int(ranks[low - 1])]) for column in arrival.tags]
            where = f"at tuple {tag}"
            if arrival.from_sources:
                where = f"at position {tag[origin + 1]} of source '{self.plan.sources[tag[origin]]}'"
        return OperatorError(
            f"{operator.kind} '{operator.name}' ({operator.location}) failed {where}: {describe(error)}"
        )


def _activity(operator: Operator, given: Given, result: Result, seconds: float) -> OperatorActivity:
    ports = tuple(c.rows for c in given.inputs)
    counts = tuple(c.rows for c in result.outputs)
    several = len(operator.outputs) > 1
    return OperatorActivity(
        sum(ports),
        sum(counts),
        seconds,
        # Of an operator with a control port the whole says less than its one port.
        ports=ports if len(ports) > 1 or operator.control else (),
        streams=dict(zip(operator.outputs, counts, strict=True)) if several else {},
        marks_in=sum(len(c.marks) for c in given.inputs),
        marks_out=sum(len(c.marks) for c in result.outputs),
        late=result.late,
    )


def _own_marks(chunk: Chunk) -> Chunk:
    """Leave out the punctuations that every task got."""
    if not len(chunk.marks):
        return chunk
    return replace(chunk, marks=chunk.marks.take(np.flatnonzero(chunk.marks.code != EVERY)))
