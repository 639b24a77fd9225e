"""What came and what went between two versions of a state, key by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.runtime.checkpointing.contents import SlotContents
from riprap.state.hashing import Hashes, hash_arrays
from riprap.state.windows import align

ChangeKind = Literal["new", "gone", "changed"]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key whose state differs: its place among the keys of either version (-1: it is not there), and which tuples
    came and went, by their places in the slot."""

    kind: ChangeKind
    before: int
    after: int
    came: Ints
    went: Ints


@dataclass(frozen=True, slots=True)
class SlotComparison:
    """Two versions of a slot side by side."""

    before: SlotContents
    after: SlotContents
    changes: tuple[KeyChange, ...]
    same: int

    def count(self, kind: ChangeKind) -> int:
        return sum(change.kind == kind for change in self.changes)

    @property
    def came(self) -> int:
        return sum(len(change.came) for change in self.changes)

    @property
    def went(self) -> int:
        return sum(len(change.went) for change in self.changes)


def compare(before: SlotContents, after: SlotContents, *, slides: bool) -> SlotComparison:
    """Compare two versions of a slot; ``slides`` if it holds the newest so many tuples of each key."""
    old, new = tuple_hashes(before), tuple_hashes(after)
    _, before_code, after_code = align(before.keys.hashes, after.keys.hashes)
    changes, same = [], 0
    for b, a in zip(before_code.tolist(), after_code.tolist(), strict=True):
        had, has = _span(before, b), _span(after, a)
        came, went = differ(old[had[0] : had[1]], new[has[0] : has[1]], slides=slides)
        # Keys without tuples have counters at least.
        counters = b >= 0 and a >= 0 and _counters(before, b) == _counters(after, a)
        if counters and not len(came) and not len(went):
            same += 1
            continue
        kind: ChangeKind = "new" if b < 0 else "gone" if a < 0 else "changed"
        changes.append(KeyChange(kind, b, a, came + has[0], went + had[0]))
    return SlotComparison(before, after, tuple(changes), same)


def differ(before: Hashes, after: Hashes, *, slides: bool) -> tuple[Ints, Ints]:
    """Return the places of the tuples that came, and of those that went.

    What slides is a queue: the end of what it had is the beginning of what it has, and the rest went or came. Most else
    is one too; where it is not, tuples are told apart by what they are, wherever they are.

    >>> a, b = np.array([1, 2, 3, 4], np.uint64), np.array([3, 4, 5], np.uint64)
    >>> differ(a, b, slides=True)
    (array([2]), array([0, 1]))
    >>> differ(np.array([1, 2, 3], np.uint64), np.array([1, 3], np.uint64), slides=False)
    (array([], dtype=int64), array([1]))
    """
    if len(before) == len(after) and (before == after).all():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    shared = overlap(before.tolist(), after.tolist())
    if shared or slides:
        return np.arange(shared, len(after)), np.arange(len(before) - shared)
    return _beyond(after, before), _beyond(before, after)


def _beyond(these: Hashes, those: Hashes) -> Ints:
    """Return the places of the tuples that the others have not, or not as often."""
    left = Counter(those.tolist())
    beyond = []
    for place, each in enumerate(these.tolist()):
        if left[each]:
            left[each] -= 1
        else:
            beyond.append(place)
    return np.array(beyond, np.int64)


def overlap(before: Sequence[int], after: Sequence[int]) -> int:
    """Return how many of the last of one list are the first of the other, at most.

    >>> overlap([1, 2, 1, 2], [1, 2, 3])
    2
    """
    # How much of the beginning of ``after`` ends at each of its places, then at the places of ``before``.
    borders = [0] * len(after)
    matched = 0
    for place in range(1, len(after)):
        while matched and after[place] != after[matched]:
            matched = borders[matched - 1]
        matched += after[place] == after[matched]
        borders[place] = matched
    matched = 0
    for each in before:
        if matched == len(after):
            matched = borders[matched - 1] if matched else 0
        while matched and each != after[matched]:
            matched = borders[matched - 1]
        matched += bool(after) and each == after[matched]
    return matched


def tuple_hashes(holding: SlotContents) -> Hashes:
    """Return a number for each tuple that is the same for tuples that are the same."""
    tuples = holding.contents.tuples
    columns = [_plain(tuples.field(number)) for number in range(tuples.type.num_fields)]
    return hash_arrays(columns) if columns and len(tuples) else np.zeros(len(tuples), np.uint64)


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date32(kind)
    )
    return column if plain else pa.array([repr(each) for each in column.to_pylist()], pa.string())


def _span(holding: SlotContents, code: int) -> tuple[int, int]:
    if code < 0:
        return 0, 0
    return int(holding.contents.offsets[code]), int(holding.contents.offsets[code + 1])


def _counters(holding: SlotContents, code: int) -> list[int]:
    counters: list[int] = holding.contents.counters[code].tolist()
    return counters
