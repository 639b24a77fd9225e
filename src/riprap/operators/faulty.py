"""What a fault does to the tuples of a batch.

Which tuples it hits, and what is random about it, is told by their places alone: their source, their position there and
the path they took. So it does the same whatever tasks and batches they are in, and whichever others are with them. Only
tuples that are to come late come at the end of their batch at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from riprap.arrays import Bools, Floats, Ints, Words
from riprap.errors import GraphError
from riprap.graph.faults import ColumnChange, Fault, Stretch
from riprap.graph.operator import PassesOn, Traits
from riprap.kernels.chunk import EVERY, FIRST, LAST, Chunk, Marks
from riprap.kernels.given import Given, Result, hash_part, index_among

# What it is there for: a fault that is injected, or a lag by which streams interleave in another way.
Role = Literal["fault", "lag"]
# So many bits number the tuples that derive from one.
_SIBLING_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty(PassesOn):
    """Passes tuples of a stream on to a target, but for what a fault, if there is one, does to some.

    A key that is corrupted is still where it was: what is corrupted is the tuple, not the way it takes.
    """

    TRAITS: ClassVar[Traits] = Traits(does="does to tuples what a fault would")

    target: str
    stream: str
    role: Role = "fault"
    fault: Fault | None = None
    deep: bool = False

    @property
    def depth(self) -> int:
        # A place of its own, and the key.
        return 2 if self.deep else 0

    def summary(self) -> str:
        return self.fault.describe() if self.fault is not None else "nothing yet"

    def run(self, given: Given) -> Result:
        """Pass tuples on, but for what the fault does."""
        (chunk,) = given.inputs
        fault, placed = self.fault, False
        if fault is not None:
            source, position = (given.tags[given.origin + n][chunk.rank] for n in (0, 1))
            places = (position, *chunk.path)
            hit = _hit(fault.stretches, source, places)
            exposed = ExposedChunk(chunk, hit, source, places, fault, self.target, given)
            made = fault.model.apply(exposed)
            if not isinstance(made, ExposedChunk):
                raise exposed.wrong(f"its model must return tuples, and returned {made!r}")
            chunk, placed = made.chunk, made.placed
        return Result(outputs=(_repeat(chunk, None) if self.deep and not placed else chunk,))


@dataclass(frozen=True, slots=True)
class ExposedChunk:
    """A chunk as a model of faults meets it; once it is ``placed``, its tuples have a number in their path for that."""

    chunk: Chunk
    hit: Bools
    source: Ints
    places: tuple[Ints, ...]
    fault: Fault
    target: str
    given: Given
    placed: bool = False

    @property
    def columns(self) -> Mapping[str, pa.Array]:
        return self.chunk.columns

    @property
    def position(self) -> Ints:
        return self.places[0]

    @property
    def seed(self) -> int:
        return self.fault.seed

    def words(self, draw: int = 0) -> Words:
        return _word(self.seed ^ (draw << 48), self.source, self.places)

    def chance(self, draw: int = 0) -> Floats:
        return chance(self.seed ^ (draw << 48), self.source, self.places)

    def keep(self, which: Bools) -> ExposedChunk:
        self._check(deep=False)
        rows = np.flatnonzero(which)
        places = tuple(numbers[rows] for numbers in self.places)
        chunk, source = self.chunk.take(rows), self.source[rows]
        return replace(self, chunk=chunk, hit=self.hit[rows], source=source, places=places)

    def change(self, column: str, change: ColumnChange) -> ExposedChunk:
        self._check(deep=False)
        rows = np.flatnonzero(self.hit)
        whole = self.columns.get(column)
        if whole is None or not len(rows):
            return self
        changed = change(whole.take(pa.array(rows)))
        if len(changed) != len(rows):
            raise self.wrong(f"of {len(rows)} values of {column} it made {len(changed)}")
        where = np.arange(len(whole))
        where[rows] = len(whole) + np.arange(len(rows))
        if pa.types.is_dictionary(whole.type):
            whole = whole.dictionary_decode()
        values = pa.concat_arrays([whole, changed.cast(whole.type)]).take(pa.array(where))
        return replace(self, chunk=self.chunk.with_columns({**self.columns, column: values}))

    def repeat(self, times: Ints) -> ExposedChunk:
        self._check(deep=True)
        return replace(self, chunk=_repeat(self.chunk, times), placed=True)

    def move(self, which: Bools, to: Ints) -> ExposedChunk:
        self._check(deep=True)
        return replace(self, chunk=_move(self.chunk, self.given, which, to), placed=True)

    def _check(self, *, deep: bool) -> None:
        if self.placed:
            raise self.wrong("to repeat or move tuples must be the last that a model does")
        if deep and not self.fault.model.deep:
            raise self.wrong("a model that repeats or moves tuples must say deep = True")

    def wrong(self, what: str) -> GraphError:
        """Make the error of a model that does what it cannot."""
        return GraphError(f"'{self.target}': {self.fault.describe()}: {what}")


def _hit(stretches: Sequence[Stretch], source: Ints, places: Sequence[Ints]) -> Bools:
    hit = np.zeros(len(source), bool)
    for stretch in stretches:
        begun, over = (_at_or_after(places, mark) for mark in (stretch.begin, stretch.end))
        hit |= (source == stretch.source) & begun & ~over
    return hit


def _at_or_after(places: Sequence[Ints], mark: Sequence[int]) -> Bools:
    """Say which places are not before a mark: the first number in which they differ tells."""
    found = np.ones(len(places[0]), bool)
    for numbers, number in reversed(list(zip(places, mark, strict=False))):
        found = (numbers > number) | ((numbers == number) & found)
    return found


def chance(seed: int, source: Ints, places: Sequence[Ints]) -> Floats:
    """Draw a number from 0 up to 1 for each tuple, by its place."""
    return (_word(seed, source, places) >> np.uint64(11)).astype(np.float64) / (1 << 53)


def _word(seed: int, source: Ints, places: Sequence[Ints]) -> Words:
    """Draw 64 random bits for each tuple, by its place (the finaliser of SplitMix64, number after number)."""
    word = np.full(len(source), np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF))
    for numbers in (source, *places):
        word = word + numbers.astype(np.uint64) + np.uint64(0x9E37_79B9_7F4A_7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
        word = word ^ (word >> np.uint64(31))
    return word


def _repeat(chunk: Chunk, times: Ints | None) -> Chunk:
    """Let tuples come several times, each with a number; without a word once."""
    if times is None:
        nothing = np.zeros(chunk.rows, np.int64)
        return replace(chunk, path=(*chunk.path, nothing, nothing), marks=_marks(chunk.marks, chunk.marks.at))
    row = np.repeat(np.arange(chunk.rows), times)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    marks = _marks(chunk.marks, np.searchsorted(row, chunk.marks.at))
    made = replace(chunk, marks=chunk.marks.take(slice(0, 0))).take(row)
    return replace(made, path=(*made.path, nth, np.zeros(len(nth), np.int64)), marks=marks)


def _marks(marks: Marks, at: Ints) -> Marks:
    """Lengthen the path of punctuations: each comes before the tuples that it came before."""
    first = np.full(len(marks), FIRST)
    return replace(marks, at=at, path=(*marks.path, first, first))


def _move(chunk: Chunk, given: Given, moved: Bools, virtual: Ints) -> Chunk:
    """Put tuples where the last of their source is up to, and with, a virtual position; there they come last."""
    source, position = (given.tags[given.origin + n] for n in (0, 1))
    nothing = np.zeros(chunk.rows, np.int64)
    rank, path = chunk.rank.copy(), [p.copy() for p in (*chunk.path, nothing, nothing)]
    rows = np.flatnonzero(moved)
    rank[rows] = last_up_to(source, position, chunk.rank[rows], virtual[rows])
    for numbers in path[:-2]:
        numbers[rows] = LAST
    # Those that come to the same place stay in their order, key by key: what others there are makes no difference.
    path[-2][rows] = ((position[chunk.rank[rows]] + 1) << _SIBLING_BITS) + _among_its_key(chunk)[rows]
    of_key = np.append(hash_part(given.keys), 0)
    path[-1][rows] = of_key[np.where(chunk.code[rows] == EVERY, -1, chunk.code[rows])]
    made = replace(chunk, rank=rank, path=tuple(path), marks=chunk.marks.take(slice(0, 0)))
    if not _sorted((rank, *path)):
        made = made.take(np.lexsort((*path[::-1], rank)))
    if not len(chunk.marks):
        return replace(made, marks=_marks(chunk.marks, chunk.marks.at))
    # Punctuations stay where they are in the order of everything.
    marks = _marks(chunk.marks, chunk.marks.at)
    both = [
        np.concatenate(pair) for pair in zip((made.rank, *made.path), (marks.rank, *marks.path), strict=True)
    ]
    tuples = np.lexsort(both[::-1]) < made.rows
    return replace(made, marks=replace(marks, at=np.cumsum(tuples, dtype=np.int64)[~tuples]))


def _sorted(columns: Sequence[Ints]) -> bool:
    """Say whether rows are in order, of their first column, then of their second and so on."""
    before = np.zeros(max(0, len(columns[0]) - 1), bool)
    same = ~before
    for numbers in columns:
        before |= same & (numbers[1:] > numbers[:-1])
        same &= numbers[1:] == numbers[:-1]
        if not same.any():
            break
    return bool((before | same).all())


def _among_its_key(chunk: Chunk) -> Ints:
    """Number the tuples of each rank and key from 0."""
    if bool((chunk.rank[1:] > chunk.rank[:-1]).all()):
        return np.zeros(chunk.rows, np.int64)
    order = np.lexsort((chunk.code, chunk.rank))
    rank, code = chunk.rank[order], chunk.code[order]
    new = np.ones(len(order), bool)
    new[1:] = (rank[1:] != rank[:-1]) | (code[1:] != code[:-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = index_among(np.cumsum(new))
    return numbers


def last_up_to(source: Ints, position: Ints, rank: Ints, virtual: Ints) -> Ints:
    """Return for each of some ranks that of the last tuple of its source up to, and with, a virtual position."""
    found = rank.copy()
    for number in np.flatnonzero(np.bincount(source[rank])):
        # The ranks of one source are in order of position, for all its tuples are of one batch.
        of_source = np.flatnonzero(source == number)
        mine = np.flatnonzero(source[rank] == number)
        last = np.searchsorted(position[of_source], virtual[mine], "right") - 1
        found[mine] = np.maximum(of_source[np.maximum(last, 0)], rank[mine])
    return found
