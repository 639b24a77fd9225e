"""Where the operators of a drawing go: layers along the flow, an order in each, a coordinate across.

The picture is made of slots. An operator has one in the layer that its longest path from a source gives it.
A stream that a later layer than the next reads has one in each layer it passes. So every line of the picture
goes from one layer to the next, and the readers of a stream share it for as long as they can.

The order comes from barycentre sweeps, the coordinate from Brandes and Koepf's alignment: chains become
straight lines. Both drawings, for the terminal and as SVG, use this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from statistics import fmean

from riprap.graph.graph import Graph

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a layer: an operator's, or one where its stream passes on its way to a later layer."""

    name: str
    layer: int
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from an operator to one that reads it, by the slots it goes through."""

    path: tuple[Slot, ...]

    @property
    def source(self) -> str:
        return self.path[0].name

    @property
    def target(self) -> str:
        return self.path[-1].name


Layers = Sequence[Sequence[Slot]]
Near = Mapping[Slot, Sequence[Slot]]
NeighbourRange = Callable[[Slot], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The slots by layer and in order, the edges, and each slot's neighbours, in order as well."""

    layers: tuple[tuple[Slot, ...], ...]
    edges: tuple[Edge, ...]
    before: Near
    after: Near

    def across(self, reach: NeighbourRange, gap: float, *, balanced: bool) -> dict[Slot, float]:
        """Give each slot a coordinate across the flow, at least 0 and with ``gap`` between neighbours.

        ``reach`` says how far a slot extends before and after its coordinate. Unbalanced, the first reader of
        a stream is straight behind it; balanced, an operator stands in the middle of its neighbours.
        """
        down = _compact(self.layers, self.before, reach, gap)
        if not balanced:
            return _shifted(down, min(at - reach(slot)[0] for slot, at in down.items()))
        mirrored = [layer[::-1] for layer in self.layers]
        runs = [
            down,
            _compact(self.layers[::-1], self.after, reach, gap),
            _mirror(_compact(mirrored, self.before, lambda s: reach(s)[::-1], gap)),
            _mirror(_compact(mirrored[::-1], self.after, lambda s: reach(s)[::-1], gap)),
        ]
        extents = [
            (min(at - reach(s)[0] for s, at in run.items()), max(at + reach(s)[1] for s, at in run.items()))
            for run in runs
        ]
        width = min(high - low for low, high in extents)
        # The first two are packed towards the start, the others towards the end: line them up on that side.
        runs = [_shifted(run, low) for run, (low, _) in zip(runs[:2], extents[:2], strict=True)] + [
            _shifted(run, high - width) for run, (_, high) in zip(runs[2:], extents[2:], strict=True)
        ]
        middle = {slot: sum(sorted(run[slot] for run in runs)[1:3]) / 2 for slot in down}
        return _shifted(middle, min(at - reach(slot)[0] for slot, at in middle.items()))


def lay_out(graph: Graph) -> Arrangement:
    """Put the operators of a graph in layers and order them so that few lines cross."""
    depth = graph.fold(lambda _, inputs: 1 + max(inputs, default=-1))
    return arrange(depth, {operator.name: [o.name for o in graph.before(operator)] for operator in graph})


def arrange(depth: Mapping[str, int], feeders: Mapping[str, Sequence[str]]) -> Arrangement:
    """Put names that each have a layer, and are fed by others of earlier layers, in an order with few crossings."""
    edges = []
    for name, near in feeders.items():
        for feeder in dict.fromkeys(near):
            passed = range(depth[feeder] + 1, depth[name])
            path = (Slot(feeder, depth[feeder]), *(Slot(feeder, layer, passing=True) for layer in passed))
            edges.append(Edge((*path, Slot(name, depth[name]))))
    slots = [Slot(name, depth[name]) for name in feeders]
    slots += dict.fromkeys(slot for edge in edges for slot in edge.path if slot.passing)
    links = list(dict.fromkeys(link for edge in edges for link in pairwise(edge.path)))
    before = {slot: [a for a, b in links if b == slot] for slot in slots}
    after = {slot: [b for a, b in links if a == slot] for slot in slots}
    layers = [[slot for slot in slots if slot.layer == layer] for layer in range(1 + max(depth.values()))]
    layers = _with_few_crossings(layers, before, after)
    order = _order(layers)
    return Arrangement(
        layers=tuple(tuple(layer) for layer in layers),
        edges=tuple(edges),
        before={slot: tuple(sorted(near, key=order.__getitem__)) for slot, near in before.items()},
        after={slot: tuple(sorted(near, key=order.__getitem__)) for slot, near in after.items()},
    )


def crossings(layers: Layers, after: Near) -> int:
    """Count the pairs of lines that cross between neighbouring layers."""
    order = _order(layers)
    total = 0
    for layer in layers:
        lines = [(order[a], order[b]) for a in layer for b in after[a]]
        total += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(lines, 2))
    return total


def _order(layers: Layers) -> dict[Slot, int]:
    return {slot: place for layer in layers for place, slot in enumerate(layer)}


def _with_few_crossings(layers: list[list[Slot]], before: Near, after: Near) -> list[list[Slot]]:
    best, fewest = layers, crossings(layers, after)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        near, steps = (
            (after, range(len(layers) - 2, -1, -1)) if sweep % 2 else (before, range(1, len(layers)))
        )
        layers = [list(layer) for layer in layers]
        for step in steps:
            order = _order(layers)
            centre = {s: fmean(order[n] for n in near[s]) if near[s] else order[s] for s in layers[step]}
            layers[step].sort(key=centre.__getitem__)
        count = crossings(layers, after)
        if count < fewest:
            best, fewest = layers, count
    return best


def _compact(layers: Layers, before: Near, reach: NeighbourRange, gap: float) -> dict[Slot, float]:
    """Align each slot with a middle neighbour in the layer before, and pack the blocks that makes."""
    order = _order(layers)
    block = {slot: slot for layer in layers for slot in layer}
    for layer in layers:
        last = -1
        for slot in layer:
            near = sorted(before[slot], key=order.__getitem__)
            for other in (near[(len(near) - 1) // 2], near[len(near) // 2]) if near else ():
                # Only to the right of the last one aligned: blocks that crossed could not both be straight.
                if order[other] > last:
                    block[slot], last = block[other], order[other]
                    break
    pushes: dict[Slot, dict[Slot, float]] = {root: {} for root in block.values()}
    for layer in layers:
        for left, right in pairwise(layer):
            apart = reach(left)[1] + gap + reach(right)[0]
            push = pushes[block[right]].get(block[left], 0.0)
            pushes[block[right]][block[left]] = max(push, apart)
    at: dict[Slot, float] = {}
    widest = {root: max(reach(s)[0] for s in block if block[s] == root) for root in pushes}
    for root in TopologicalSorter(pushes).static_order():
        at[root] = max([widest[root], *(at[left] + apart for left, apart in pushes[root].items())])
    return {slot: at[root] for slot, root in block.items()}


def _shifted(at: Mapping[Slot, float], by: float) -> dict[Slot, float]:
    return {slot: value - by for slot, value in at.items()}


def _mirror(at: Mapping[Slot, float]) -> dict[Slot, float]:
    return {slot: -value for slot, value in at.items()}
