"""A piece of a stream inside a stage: columns, and the order and key of every tuple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.state.keys import Codes

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tuples in order.

    ``rank`` is the place, among the stage's input tuples of this batch, of the tuple each one derives from (never
    falling); ``code`` is its key's place in the batch's key table.
    """

    columns: Mapping[str, pa.Array]
    rank: Ranks
    code: Codes

    @property
    def rows(self) -> int:
        return len(self.rank)

    def take(self, rows: npt.NDArray[np.int64]) -> Chunk:
        """Return some of the tuples, in the order given."""
        index = pa.array(rows)
        return Chunk({n: c.take(index) for n, c in self.columns.items()}, self.rank[rows], self.code[rows])

    def slice(self, start: int, stop: int) -> Chunk:
        """Return consecutive tuples without copying."""
        columns = {n: c.slice(start, stop - start) for n, c in self.columns.items()}
        return Chunk(columns, self.rank[start:stop], self.code[start:stop])

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Chunk:
        """Return the same tuples with other columns."""
        return Chunk(columns, self.rank, self.code)


def empty_chunk(schema: pa.Schema) -> Chunk:
    """Return no tuples of a schema."""
    columns = {f.name: pa.array([], f.type) for f in schema}
    return Chunk(columns, np.empty(0, np.int64), np.empty(0, np.int32))


def concatenate(chunks: Sequence[Chunk], schema: pa.Schema) -> Chunk:
    """Put chunks of one schema one after the other."""
    if not chunks:
        return empty_chunk(schema)
    if len(chunks) == 1:
        return chunks[0]
    columns = {n: pa.concat_arrays([c.columns[n] for c in chunks]) for n in chunks[0].columns}
    rank = np.concatenate([c.rank for c in chunks])
    return Chunk(columns, rank, np.concatenate([c.code for c in chunks]))


def struct_of(columns: Mapping[str, pa.Array], rows: int) -> pa.StructArray:
    """Bundle columns as tuples; none at all makes tuples without values."""
    plain = {n: c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for n, c in columns.items()}
    if not plain:
        return pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.StructArray.from_arrays(list(plain.values()), list(plain))
