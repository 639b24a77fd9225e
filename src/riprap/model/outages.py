"""How many tuples it takes to renew the windows that an outage leaves incomplete, counted on a real stream of tuples.

An outage loses consecutive tuples. Each key among them has a window that lacks some, and is right again when it has had
as many new tuples as it holds.
"""

from __future__ import annotations

import numpy as np

from riprap.arrays import Ints
from riprap.errors import ModelError
from riprap.machine_code import compiled


def held_by_key(keys: Ints, window: int) -> Ints:
    """Return how many tuples the window of each key holds at the end of a stream.

    >>> held_by_key(np.array([0, 1, 0, 0]), 2)
    array([2, 1])
    """
    return np.minimum(np.bincount(keys), window)


def renewals(keys: Ints, held: Ints, lost: int, *, points: int, rng: np.random.Generator) -> Ints:
    """Lose ``lost`` consecutive tuples at random points of a stream; return for each how many tuples renew the windows.

    ``keys`` numbers the key of every tuple, ``held`` says how many tuples the window of each key holds.
    """
    if lost > len(keys):
        raise ModelError(
            f"an outage takes {lost:,} tuples, and the stream has {len(keys):,}. Give a longer feed, or shorter outages"
        )
    starts = rng.integers(0, len(keys) - lost + 1, points)
    counted: Ints = _renewals(previous(keys), held[keys], starts, lost)
    return counted


def previous(keys: Ints) -> Ints:
    """Return where each tuple's key came up before, -1 where it had not.

    >>> previous(np.array([7, 8, 7, 7]))
    array([-1, -1,  0,  2])
    """
    order = np.argsort(keys, kind="stable")
    before = np.full(len(keys), -1, np.int64)
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    before[order[again + 1]] = order[again]
    return before


@compiled(nogil=True)
def _renewals(before, weight, starts, lost):  # type: ignore[no-untyped-def]
    """Add up the weight of the first tuple of each key in every stretch: one whose key was last before the stretch."""
    sums = np.zeros(len(starts), np.int64)
    for number in range(len(starts)):
        start = starts[number]
        for place in range(start, start + lost):
            if before[place] < start:
                sums[number] += weight[place]
    return sums
