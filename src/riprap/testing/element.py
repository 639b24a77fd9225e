"""A processing element in the memory of a test: its state, what has come in by channel, and what a crash takes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.compiler import Plan
from riprap.faults.feeds import read_tables
from riprap.faults.replay import Player, StreamPiece, concatenate
from riprap.graph.graph import Graph
from riprap.graph.regions import policy_of
from riprap.kernels.given import Pages
from riprap.operators.channel import Inlet, Outlet
from riprap.operators.custom.instances import KEPT
from riprap.operators.lookup import Lookup
from riprap.operators.source import Source
from riprap.protection import OperatorOutage, Policy
from riprap.stage.arrival import ReadRows
from riprap.stage.fused import State
from riprap.stage.plan import is_clock
from riprap.state.checkpoints.index import Came, Index
from riprap.state.checkpoints.restoring import cap_page
from riprap.state.hashing import Hashes
from riprap.state.windows import merge, restrict

DeathStep = Literal["idle", "computed", "recorded", "published"]
Lost = Literal["process", "host"]


@dataclass(frozen=True, slots=True)
class Death:
    """At which step of its next batch an element dies, and whether its host's memory goes with the process."""

    step: DeathStep
    lost: Lost


@dataclass(frozen=True, slots=True)
class HandedOn:
    """What sinks and channels get of a batch; ``again`` if a crash let them have it a second time."""

    outputs: Mapping[str, StreamPiece]
    again: bool = False


@dataclass(frozen=True, slots=True)
class _ComputedBatch:
    outputs: Mapping[str, StreamPiece]
    state: State
    came: Mapping[str, Sequence[Came]]


@dataclass(slots=True)
class _SavedState:
    """What was saved of an operator, after how many batches, and how many tuples of each key have come in since."""

    batch: int
    state: State
    came: dict[str, list[Came]] = field(default_factory=dict)


