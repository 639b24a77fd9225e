"""Trials of drawn and given applications, on both paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from tests.graphs.program import Program

import riprap as rr
from riprap.compiler import compile_graph
from riprap.compiler.weaving import WovenFaults, weave
from riprap.faults.feeds import cut_feed, read_feed, read_tables
from riprap.faults.golden import Golden, play_golden
from riprap.faults.interleaving import interleave, weave_lags
from riprap.faults.replay import StreamPiece
from riprap.faults.targets import incoming, watched
from riprap.faults.trial import Trial, replay_trial, run_trial
from riprap.graph.faults import Fault
from riprap.graph.graph import Graph
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.state.hashing import Hashes


def graph_of(program: Program) -> Graph:
    """Build a drawn application over its rows."""
    graph = program.application().graph()
    tables = {source.name: source.table(source.dicts()) for source in program.sources}
    operators = [replace(o, connector=rr.rows(tables[o.name])) if isinstance(o, Source) else o for o in graph]
    return replace(graph, operators=tuple(operators))


def golden_of(
    graph: Graph, targets: Sequence[str], *, deep: bool = False, block_rows: int = 7, lag: int | None = None
) -> Golden:
    """Weave faults in front of targets, and replay without any; streams that meet may lag."""
    woven = weave(weave_lags(graph) if lag is not None else graph, targets, deep=deep)
    rows = read_feed(woven, compile_graph(woven, buckets=1, tasks=1))
    feed = cut_feed(woven, rows, block_rows=block_rows)
    if lag is not None:
        woven = interleave(woven, distance=lag, knots=tuple((feed.marks + 1).tolist()), seed=block_rows)
    watch = {stream for target in targets for stream in watched(woven, target)}
    return play_golden(woven, feed, watch=watch, tables=read_tables(graph))


def both_paths(golden: Golden, target: str, fault: Fault, first: int, count: int) -> tuple[Trial, Trial]:
    """Run a trial of one target on the fast path and on the slow one."""
    known = incoming(golden, target)
    faults: WovenFaults = {
        target: {
            stream: replace(fault, stretches=stretches)
            for stream, stretches in known.stretches(first, count).items()
        }
    }
    hits: dict[str, dict[int, Hashes]] = {}
    for element, block, keys in known.hits(first, count):
        mine = hits.setdefault(element, {})
        mine[block] = np.union1d(mine.get(block, np.empty(0, np.uint64)), keys)
    return run_trial(golden, faults, hits), replay_trial(golden, faults)


def assert_same(golden: Golden, fast: Trial, slow: Trial) -> None:
    """Require that two trials put out the same, tuple by tuple, at the same places, bit by bit."""
    for sink in golden.graph.of_kind(Sink):
        pairs = zip(fast.output(golden, sink.name), slow.output(golden, sink.name), strict=True)
        for number, (one, other) in enumerate(pairs):
            where = f"{sink.name}, block {number}"
            assert one.rows == other.rows, where
            assert all(np.array_equal(a, b) for a, b in zip(one.tags, other.tags, strict=True)), where
            assert bits(one) == bits(other), where


def bits(piece: StreamPiece) -> Mapping[str, list[object]]:
    """Return the values of a piece so that NaN is NaN, and -0.0 is not 0.0."""
    return {name: [repr(v) for v in column.to_pylist()] for name, column in piece.columns.items()}


def rows_of(pieces: Sequence[StreamPiece], names: Sequence[str]) -> list[dict[str, object]]:
    """Return the rows of an output."""
    found: list[dict[str, object]] = []
    for piece in pieces:
        found += pa.table({name: piece.columns[name] for name in names}).to_pylist()
    return found
