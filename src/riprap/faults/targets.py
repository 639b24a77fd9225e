"""What comes into a target in the golden run: to say which tuples a fault hits, and where in the stream they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from riprap.arrays import Ints
from riprap.errors import GraphError, RunError
from riprap.faults.feeds import CampaignInput
from riprap.faults.golden import Golden
from riprap.graph.faults import Stretch
from riprap.graph.graph import Graph
from riprap.kernels.chunk import FIRST
from riprap.operators.channel import Inlet
from riprap.operators.faulty import Faulty
from riprap.state.hashing import Hashes


def watched(graph: Graph, target: str) -> tuple[str, ...]:
    """Return what reaches the faults of a target, which may be behind others: the streams to be watched."""
    return tuple(
        dict.fromkeys(
            o.ports[0][0] for o in graph.of_kind(Faulty) if o.target == target and o.role == "fault"
        )
    )


@dataclass(frozen=True, slots=True)
class Incoming:
    """The tuples that reach a target, in order over all its streams.

    ``element`` is the target's own processing element, ``elements`` those in which each stream can be hit.
    ``stream`` numbers the stream each came by, ``hashes`` are of its key where it can be hit and ``keys`` of that in
    the target's own element; ``source`` and ``places`` say where it derives from: its position there, and the path
    from there, filled up to one length. ``depths`` is how long the path of each stream really is, and
    ``ports`` the input port it is on. ``in_order`` says whether positions never fall, as those of a single source.
    """

    element: str
    elements: tuple[str, ...]
    streams: tuple[str, ...]
    ports: tuple[int, ...]
    depths: tuple[int, ...]
    stream: Ints
    source: Ints
    places: Ints
    block: Ints
    hashes: Hashes
    keys: Hashes
    in_order: bool

    def __len__(self) -> int:
        return len(self.stream)

    def stretches(self, first: int, count: int) -> dict[str, tuple[Stretch, ...]]:
        """Say where ``count`` tuples from number ``first`` on are, stream by stream and source by source."""
        if first >= len(self):
            raise RunError(
                f"offset {first:,} is beyond the {len(self):,} tuples that come in. Give a smaller one"
            )
        hit = slice(first, min(first + count, len(self)))
        source, stream = self.source[hit], self.stream[hit]
        stretches: dict[str, tuple[Stretch, ...]] = {}
        for number, name in enumerate(self.streams):
            own = []
            for one in np.unique(source):
                rows = first + np.flatnonzero((stream == number) & (source == one))
                if len(rows):
                    own.append(Stretch(int(one), self._place(rows[0]), self._after(rows[-1])))
            stretches[name] = tuple(own)
        return stretches

    def between(self, begin: int, end: int) -> tuple[int, int]:
        """Say which tuples derive from a stretch of source positions: the number of the first, and how many."""
        position = self.places[:, 0]
        if self.in_order:
            first, after = np.searchsorted(position, [begin, end])
            return (int(first), int(after - first)) if after > first else (0, 0)
        raise GraphError(
            "a stretch of source positions needs one source: give stretch='own' where there are several"
        )

    def hits(self, first: int, count: int) -> Iterator[tuple[str, int, Hashes]]:
        """List the keys of some tuples, by element and block."""
        rows = slice(first, first + count)
        element = np.asarray([self.elements.index(e) for e in self.elements])[self.stream[rows]]
        block, hashes = self.block[rows], self.hashes[rows]
        for number in np.unique(element):
            for each in np.unique(block[element == number]):
                yield (
                    self.elements[number],
                    int(each),
                    np.unique(hashes[(element == number) & (block == each)]),
                )

    def rows(self, feed: CampaignInput) -> Ints:
        """Return the row of the one source that each tuple derives from."""
        (only,) = feed.rows.values()
        return np.searchsorted(only.position, self.places[:, 0])

    def position(self, number: int) -> int:
        """Return the source position that a tuple derives from."""
        return int(self.places[number, 0])

    def _place(self, row: int) -> tuple[int, ...]:
        depth = self.depths[int(self.stream[row])]
        return tuple(self.places[row, : 1 + depth].tolist())

    def _after(self, row: int) -> tuple[int, ...]:
        """Return a place that is after a tuple and not after the next of its stream and source."""
        *before, number = self._place(row)
        return (*before, number + 1)


def _port_of(graph: Graph, woven: Faulty) -> int:
    """Return the input port of a target that a fault is in front of; what is behind a source is on none."""
    ports = graph[woven.target].ports
    return next((number for number, port in enumerate(ports) if woven.name in port), 0)


def element_of(golden: Golden, name: str) -> str:
    """Return the processing element an operator is in: of one that is passed on through channels, where it is made."""
    return next(
        p.name
        for p in golden.layout.plans
        if any(o.name == name for o in p.graph if not isinstance(o, Inlet))
    )


def incoming(golden: Golden, target: str) -> Incoming:
    """Collect what comes into a target; the golden run must have watched its streams."""
    woven = [o for o in golden.graph.of_kind(Faulty) if o.target == target and o.role == "fault"]
    streams, reads = tuple(o.stream for o in woven), tuple(o.ports[0][0] for o in woven)
    element = element_of(golden, target)
    elements = tuple(element_of(golden, o.name) for o in woven)
    origin = golden.players[element].plan.origin
    parts: list[tuple[int, int, list[Ints], Hashes]] = []
    own: list[Hashes] = []
    for number, (stream, where) in enumerate(zip(reads, elements, strict=True)):
        for block, played in enumerate(golden.blocks[where]):
            piece = played.watched[stream]
            parts.append((number, block, list(piece.tags), piece.hashes))
            same = where == element
            own.append(piece.hashes if same else golden.players[element].hashes_of(woven[number].name, piece))
    deepest = max(len(tags) for _, _, tags, _ in parts)
    order_columns: list[list[Ints]] = [[] for _ in range(deepest)]
    for _, _, tags, hashes in parts:
        for level in range(deepest):
            order_columns[level].append(tags[level] if level < len(tags) else np.full(len(hashes), FIRST))
    columns = [np.concatenate(level) for level in order_columns]
    numbers = np.concatenate([np.full(len(h), n) for n, _, _, h in parts])
    blocks = np.concatenate([np.full(len(h), b) for _, b, _, h in parts])
    order = np.lexsort((numbers, *columns[::-1]))
    depths = tuple(
        next(len(tags) for n, _, tags, _ in parts if n == number) - origin - 2
        for number in range(len(streams))
    )
    position = columns[origin + 1][order]
    return Incoming(
        element=element,
        elements=elements,
        streams=streams,
        ports=tuple(_port_of(golden.graph, o) for o in woven),
        depths=depths,
        stream=numbers[order],
        source=columns[origin][order],
        places=np.column_stack([column[order] for column in columns[origin + 1 :]]),
        block=blocks[order],
        hashes=np.concatenate([h for *_, h in parts])[order],
        keys=np.concatenate(own)[order],
        in_order=bool((position[1:] >= position[:-1]).all()),
    )
