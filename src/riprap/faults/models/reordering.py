"""Tuples that come in another order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riprap.errors import GraphError
from riprap.graph.faults import Exposed, FaultModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering(FaultModel):
    """Tuples come late by a random number of positions each, from 0 up to and with a distance: in another order."""

    drawn = True
    deep = True

    distance: int

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise GraphError(f"distance={self.distance}: give within how many positions, at least 1")

    def describe(self, where: str) -> str:
        return f"reorders tuples {where} within {self.distance} positions"

    def apply(self, tuples: Exposed) -> Exposed:
        late = np.floor(tuples.chance() * (self.distance + 1)).astype(np.int64)
        return tuples.move(tuples.hit & (late > 0), tuples.position + late)
