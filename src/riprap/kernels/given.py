"""What a kernel is given for a batch, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.kernels.chunk import Chunk, PathNumbers
from riprap.machine_code import compiled
from riprap.state.keys import KeyTable

Pages = Sequence[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Ticks:
    """A clock's ticks in a batch, in microseconds, and the time of the last one before it (None: there was none)."""

    rank: Ints
    time: Ints
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an operator is given for a batch.

    ``inputs`` has one chunk a port, all with paths of the same length. ``keys`` has every key of the batch; where ticks
    or punctuations come in, also every key that has state. ``pages`` is its state by slot, newest page first;
    ``needed`` says which columns of its outputs anyone reads. ``table`` is the version of a lookup's table that counts
    for the batch. ``tags`` has the tag of each rank, and ``origin`` is where in it the source's number stands. ``key``
    seals objects of the user's in pages; it is empty for state that nobody else can get at.
    ``ends`` is there in the last batch of finite input that is to be flushed: the rank of the end of each key, for
    which nothing more comes.
    """

    inputs: tuple[Chunk, ...]
    keys: KeyTable
    pages: Mapping[str, Pages] = field(default_factory=dict)
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ticks: Ticks | None = None
    control: Chunk | None = None
    table: pa.Table | None = None
    tags: tuple[Ints, ...] = ()
    origin: int = 1
    key: bytes = b""
    ends: Ints | None = None

    @property
    def depth(self) -> int:
        """The length of the inputs' paths."""
        return len(self.inputs[0].path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an operator made of a batch: a chunk for each output, and a new state page for each slot that changed.

    ``late`` counts tuples that came after newer ones of their key, where time is read off them.
    """

    outputs: tuple[Chunk, ...]
    pages: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    late: int = 0


def derive(
    chunk: Chunk,
    row: Ints,
    columns: Mapping[str, pa.Array],
    *,
    index: Ints | None = None,
    hash: Ints | None = None,
) -> Chunk:
    """Make the outputs that derive from tuples ``row`` (never falling) of a chunk.

    An operator of depth 1 gives each one's ``index`` among the outputs of its tuple; one of depth 2 also its key's
    ``hash`` part (0 for what a tuple of that key made).
    """
    more = (*(() if hash is None else (hash,)), *(() if index is None else (index,)))
    return Chunk(
        columns, chunk.rank[row], chunk.code[row], (*(p[row] for p in chunk.path), *more)
    ).without_marks()


def index_among(event: Ints) -> Ints:
    """Number the members of each run of equal events from 0.

    >>> index_among(np.array([3, 3, 5, 7, 7, 7]))
    array([0, 1, 0, 0, 1, 2])
    """
    numbers: Ints = _index_among(event)
    return numbers


@compiled(types=("i8[::1],",))
def _index_among(event):  # type: ignore[no-untyped-def]
    numbers = np.zeros(len(event), np.int64)
    for i in range(1, len(event)):
        if event[i] == event[i - 1]:
            numbers[i] = numbers[i - 1] + 1
    return numbers


def same_order(rank: Ints, path: PathNumbers) -> Ints:
    """Number the places of a sequence so that those of the same rank and path have the same number.

    Where streams that derive from one tuple come together, several tuples have the same order.
    """
    new = np.zeros(len(rank), bool)
    for column in (rank, *path):
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new)


def hash_part(keys: KeyTable) -> Ints:
    """Return, for every key, the number that stands for it in a path: keys compare by their hash."""
    return (keys.hashes >> np.uint64(1)).astype(np.int64)
