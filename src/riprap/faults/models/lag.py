"""Streams that are behind: what another interleaving of them is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riprap.arrays import Ints
from riprap.graph.faults import Exposed, Fault, FaultModel
from riprap.operators.faulty import chance, last_up_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag(FaultModel):
    """A stream as a whole is now more, now less behind, by up to and with so many positions, and in order.

    A tuple that is behind by one comes after what derives from the next position on other streams. ``knots`` are
    positions at which it is not behind at all.
    """

    drawn = True
    deep = True

    distance: int
    knots: tuple[int, ...] = ()

    def describe(self, where: str) -> str:
        return f"is behind by up to {self.distance} positions"

    def apply(self, tuples: Exposed) -> Exposed:
        # Whatever stretches there are: it is the stream as a whole that is behind. A tuple that the one before it
        # may have caught up with stands in line behind it.
        position = tuples.position
        lag, before = (lag_at(self, tuples.seed, np.maximum(position - n, 0)) for n in (0, 1))
        return tuples.move((lag > 0) | (before > 0), position + lag)


def lagging_ranks(fault: Fault, source: Ints, position: Ints, ranks: Ints) -> Ints:
    """Return where tuples of some ranks come to by a lag: the ranks of those that they come right after."""
    assert isinstance(fault.model, Lag)
    virtual = position[ranks] + lag_at(fault.model, fault.seed, position[ranks])
    return last_up_to(source, position, ranks, virtual)


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
        chance(seed, np.zeros(len(corners), np.int64), (corners,)) * (model.distance + 1)
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
