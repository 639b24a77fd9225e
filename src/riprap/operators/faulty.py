"""What a fault does to the tuples of a batch.

Which tuples it hits, and what is random about it, is told by their places alone: their source, their position there and
the path they took. So it does the same whatever tasks and batches they are in, and whichever others are with them. Only
tuples that are to come late come at the end of their batch at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.graph.faults import Corruption, Duplication, Fault, Lag, Lateness, Loss, Reordering, Stretch
from riprap.graph.operators import Faulty
from riprap.operators.chunk import EVERY, FIRST, LAST, Chunk, Ints, Marks
from riprap.operators.given import Given, Result, hash_part, index_among

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
# So many bits number the tuples that derive from one.
_SIBLING_BITS = 20


def run_faulty(operator: Faulty, given: Given) -> Result:
    """Pass tuples on, but for what the fault does."""
    (chunk,) = given.inputs
    fault = operator.fault
    if fault is None:
        return Result(outputs=(_repeat(chunk, None) if operator.deep else chunk,))
    source, position = (given.tags[given.origin + n][chunk.rank] for n in (0, 1))
    places = (position, *chunk.path)
    hit = _hit(fault.stretches, source, places)
    match fault.model:
        case Loss(keep=keep):
            lost = hit & (_chance(fault.seed, source, places) >= keep) if keep else hit
            made = chunk.take(np.flatnonzero(~lost))
            made = _repeat(made, None) if operator.deep else made
        case Duplication(copies=copies):
            made = _repeat(chunk, np.where(hit, copies + 1, 1))
        case Corruption() as model:
            made = _corrupt(chunk, model, fault.seed, hit, source, places)
            made = _repeat(made, None) if operator.deep else made
        case Lateness(distance=distance):
            made = _move(chunk, given, hit, position + distance)
        case Reordering(distance=distance):
            late = np.floor(_chance(fault.seed, source, places) * (distance + 1)).astype(np.int64)
            made = _move(chunk, given, hit & (late > 0), position + late)
        case Lag() as model:
            # Whatever stretches there are: it is the stream as a whole that is behind. A tuple that the one before it
            # may have caught up with stands in line behind it.
            lag, before = (lag_at(model, fault.seed, np.maximum(position - n, 0)) for n in (0, 1))
            made = _move(chunk, given, (lag > 0) | (before > 0), position + lag)
    return Result(outputs=(made,))


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


def _chance(seed: int, source: Ints, places: Sequence[Ints]) -> Floats:
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
    rank[rows] = _last_up_to(source, position, chunk.rank[rows], virtual[rows])
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


def _last_up_to(source: Ints, position: Ints, rank: Ints, virtual: Ints) -> Ints:
    """Return for each of some ranks that of the last tuple of its source up to, and with, a virtual position."""
    found = rank.copy()
    for number in np.flatnonzero(np.bincount(source[rank])):
        # The ranks of one source are in order of position, for all its tuples are of one batch.
        of_source = np.flatnonzero(source == number)
        mine = np.flatnonzero(source[rank] == number)
        last = np.searchsorted(position[of_source], virtual[mine], "right") - 1
        found[mine] = np.maximum(of_source[np.maximum(last, 0)], rank[mine])
    return found


def lagging_ranks(fault: Fault, source: Ints, position: Ints, ranks: Ints) -> Ints:
    """Return where tuples of some ranks come to by a lag: the ranks of those that they come right after."""
    assert isinstance(fault.model, Lag)
    virtual = position[ranks] + lag_at(fault.model, fault.seed, position[ranks])
    return _last_up_to(source, position, ranks, virtual)


def lag_at(model: Lag, seed: int, position: Ints) -> Ints:
    """Say how far behind a stream is at positions: straight lines between corners, and none at the knots.

    Corners are at least ``distance`` apart and heights less than that, so no tuple overtakes another.
    """
    if not len(position):
        return np.zeros(0, np.int64)
    step = 2 * model.distance
    first, last = int(position.min()) // step, int(position.max()) // step + 1
    corners = np.arange(first, last + 2)
    heights = np.floor(
        _chance(seed, np.zeros(len(corners), np.int64), (corners,)) * (model.distance + 1)
    ).astype(np.int64)
    lag = np.interp(position, corners * step, heights)
    knots = np.asarray(model.knots, np.int64)
    if len(knots):
        # Towards a knot it catches up, from as far as it takes.
        after = np.searchsorted(knots, position, "right")
        ahead = np.where(after < len(knots), knots[np.minimum(after, len(knots) - 1)] - position, np.inf)
        lag = np.minimum(lag, np.maximum(ahead / 2 - 1, 0))
        behind = np.where(after > 0, position - knots[np.maximum(after - 1, 0)], np.inf)
        lag = np.minimum(lag, behind)
    return np.floor(lag).astype(np.int64)


def _corrupt(
    chunk: Chunk, model: Corruption, seed: int, hit: Bools, source: Ints, places: Sequence[Ints]
) -> Chunk:
    rows = np.flatnonzero(hit)
    if not len(rows):
        return chunk
    columns = dict(chunk.columns)
    for number, name in enumerate(n for n in model.columns if n in columns):
        values = columns[name].take(pa.array(rows))
        if model.change == "bits":
            word = _word(seed ^ (number << 48), source[rows], [p[rows] for p in places])
            changed = flip_bits(values, word)
        else:
            changed = model.change(values)
        where = np.arange(chunk.rows)
        where[rows] = chunk.rows + np.arange(len(rows))
        whole = columns[name]
        if pa.types.is_dictionary(whole.type):
            whole = whole.dictionary_decode()
        both = pa.concat_arrays([whole, changed.cast(whole.type)])
        columns[name] = both.take(pa.array(where))
    return chunk.with_columns(columns)


def can_flip(kind: pa.DataType) -> bool:
    """Say whether bits of values of a type can be flipped."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("boolean", "floating", "integer", "string", "timestamp", "date32")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def flip_bits(values: pa.Array, word: Words) -> pa.Array:
    """Flip a bit of every value, chosen by a random word; null stays null."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_boolean(kind):
        return pa.compute.invert(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return flip_bits(values.cast(whole), word).cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        bits = plain.view(f"u{plain.dtype.itemsize}")
        width = np.uint64(8 * plain.dtype.itemsize)
        flipped = (bits ^ (np.uint64(1) << (word % width)).astype(bits.dtype)).view(plain.dtype)
        return pa.array(flipped, kind, mask=values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind):
        return pa.array([_flip_text(v, int(w)) for v, w in zip(values.to_pylist(), word, strict=True)], kind)
    raise TypeError(f"no bits of {kind} can be flipped: give a function")


def _flip_text(text: str | None, word: int) -> str | None:
    """Flip one of the lower six bits of an ASCII letter, so that it stays text."""
    if not text:
        return text
    at = word % len(text)
    letter = chr((ord(text[at]) ^ (1 << (word >> 32) % 6)) or 1)
    return text[:at] + letter + text[at + 1 :]
