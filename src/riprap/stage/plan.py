"""What the compiler makes of a graph: plans, of which each is all that a task needs to know of its processing element.

They are the stage's own values, so that whoever computes a batch by one needs neither compiler nor runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from riprap.graph.graph import Graph, Restart
from riprap.graph.operator import Operator
from riprap.graph.regions import Region
from riprap.graph.replicas import Failover
from riprap.protection import Saving
from riprap.stage.arrival import Intake

_CLOCK = "clock/"
_RECORDS = "$records/"
# The driver process of elements that were given none.
MAIN = "main"


def clock_slot(clock: str) -> str:
    """Return the slot that holds a clock's time."""
    return f"{_CLOCK}{clock}"


def is_clock(slot: str) -> bool:
    """Say whether a slot holds a clock's time."""
    return slot.startswith(_CLOCK)


def records_slot(operator: str) -> str:
    """Return the slot that says, for each open window of an operator, which batch has its newest record."""
    return f"{_RECORDS}{operator}"


def is_bookkeeping(slot: str) -> bool:
    """Say whether a slot holds no state of an operator's, but a clock's time or what is recorded."""
    return slot.startswith((_CLOCK, _RECORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlan:
    """A stream on its way from one processing element to others that read it by one key.

    ``key`` is None where every reader takes all of it. ``root`` is what its frontiers count: batches of a processing
    element, or the ordering numbers of the whole application. ``marks`` is whether its segments have marks.

    Where ``group`` names a replica group, each of its replicas writes a log of its own, and ``failover`` says which of
    them is read. ``copies`` says of readers that are copies of an element of which group they are, and which replica.
    """

    name: str
    stream: str
    schema: pa.Schema
    key: tuple[str, ...] | None
    buckets: int
    tags: int
    writer: str
    readers: tuple[str, ...]
    root: str
    marks: bool = False
    group: str | None = None
    failover: Failover | None = None
    copies: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One processing element: fused operators, their key, and what they read.

    ``inlets`` says which channel each stream from elsewhere comes by, ``outlets`` which channels each stream leaves by.
    ``root`` is what its frontiers count; ``aligned`` is whether that is ordering numbers. ``origin`` is where in a tag
    the source's number stands. ``restart`` is where it goes on reading its inlets when the run is taken up again.
    ``ingests``: it is a source that Spark reads, by a streaming query. ``region`` names the consistent region it is of;
    ``kept`` is whether that outlives the memory of a host: its input is kept until a cut has what came of it; then
    ``holds`` is whether nobody sees its results before that, because they may come out otherwise the second time.
    ``marked`` names the sources, or roots, whose marks say when a cut is made; where it names none, time does. Of an
    element of a replica ``group`` there is a plan for each ``replica``. ``process`` is the driver process it runs in.
    """

    name: str
    graph: Graph
    entries: tuple[Intake, ...]
    needed: Mapping[str, frozenset[str]]
    buckets: int
    tasks: int
    sources: tuple[str, ...] = ()
    inlets: Mapping[str, ChannelPlan] = field(default_factory=dict)
    outlets: Mapping[str, tuple[ChannelPlan, ...]] = field(default_factory=dict)
    root: str = ""
    aligned: bool = False
    origin: int = 1
    restart: Restart = "resume"
    ingests: bool = False
    region: str | None = None
    kept: bool = False
    holds: bool = False
    marked: tuple[str, ...] = ()
    group: str | None = None
    replica: str | None = None
    process: str = MAIN

    @property
    def keyed(self) -> bool:
        """Whether rows belong to buckets. Without state any task may take any row."""
        return any(o.stateful for o in self.graph)

    @property
    def protected(self) -> Mapping[str, Saving]:
        """The operators whose state is saved, and how."""
        return {o.name: o.saving for o in self.graph if o.saving is not None}

    @property
    def replays(self) -> bool:
        """Whether what came in since the last checkpoint is kept upstream, and computed again after a loss."""
        # What Spark has read and not committed it reads again by itself.
        return not self.ingests and (self.kept or any(o.replays for o in self.graph))

    @property
    def recorded(self) -> Operator | None:
        """The operator that records its open windows in its output log, if there is one."""
        return next((o for o in self.graph if o.recording is not None), None)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names under which its operators keep state, those of its clocks, and of what is recorded."""
        clocks = (clock_slot(e.name) for e in self.entries if e.tick is not None)
        recorded = (records_slot(o.name) for o in self.graph if o.recording is not None)
        return (*(f"{o.name}/{slot}" for o in self.graph for slot in o.slots), *clocks, *recorded)

    def saved_slots(self, operator: str) -> tuple[str, ...]:
        """Return the slots whose state an operator needs: its own, what is recorded, and the time of its clock."""
        node = self.graph[operator]
        recorded = (records_slot(operator),) if node.recording is not None else ()
        clock = (clock_slot(node.clock),) if node.clock else ()
        return (*(f"{operator}/{slot}" for slot in node.slots), *recorded, *clock)

    @property
    def roots(self) -> tuple[str, ...]:
        """What the frontiers of its inlets count."""
        return tuple(sorted({channel.root for channel in self.inlets.values()}))

    @property
    def alone(self) -> Plan:
        """The same for a batch that one task computes alone."""
        return replace(self, tasks=1)

    def span(self, task: int) -> tuple[int, int]:
        """Return the buckets [first, end) that a task has."""
        return self.buckets * task // self.tasks, self.buckets * (task + 1) // self.tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A whole application: its processing elements, each after those it reads from, and the channels between them.

    Its consistent regions are made of whole elements.
    """

    graph: Graph
    plans: tuple[Plan, ...]
    channels: tuple[ChannelPlan, ...]
    regions: tuple[Region, ...] = ()
