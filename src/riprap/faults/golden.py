"""The golden run: what comes in, is put out and is held, block by block, when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.compiler import Layout, compile_graph
from riprap.compiler.passes import is_aligned
from riprap.errors import GraphError
from riprap.faults.feeds import CampaignInput
from riprap.faults.interleaving import lags_of
from riprap.faults.replay import Player, StreamPiece
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.operators.channel import Outlet
from riprap.operators.faulty import Faulty
from riprap.operators.source import Source
from riprap.stage.arrival import Arrival, ReadRows
from riprap.stage.fused import State


@dataclass(frozen=True, slots=True)
class GoldenBlock:
    """A block of a processing element: what came in, in order; what it came to; the state at its end."""

    arrival: Arrival
    outputs: Mapping[str, StreamPiece]
    watched: Mapping[str, StreamPiece]
    state: State


@dataclass(frozen=True, slots=True)
class Replaced:
    """State of a processing element's operators that is another from the beginning of a block on, slot by slot."""

    block: int
    pages: State


@dataclass(slots=True)
class Golden:
    """A golden run of a graph: for each processing element, in order, its blocks."""

    graph: Graph
    layout: Layout
    feed: CampaignInput
    players: dict[str, Player]
    blocks: dict[str, list[GoldenBlock]] = field(default_factory=dict)

    @property
    def numbered(self) -> bool:
        """Whether blocks are batches: several sources whose tuples nothing puts in one order."""
        return len(self.graph.of_kind(Source)) > 1 and not is_aligned(self.graph)

    @property
    def separate(self) -> bool:
        """Whether the tuples of a block may depend on where it ends, so that blocks cannot be put together."""
        several = len(self.graph.of_kind(Source)) > 1
        return any(o.control for o in self.graph) or (
            several and (self.numbered or bool(lags_of(self.graph)))
        )

    @property
    def whole(self) -> bool:
        """Whether what one key holds may depend on the tuples of another: by punctuations that are made of those.

        A tuple that lags comes right after what there is, punctuations included.
        """
        heeded = any(o.heeds for o in self.graph) or bool(lags_of(self.graph))
        return heeded and any(o.punctuates for o in self.graph)

    def number(self, block: int) -> int:
        """Return the batch number of a block: where blocks are no batches all have the same."""
        return block if self.numbered else 0

    def block_of(self, piece: StreamPiece) -> Ints:
        """Return the block of each tuple: by its batch, its ordering number, or its position."""
        if self.numbered:
            return piece.tags[0]
        place = piece.tags[0 if is_aligned(self.graph) else self.layout.plans[0].origin + 1]
        return np.minimum(np.searchsorted(self.feed.marks, place), self.feed.blocks - 1)

    def starting_at(self, position: int) -> int:
        """Return the block that starts at a position of the source, at which the feed was cut."""
        return int(np.searchsorted(self.feed.marks, position))

    def state_before(self, element: str, block: int) -> State:
        """Return the state that a block starts from."""
        return self.blocks[element][block - 1].state if block else self.players[element].begin()

    def output(self, sink: str) -> list[StreamPiece]:
        """Return what reached a sink, block by block."""
        element = next(p.name for p in self.layout.plans if sink in {o.name for o in p.graph})
        return [block.outputs[sink] for block in self.blocks[element]]


def play_golden(
    graph: Graph,
    feed: CampaignInput,
    *,
    watch: Collection[str] = (),
    tables: Mapping[str, pa.Table] | None = None,
    replaced: Mapping[str, Replaced] | None = None,
) -> Golden:
    """Replay a graph over a feed, and keep everything; ``replaced`` state comes instead of what an element holds."""
    layout = compile_graph(graph, buckets=1, tasks=1)
    if any(entry.root is not None for plan in layout.plans for entry in plan.entries):
        raise GraphError(
            "faults cannot be injected where sources are read in several processing elements whose streams meet: "
            "place the sources in one"
        )
    players = {plan.name: Player(plan, tables or {}) for plan in layout.plans}
    golden = Golden(graph, layout, feed, players)
    for plan in layout.plans:
        player, state = players[plan.name], players[plan.name].begin()
        golden.blocks[plan.name] = []
        other = (replaced or {}).get(plan.name)
        for number in range(feed.blocks):
            if other is not None and other.block == number:
                state = {**state, **other.pages}
            rows = rows_of(golden, plan.name, number)
            arrival = player.arrive(rows, block=golden.number(number))
            played = player.play(arrival, state, watch=watch)
            state = played.state
            golden.blocks[plan.name].append(GoldenBlock(arrival, played.outputs, played.watched, state))
    return golden


def play_again(first: Golden, graph: Graph) -> Golden:
    """Replay a graph that differs from that of a golden run in its lags alone, as far as that makes a difference."""
    plans = tuple(
        replace(plan, graph=replace(plan.graph, operators=tuple(_same_or(graph, o) for o in plan.graph)))
        for plan in first.layout.plans
    )
    players = {plan.name: replace(first.players[plan.name], plan=plan) for plan in plans}
    golden = Golden(graph, replace(first.layout, plans=plans), first.feed, players)
    changed: set[str] = set()
    for plan in plans:
        after = any(channel.writer in changed for channel in plan.inlets.values())
        if not after and not lags_of(plan.graph):
            golden.blocks[plan.name] = first.blocks[plan.name]
            continue
        changed.add(plan.name)
        player, state = players[plan.name], players[plan.name].begin()
        golden.blocks[plan.name] = []
        for number, block in enumerate(first.blocks[plan.name]):
            arrival = block.arrival
            if after:
                arrival = player.arrive(rows_of(golden, plan.name, number), block=golden.number(number))
            played = player.play(arrival, state)
            state = played.state
            golden.blocks[plan.name].append(GoldenBlock(arrival, played.outputs, played.watched, state))
    return golden


def _same_or(graph: Graph, operator: Operator) -> Operator:
    """Return an operator of a plan with the lag it has in a graph."""
    if not isinstance(operator, Faulty):
        return operator
    counterpart = graph[operator.name]
    assert isinstance(counterpart, Faulty)
    return replace(operator, fault=counterpart.fault)


def rows_of(golden: Golden, element: str, block: int) -> dict[str, ReadRows]:
    """Return what comes into a processing element with a block: of the feed, or of elements before it."""
    plan = golden.players[element].plan
    if not plan.inlets:
        whole = golden.feed.block(block)
        return {entry.name: whole[entry.name] for entry in plan.entries}
    return {stream: sent(golden, stream, block).as_rows() for stream in plan.inlets}


def sent(golden: Golden, stream: str, block: int) -> StreamPiece:
    """Return what another element puts into a channel with a block."""
    for plan in golden.layout.plans:
        for outlet in plan.graph.of_kind(Outlet):
            if outlet.ports[0][0] == stream:
                return golden.blocks[plan.name][block].outputs[outlet.name]
    raise KeyError(stream)
