"""What comes into a target in the golden run: to say which tuples a fault hits, and where in the stream they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from riprap.errors import RunError
from riprap.faults.feeds import Feed
from riprap.faults.golden import Golden
from riprap.graph.faults import Stretch
from riprap.graph.graph import Graph
from riprap.graph.operators import Faulty, Source
from riprap.operators.chunk import FIRST, Ints
from riprap.state.hashing import Hashes


def streams_of(graph: Graph, target: str) -> tuple[str, ...]:
    """Return the streams a fault of a target is woven into: those it reads, or its own if it is a source."""
    if isinstance(graph[target], Source):
        return (target,)
    ports = (stream for port in graph[target].ports for stream in port)
    return tuple(dict.fromkeys(_named(graph, stream) for stream in ports))


def _named(graph: Graph, stream: str) -> str:
    """Return the stream that a fault was woven into."""
    producer = graph.producer(stream)
    return producer.stream if isinstance(producer, Faulty) else stream


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

    ``stream`` numbers the stream each came by; ``source`` and ``places`` say where it derives from: its position there,
    and the path from there, filled up to one length. ``depths`` is how long the path of each stream really is, and
    ``ports`` the input port it is on.
    """

    element: str
    streams: tuple[str, ...]
    ports: tuple[int, ...]
    depths: tuple[int, ...]
    stream: Ints
    source: Ints
    places: Ints
    block: Ints
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.stream)

    def stretches(self, first: int, count: int) -> dict[str, tuple[Stretch, ...]]:
        """Say where ``count`` tuples from number ``first`` on are, stream by stream and source by source."""
        if first >= len(self):
            raise RunError(
                f"offset {first:,} is beyond the {len(self):,} tuples that come in. Give a smaller one"
            )
        end = min(first + count, len(self))
        found: dict[str, tuple[Stretch, ...]] = {}
        for number, name in enumerate(self.streams):
            own = []
            for source in np.unique(self.source):
                rows = np.flatnonzero((self.stream == number) & (self.source == source))
                hit = rows[(rows >= first) & (rows < end)]
                if len(hit):
                    own.append(Stretch(int(source), self._place(hit[0]), self._after(rows, int(hit[-1]))))
            found[name] = tuple(own)
        return found

    def between(self, begin: int, end: int) -> tuple[int, int]:
        """Say which tuples derive from a stretch of source positions: the number of the first, and how many."""
        inside = np.flatnonzero((self.places[:, 0] >= begin) & (self.places[:, 0] < end))
        return (int(inside[0]), len(inside)) if len(inside) else (0, 0)

    def hits(self, first: int, count: int) -> Mapping[int, Hashes]:
        """Return the keys of some tuples, block by block."""
        rows = slice(first, first + count)
        return {
            int(block): np.unique(self.hashes[rows][self.block[rows] == block])
            for block in np.unique(self.block[rows])
        }

    def rows(self, feed: Feed) -> Ints:
        """Return the row of the one source that each tuple derives from."""
        (only,) = feed.rows.values()
        return np.searchsorted(only.position, self.places[:, 0])

    def position(self, number: int) -> int:
        """Return the source position that a tuple derives from."""
        return int(self.places[number, 0])

    def _place(self, row: int) -> tuple[int, ...]:
        depth = self.depths[int(self.stream[row])]
        return tuple(self.places[row, : 1 + depth].tolist())

    def _after(self, rows: Ints, last: int) -> tuple[int, ...]:
        """Return a place that is after a tuple and not after the next of its stream and source."""
        *before, number = self._place(last)
        return (*before, number + 1)


def _port_of(graph: Graph, woven: Faulty) -> int:
    """Return the input port of a target that a fault is in front of; what is behind a source is on none."""
    ports = graph[woven.target].ports
    return next((number for number, port in enumerate(ports) if woven.name in port), 0)


def incoming(golden: Golden, target: str) -> Incoming:
    """Collect what comes into a target; the golden run must have watched its streams."""
    woven = [o for o in golden.graph.of_kind(Faulty) if o.target == target and o.role == "fault"]
    streams, reads = tuple(o.stream for o in woven), tuple(o.ports[0][0] for o in woven)
    plan = next(p for p in golden.layout.plans if any(o.name == target for o in p.graph))
    origin = plan.origin
    parts: list[tuple[int, int, list[Ints], Hashes]] = []
    for number, stream in enumerate(reads):
        for block, known in enumerate(golden.blocks[plan.name]):
            piece = known.watched[stream]
            parts.append((number, block, list(piece.tags), piece.hashes))
    deepest = max(len(tags) for _, _, tags, _ in parts)
    order_columns: list[list[Ints]] = [[] for _ in range(deepest)]
    for _, _, tags, hashes in parts:
        for level in range(deepest):
            order_columns[level].append(tags[level] if level < len(tags) else np.full(len(hashes), FIRST))
    columns = [np.concatenate(level) for level in order_columns]
    stream = np.concatenate([np.full(len(h), n) for n, _, _, h in parts])
    block = np.concatenate([np.full(len(h), b) for _, b, _, h in parts])
    hashes = np.concatenate([h for *_, h in parts])
    order = np.lexsort((stream, *columns[::-1]))
    depths = tuple(
        next(len(tags) for n, _, tags, _ in parts if n == number) - origin - 2
        for number in range(len(streams))
    )
    return Incoming(
        element=plan.name,
        streams=streams,
        ports=tuple(_port_of(golden.graph, o) for o in woven),
        depths=depths,
        stream=stream[order],
        source=columns[origin][order],
        places=np.column_stack([column[order] for column in columns[origin + 1 :]]),
        block=block[order],
        hashes=hashes[order],
    )
