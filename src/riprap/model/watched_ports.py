"""What comes in at the stateful ports of an application: it is run in memory over its feed, and its streams watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.compiler import compile_graph
from riprap.errors import GraphError, ModelError
from riprap.expressions import normalise
from riprap.faults.feeds import cut_feed, read_feed, read_tables
from riprap.faults.golden import Golden, play_golden
from riprap.faults.placement import unprotected
from riprap.faults.replay import StreamPiece, concatenate
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.kernels.chunk import FIRST, order_numbers
from riprap.state.windows import held_of, merge

_BLOCK_ROWS = 25_000


@dataclass(frozen=True, slots=True)
class PortStream:
    """The tuples of a port in order: the number of each one's key, and its time where the window's is in a column.

    ``share`` is how many there are for one of the sources; ``state`` is how many tuples the port holds in the end.
    """

    keys: Ints
    times: Ints | None
    share: float
    state: float


def stateful_ports(graph: Graph) -> list[tuple[Operator, int]]:
    """List the ports that tuples are remembered of."""
    return [(o, port) for o in graph for port in sorted({_port_of(o, slot) for slot in o.slots})]


def watch_ports(graph: Graph) -> dict[tuple[str, int], PortStream]:
    """Run an application in memory to the end of its feed, and return what came in at its stateful ports."""
    bare = unprotected(graph)
    wanted = stateful_ports(bare)
    try:
        rows = read_feed(bare, compile_graph(bare, buckets=1, tasks=1))
    except GraphError as error:
        raise ModelError(
            f"the streams of '{graph.name}' cannot be watched, for they are watched in memory, over a feed of files or "
            f"rows: {error}"
        ) from error
    total = sum(part.rows for part in rows.values())
    if not total:
        raise ModelError(f"the feed of '{graph.name}' has no tuples. Give one with some: --feed PATH")
    golden = play_golden(
        bare,
        cut_feed(bare, rows, block_rows=_BLOCK_ROWS),
        watch={stream for operator, port in wanted for stream in operator.ports[port]},
        tables=read_tables(bare),
    )
    return {(operator.name, port): _watched(golden, operator, port, total) for operator, port in wanted}


def _watched(golden: Golden, operator: Operator, port: int, total: int) -> PortStream:
    pieces = [_stream(golden, stream) for stream in operator.ports[port]]
    order = _in_order(pieces)
    window = operator.window_of(port)
    columns = {
        name: pa.concat_arrays([normalise(piece.columns[name]) for piece in pieces]).take(pa.array(order))
        for name in dict.fromkeys((*(operator.key or ()), *((window.on,) if window and window.on else ())))
    }
    keys = [columns[name] for name in operator.key or ()]
    kept = np.arange(len(order))
    if keys and not operator.keeps_null_keys:
        missing = reduce(pc.or_, [column.is_null() for column in keys])
        kept = np.flatnonzero(~missing.to_numpy(zero_copy_only=False))
    timed = window is not None and window.time is not None and window.on is not None
    return PortStream(
        keys=_numbered(keys, len(order))[kept],
        times=order_numbers(columns[window.on])[kept] if timed and window and window.on else None,
        share=len(kept) / total,
        state=_held(golden, operator, port),
    )


def _stream(golden: Golden, stream: str) -> StreamPiece:
    blocks = next(b for b in golden.blocks.values() if b and stream in b[0].watched)
    return concatenate([block.watched[stream] for block in blocks])


def _in_order(pieces: Sequence[StreamPiece]) -> Ints:
    """Return the order of the tuples of several streams on one port."""
    if len(pieces) == 1:
        return np.arange(pieces[0].rows)
    deepest = max(len(piece.tags) for piece in pieces)
    tags = [
        np.concatenate([p.tags[level] if level < len(p.tags) else np.full(p.rows, FIRST) for p in pieces])
        for level in range(deepest)
    ]
    order: Ints = np.lexsort(tuple(reversed(tags)))
    return order


def _numbered(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Number the keys that columns make."""
    numbers = np.zeros(rows, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = np.unique(numbers * max(1, len(encoded.dictionary)) + own, return_inverse=True)[1]
    return numbers


def _held(golden: Golden, operator: Operator, port: int) -> float:
    held = 0.0
    for blocks in golden.blocks.values():
        state: Mapping[str, Sequence[pa.RecordBatch]] = blocks[-1].state if blocks else {}
        for slot in operator.slots:
            pages = state.get(f"{operator.name}/{slot}", ())
            if pages and _port_of(operator, slot) == port:
                held += float(held_of(reduce(merge, pages)).sum())
    return held


def _port_of(operator: Operator, slot: str) -> int:
    return int(slot) if slot.isdigit() and int(slot) < len(operator.ports) else 0
