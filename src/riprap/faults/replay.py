"""Replay an application in one process, block after block, with its state in memory: the stage's own code, no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.compiler import Plan
from riprap.operators.arrival import Rows, Tags, arrive, key_rows
from riprap.operators.chunk import EVERY, Chunk, Ints, concatenate_arrays
from riprap.operators.given import Pages
from riprap.operators.stage import run_stage
from riprap.runtime.task import keep_time, slots_of
from riprap.state.hashing import Hashes

State = Mapping[str, Pages]


@dataclass(frozen=True, slots=True)
class Piece:
    """Tuples of a stream, in order: columns, tag and hash of the key of each; and the tags of punctuations."""

    columns: Mapping[str, pa.Array]
    tags: Tags
    hashes: Hashes
    punctuations: Tags = ()

    @property
    def rows(self) -> int:
        return len(self.hashes)

    def take(self, which: Ints) -> Piece:
        """Return some of the tuples, and all punctuations."""
        index = pa.array(which)
        return Piece(
            {name: column.take(index) for name, column in self.columns.items()},
            tuple(numbers[which] for numbers in self.tags),
            self.hashes[which],
            self.punctuations,
        )

    def of_keys(self, hashes: Hashes, *, others: bool = False) -> Piece:
        """Return the tuples of some keys, or of all others."""
        mine = np.isin(self.hashes, hashes)
        return self.take(np.flatnonzero(~mine if others else mine))

    def as_rows(self) -> Rows:
        """Return them as what comes in by channel."""
        return Rows(self.columns, np.arange(self.rows), self.tags, self.punctuations)


def concatenate(pieces: Sequence[Piece]) -> Piece:
    """Put pieces of one stream one after the other."""
    first = pieces[0]
    return Piece(
        {name: concatenate_arrays([p.columns[name] for p in pieces]) for name in first.columns},
        tuple(np.concatenate(numbers) for numbers in zip(*(p.tags for p in pieces), strict=True)),
        np.concatenate([p.hashes for p in pieces]),
        tuple(np.concatenate(numbers) for numbers in zip(*(p.punctuations for p in pieces if p.punctuations), strict=True)),
    )


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a block: tuples for each sink and outlet, those of the streams that were watched, and the state."""

    outputs: Mapping[str, Piece]
    watched: Mapping[str, Piece]
    state: State


@dataclass(frozen=True, slots=True)
class Player:
    """A processing element that is replayed."""

    plan: Plan
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def begin(self) -> State:
        """Return the state before anything has come."""
        return {slot: () for slot in slots_of(self.plan)}

    def play(self, rows: Mapping[str, Rows], state: State, *, block: int = 0, watch: Collection[str] = ()) -> Played:
        """Compute a block; with a number of its own where blocks are batches, else all have the same."""
        plan = self.plan
        arrival = arrive(
            plan.entries,
            rows,
            batch=block,
            aligned=plan.aligned,
            root=plan.origin + 2,
            span=(0, plan.buckets) if plan.keyed else None,
            buckets=plan.buckets,
        )
        arrival, clocks = keep_time(plan, arrival, state, (0, plan.buckets))
        outcome = run_stage(
            plan.graph,
            plan.needed,
            arrival,
            state,
            sources=plan.sources,
            origin=plan.origin,
            tables=self.tables,
            watch=watch,
        )
        for slot, page in clocks.items():
            outcome.keep(slot, page, state[slot])

        def piece(chunk: Chunk) -> Piece:
            return Piece(
                chunk.columns,
                (*(numbers[chunk.rank] for numbers in arrival.tags), *chunk.path),
                _hashes(chunk, arrival.keys.hashes),
                (*(numbers[chunk.marks.rank] for numbers in arrival.tags), *chunk.marks.path) if len(chunk.marks) else (),
            )

        return Played(
            {name: piece(chunk) for name, chunk in outcome.outputs.items()},
            {name: piece(chunk) for name, chunk in outcome.watched.items()},
            {slot: outcome.pages_of(slot, older) for slot, older in state.items()},
        )

    def hashes(self, rows: Mapping[str, Rows]) -> dict[str, Hashes]:
        """Return the hash of the key of every row that comes in, but for ticks, which are for all."""
        data = [e for e in self.plan.entries if e.tick is None]
        keys, codes = key_rows(data, rows)
        return {name: keys.hashes[code] for name, code in codes.items()}

    def of_keys(self, rows: Mapping[str, Rows], known: Mapping[str, Hashes], hashes: Hashes) -> dict[str, Rows]:
        """Return the rows of some keys; ticks and punctuations stay."""
        return {
            name: take(part, np.flatnonzero(np.isin(known[name], hashes))) if name in known else part
            for name, part in rows.items()
        }


def take(rows: Rows, which: Ints) -> Rows:
    """Return some rows, and all punctuations."""
    index = pa.array(which)
    return replace(
        rows,
        columns={name: column.take(index) for name, column in rows.columns.items()},
        position=rows.position[which],
        tags=tuple(numbers[which] for numbers in rows.tags),
    )


def _hashes(chunk: Chunk, hashes: Hashes) -> Hashes:
    """Return the hash of each tuple's key; a tick that was passed on as a tuple has none."""
    code = chunk.code
    if not len(hashes):
        return np.zeros(len(code), np.uint64)
    return np.where(code == EVERY, np.uint64(0), hashes[np.where(code == EVERY, 0, code)])
