"""A sink's output as scores need it: its columns, in which section each tuple is, and how it is told from others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from riprap.errors import RunError
from riprap.faults.replay import Piece
from riprap.faults.scores import Floats, Score
from riprap.operators.arrival import order_numbers
from riprap.operators.chunk import Ints, concatenate_arrays
from riprap.state.hashing import hash_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """How an output is cut up: by so many numbers of a column, or of the position in the source."""

    length: int
    by: str | None = None
    first: int = 0
    count: int = 1

    def of(self, output: Output) -> Ints:
        """Return the section of each tuple, those outside in the first or last."""
        return np.clip((output.place - self.first) // self.length, 0, self.count - 1)

    def at(self, place: int) -> int:
        """Return the section of a place."""
        return int(np.clip((place - self.first) // self.length, 0, self.count - 1))


@dataclass(frozen=True, slots=True)
class Output:
    """All tuples that reached a sink, in order. ``identity`` tells a tuple from others, in every run alike."""

    columns: Mapping[str, pa.Array]
    place: Ints
    identity: np.ndarray

    def scores(self, score: Score, sections: Sections) -> Floats:
        """Return the score of each section."""
        section = sections.of(self)
        order = np.argsort(section, kind="stable")
        in_order = bool((order == np.arange(len(order))).all())
        columns = self.columns if in_order else {n: c.take(pa.array(order)) for n, c in self.columns.items()}
        starts = np.searchsorted(section if in_order else section[order], np.arange(sections.count + 1))
        return score.of(columns, starts)

    def score_of(self, score: Score, identities: np.ndarray) -> float:
        """Return the score of some tuples, as far as they are there."""
        rows = np.flatnonzero(np.isin(self.identity, identities))
        columns = {name: column.take(pa.array(rows)) for name, column in self.columns.items()}
        return float(score.of(columns, np.array([0, len(rows)]))[0])


def output_of(
    pieces: Sequence[Piece], *, origin: int, read: Collection[str], by: str | None, key: Sequence[str]
) -> Output:
    """Put an output together from its blocks. Tuples are known by key columns, or else by where they stand."""
    columns = {
        name: concatenate_arrays([piece.columns[name] for piece in pieces])
        for name in dict.fromkeys((*read, *key, *((by,) if by else ())))
    }
    tags = [np.concatenate(numbers) for numbers in zip(*(piece.tags for piece in pieces), strict=True)]
    place = order_numbers(columns[by]) if by else tags[origin + 1]
    known = [columns[name] for name in key] if key else [pa.array(numbers) for numbers in tags[origin:]]
    rows = len(place)
    identity = hash_arrays(known) if rows else np.empty(0, np.uint64)
    if key and len(np.unique(identity)) < rows:
        raise RunError(f"key={', '.join(key)}: two tuples of an output have the same. Name columns that tell tuples apart")
    return Output(columns, place, identity)