class RehearsedElement:
    """A processing element, and what it remembers. ``waiting`` is what has come in by channel."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.plan = plan
        self.waiting: dict[str, list[StreamPiece]] = {stream: [] for stream in plan.inlets}
        self.crash: Death | None = None
        self._graph = graph
        self._read = dict.fromkeys((entry.name for entry in plan.entries), 0)
        self._batch = -1
        self._state: State = Player(plan).begin()
        self._saved: dict[str, _SavedState] = {}

    def run(self, rows: Mapping[str, ReadRows], *, tasks: int = 1, end: int | None = None) -> HandedOn:
        """Run a batch, the buckets dealt out to ``tasks``, through the crash that was asked for if there is one."""
        crash, self.crash = self.crash or Death("idle", "process"), None
        computed = self._compute(rows, tasks, end)
        if crash.step == "computed":
            if self.come_back(crash.lost):
                return HandedOn({})
            computed = self._compute(rows, tasks, end)
        self._record(computed)
        if crash.step in ("recorded", "published"):
            self.come_back(crash.lost)
        # With the host go pages of results, unless what they were made of is kept and computed again.
        whole = crash.lost == "process" or self.plan.replays
        if crash.step == "recorded" and not whole:
            return HandedOn({})
        return HandedOn(computed.outputs, again=crash.step == "published" and whole)

    def _compute(self, rows: Mapping[str, ReadRows], tasks: int, end: int | None) -> _ComputedBatch:
        dealt = min(tasks, self.plan.buckets) if self.plan.keyed else 1
        plan = replace(self.plan, tasks=dealt)
        tables = read_tables(self._graph) if self.plan.graph.of_kind(Lookup) else {}
        played = []
        for task in range(dealt):
            player, state = Player(plan, tables, task), self._state
            if dealt > 1:
                span = plan.span(task)
                state = {
                    slot: [restrict(p, *span, plan.buckets) for p in pages] for slot, pages in state.items()
                }
            played.append(player.play(player.arrive(rows, block=self._batch + 1), state, end=end))
        return _ComputedBatch(
            {name: concatenate([p.outputs[name] for p in played]) for name in played[0].outputs},
            {slot: _joined([p.state[slot] for p in played]) for slot in self._state},
            {
                slot: [Came.of(Index.of(p.fresh[slot])) for p in played if slot in p.fresh]
                for slot in self._state
            },
        )

    def _record(self, computed: _ComputedBatch) -> None:
        self._batch += 1
        self._state = computed.state
        for saved in self._saved.values():
            for slot in saved.state:
                saved.came.setdefault(slot, []).extend(computed.came[slot])

    def save(self, operator: str) -> None:
        """Save an operator's state, as a checkpoint does."""
        slots = self.plan.saved_slots(operator)
        self._saved[operator] = _SavedState(self._batch, {slot: self._state[slot] for slot in slots})

    def come_back(self, lost: Lost) -> bool:
        """Death, and start again as policies have it; say whether input was missed."""
        forget_instances()
        memory: Literal["lost", "kept"] = "lost" if lost == "host" else "kept"
        outage = OperatorOutage(misses=self.plan.restart == "live" and bool(self.plan.inlets), memory=memory)
        operators = [self._graph[o.name] for o in self.plan.graph if not isinstance(o, Inlet | Outlet)]
        after = {o.name: (policy_of(self._graph, o.name) or Policy()).after(o, outage) for o in operators}
        state, told = dict(self._state), self._batch + 1
        for slot in state:
            if is_clock(slot) and lost == "host" and not self.plan.replays:
                state[slot] = ()
        for operator in operators:
            back, saved = after[operator.name], self._saved.get(operator.name)
            own = [slot for slot in self.plan.saved_slots(operator.name) if not is_clock(slot)]
            if back.holds == "empty" or (back.holds == "older" and saved is None):
                state |= dict.fromkeys(own, ())
            elif back.holds == "older" and saved is not None:
                slides = {f"{operator.name}/{slot}" for slot in operator.slides}
                state |= {s: _without_stale(saved, s) if s in slides else saved.state[s] for s in own}
                if saved.batch < told:
                    # Of several times told, the earliest closes no window unseen.
                    state |= {slot: pages for slot, pages in saved.state.items() if is_clock(slot)}
                    told = saved.batch
        self._state = state
        missed = any(back.misses for back in after.values())
        if missed:
            for pieces in self.waiting.values():
                pieces.clear()
        return missed

    def take_in(self) -> dict[str, ReadRows]:
        """Return all that has come in by channel."""
        rows = {}
        for stream, pieces in self.waiting.items():
            there = [piece for piece in pieces if piece.rows or piece.punctuations]
            rows[stream] = concatenate(there).as_rows() if there else self._nothing(stream)
            pieces.clear()
        return rows

    def _nothing(self, stream: str) -> ReadRows:
        none = np.empty(0, np.int64)
        columns = {f.name: pa.array([], f.type) for f in self.plan.graph[stream].schema}
        return ReadRows(columns, none, (none,) * self.plan.inlets[stream].tags)

    def rows(self, source: Source, table: pa.Table) -> ReadRows:
        """Return rows of a source, numbered on from those before."""
        columns = {name: _one(table.column(name)) for name in sorted(self.plan.needed[source.name])}
        first = self._read[source.name]
        self._read[source.name] += table.num_rows
        if source.position is not None:
            return ReadRows(columns, table.column(source.position).to_numpy())
        return ReadRows(columns, np.arange(first, first + table.num_rows))


def forget_instances() -> None:
    """Forget the instances of users' classes that wait in this process, as if it were another."""
    for instance in KEPT.instances.values():
        instance.permits.abandon()
    KEPT.instances.clear()


def _joined(parts: Sequence[Pages]) -> Pages:
    """Put the pages of several tasks together: a page a task, so that they do not become ever more."""
    if len(parts) == 1:
        return parts[0]
    return [reduce(merge, pages) for pages in parts if pages]


def _without_stale(saved: _SavedState, slot: str) -> Pages:
    """Leave out as many of the oldest tuples of each key as have come in since they were saved."""
    pages, since = saved.state[slot], Came.over(saved.came.get(slot, []))
    if not pages or not len(since.hashes):
        return pages

    def left(hashes: Hashes, held: Ints) -> Ints:
        at = np.minimum(np.searchsorted(since.hashes, hashes), len(since.hashes) - 1)
        return np.maximum(held - np.where(since.hashes[at] == hashes, since.counts[at], 0), 0)

    cap = cap_page(list(pages), left)
    return pages if cap is None else (cap, *pages)


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
