"""Replay an application in one process, block after block, with its state in memory: the stage's own code, no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.compiler import Plan
from riprap.faults.models.lag import lagging_ranks
from riprap.graph.faults import Fault
from riprap.kernels.chunk import EVERY, Chunk, Marks, concatenate_arrays
from riprap.stage.arrival import Arrival, ReadRows, Tags, key_rows
from riprap.stage.batch import compute, take_in
from riprap.stage.fused import State
from riprap.state.hashing import Hashes
from riprap.state.keys import join_tables


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """Tuples of a stream, in order: columns, tag and hash of the key of each; and the tags of punctuations."""

    columns: Mapping[str, pa.Array]
    tags: Tags
    hashes: Hashes
    punctuations: Tags = ()

    @property
    def rows(self) -> int:
        return len(self.hashes)

    def take(self, which: Ints) -> StreamPiece:
        """Return some of the tuples, and all punctuations."""
        index = pa.array(which)
        return StreamPiece(
            {name: column.take(index) for name, column in self.columns.items()},
            tuple(numbers[which] for numbers in self.tags),
            self.hashes[which],
            self.punctuations,
        )

    def of_keys(self, hashes: Hashes) -> StreamPiece:
        """Return the tuples of some keys."""
        return self.take(np.flatnonzero(np.isin(self.hashes, hashes)))

    def bare(self) -> StreamPiece:
        """Return the tuples without punctuations."""
        return replace(self, punctuations=())

    def as_rows(self) -> ReadRows:
        """Return them as what comes in by channel."""
        return ReadRows(self.columns, np.arange(self.rows), self.tags, self.punctuations)


def concatenate(pieces: Sequence[StreamPiece]) -> StreamPiece:
    """Put pieces of one stream one after the other."""
    first = pieces[0]
    return StreamPiece(
        {name: concatenate_arrays([p.columns[name] for p in pieces]) for name in first.columns},
        tuple(np.concatenate(numbers) for numbers in zip(*(p.tags for p in pieces), strict=True)),
        np.concatenate([p.hashes for p in pieces]),
        tuple(
            np.concatenate(numbers)
            for numbers in zip(*(p.punctuations for p in pieces if p.punctuations), strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a block: tuples for each sink and outlet, those of the streams that were watched, and the state.

    ``fresh`` is what of the state came in with the block.
    """

    outputs: Mapping[str, StreamPiece]
    watched: Mapping[str, StreamPiece]
    state: State
    fresh: Mapping[str, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Player:
    """A processing element that is replayed, or the buckets of it that one of several tasks has."""

    plan: Plan
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    task: int = 0

    @property
    def _span(self) -> tuple[int, int]:
        return self.plan.span(self.task)

    def begin(self) -> State:
        """Return the state before anything has come."""
        return dict.fromkeys(self.plan.slots, ())

    def arrive(self, rows: Mapping[str, ReadRows], *, block: int = 0) -> Arrival:
        """Put the rows of a block in order; with a number of its own where blocks are batches."""
        return take_in(self.plan, rows, self._span, batch=block)

    def play(
        self, arrival: Arrival, state: State, *, watch: Collection[str] = (), end: int | None = None
    ) -> Played:
        """Compute a block, or as `riprap.stage.batch.compute` has it the ``end`` of the input."""
        outcome = compute(
            self.plan,
            arrival,
            state,
            self._span,
            end=end,
            tables=self.tables,
            lead=self.task == 0,
            watch=watch,
        )
        arrival = outcome.arrival

        def piece(chunk: Chunk) -> StreamPiece:
            marks = chunk.marks
            return StreamPiece(
                chunk.columns,
                arrival.tags_at(chunk.rank, chunk.path),
                _hashes(chunk, arrival.keys.hashes),
                arrival.tags_at(marks.rank, marks.path) if len(marks) else (),
            )

        return Played(
            {name: piece(chunk) for name, chunk in outcome.outputs.items()},
            {name: piece(chunk) for name, chunk in outcome.watched.items()},
            {slot: outcome.pages_of(slot, older) for slot, older in state.items()},
            outcome.fresh,
        )

    def hashes_of(self, stream: str, piece: StreamPiece) -> Hashes:
        """Return the key, as this element has it, of each tuple that comes in by a stream."""
        data = [e for e in self.plan.entries if e.tick is None]
        none = {e.name: _nothing(self.plan, e.name) for e in data}
        keys, codes = key_rows(data, {**none, stream: piece.as_rows()})
        return keys.hashes[codes[stream]]


def of_keys(arrival: Arrival, hashes: Hashes) -> Arrival:
    """Return what arrived of some keys. Ranks stay what they are, and so ticks, punctuations and the tags of all."""
    wanted = np.isin(arrival.keys.hashes, hashes)
    code_of = (np.cumsum(wanted) - 1).astype(np.int32)
    chunks = {}
    for name, chunk in arrival.chunks.items():
        if name not in arrival.ticks:
            chunk = chunk.take(np.flatnonzero(wanted[chunk.code]))
            chunk = replace(chunk, code=code_of[chunk.code])
        chunks[name] = chunk
    return replace(arrival, chunks=chunks, keys=arrival.keys.take(np.flatnonzero(wanted)))


def joined(arrivals: Sequence[Arrival], lags: Sequence[Fault] = (), origin: int = 0) -> Arrival:
    """Put what arrived in several blocks, one after the other, together as one.

    Only tags that are used are kept, and those of tuples that others come right after because of ``lags``.
    """
    if len(arrivals) == 1:
        return arrivals[0]
    slim = [_slim(arrival, lags, origin) for arrival in arrivals]
    keys, code_of = join_tables([arrival.keys for arrival in slim])
    bases = np.cumsum([0, *(len(arrival.tags[0]) for arrival in slim)])
    first = slim[0]
    chunks, ticks = {}, {}
    for name in first.chunks:
        parts = []
        for arrival, codes, base in zip(slim, code_of, bases, strict=False):
            chunk = arrival.chunks[name]
            code = chunk.code if name in first.ticks else codes[chunk.code]
            marks = replace(chunk.marks, rank=chunk.marks.rank + base)
            parts.append(replace(chunk, rank=chunk.rank + base, code=code, marks=marks))
        chunks[name] = _in_a_row(parts)
    for name in first.ticks:
        of_clock = [
            replace(a.ticks[name], rank=a.ticks[name].rank + base)
            for a, base in zip(slim, bases, strict=False)
        ]
        ticks[name] = replace(
            of_clock[0],
            rank=np.concatenate([t.rank for t in of_clock]),
            time=np.concatenate([t.time for t in of_clock]),
        )
    tags = tuple(np.concatenate(numbers) for numbers in zip(*(a.tags for a in slim), strict=True))
    return Arrival(chunks, ticks, keys, tags, first.from_sources)


def _slim(arrival: Arrival, lags: Sequence[Fault], origin: int) -> Arrival:
    """Leave out the tags of ranks that nothing has."""
    used = [chunk.rank for chunk in arrival.chunks.values()]
    used += [chunk.marks.rank for chunk in arrival.chunks.values()]
    used += [heard.rank for heard in arrival.ticks.values()]
    ranks = np.unique(np.concatenate(used))
    for lag in lags:
        ranks = np.union1d(ranks, lagging_ranks(lag, arrival.tags[origin], arrival.tags[origin + 1], ranks))
    chunks = {
        name: replace(
            chunk,
            rank=np.searchsorted(ranks, chunk.rank),
            marks=replace(chunk.marks, rank=np.searchsorted(ranks, chunk.marks.rank)),
        )
        for name, chunk in arrival.chunks.items()
    }
    ticks = {name: replace(t, rank=np.searchsorted(ranks, t.rank)) for name, t in arrival.ticks.items()}
    return replace(
        arrival, chunks=chunks, ticks=ticks, tags=tuple(numbers[ranks] for numbers in arrival.tags)
    )


def _in_a_row(parts: Sequence[Chunk]) -> Chunk:
    """Put chunks one after the other, with the punctuations among their tuples."""
    bases = np.cumsum([0, *(part.rows for part in parts)])
    marks = [replace(part.marks, at=part.marks.at + base) for part, base in zip(parts, bases, strict=False)]
    # An operator may hand on columns that nobody reads, and leave them out of another block.
    names = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    return Chunk(
        {name: concatenate_arrays([part.columns[name] for part in parts]) for name in names},
        np.concatenate([part.rank for part in parts]),
        np.concatenate([part.code for part in parts]),
        tuple(np.concatenate(numbers) for numbers in zip(*(part.path for part in parts), strict=True)),
        Marks(
            np.concatenate([m.at for m in marks]),
            np.concatenate([m.rank for m in marks]),
            np.concatenate([m.code for m in marks]),
            tuple(np.concatenate(numbers) for numbers in zip(*(m.path for m in marks), strict=True)),
        ),
    )


def _nothing(plan: Plan, stream: str) -> ReadRows:
    schema = plan.graph.schema_of(stream)
    return ReadRows({f.name: pa.array([], f.type) for f in schema}, np.empty(0, np.int64))


def _hashes(chunk: Chunk, hashes: Hashes) -> Hashes:
    """Return the hash of each tuple's key; a tick that was passed on as a tuple has none."""
    code = chunk.code
    if not len(hashes):
        return np.zeros(len(code), np.uint64)
    return np.where(code == EVERY, np.uint64(0), hashes[np.where(code == EVERY, 0, code)])
