"""The time that a clock tells in the course of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riprap.kernels.chunk import Chunk, Ints
from riprap.kernels.extents import LONG_AGO
from riprap.kernels.given import Given


@dataclass(frozen=True, slots=True)
class ClockTimes:
    """A clock's time over a batch: before its first tick, and from each tick on. It never goes back."""

    rank: Ints
    time: Ints

    @classmethod
    def of(cls, given: Given) -> ClockTimes | None:
        """Return what the operator's clock says, None where it has none."""
        ticks = given.ticks
        if ticks is None:
            return None
        before = LONG_AGO if ticks.before is None else ticks.before
        return cls(ticks.rank, np.maximum.accumulate(np.concatenate([[before], ticks.time])))

    @property
    def ticks(self) -> int:
        return len(self.rank)

    def heard(self, chunk: Chunk) -> Ints:
        """Return how many ticks came before each tuple; a tick comes after the tuples of its rank."""
        heard: Ints = np.searchsorted(self.rank, chunk.rank)
        return heard

    def at(self, chunk: Chunk) -> Ints:
        """Return the time at which each tuple comes."""
        return self.time[self.heard(chunk)]
