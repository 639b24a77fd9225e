"""Tuples that come late."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.errors import GraphError
from riprap.graph.faults import Exposed, FaultModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness(FaultModel):
    """Tuples come after those that were so many positions of the source behind them: at 1, after the next."""

    deep = True

    distance: int

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise GraphError(f"distance={self.distance}: give how many positions late, at least 1")

    def describe(self, where: str) -> str:
        return f"delays tuples {where} by {self.distance} positions"

    def apply(self, tuples: Exposed) -> Exposed:
        return tuples.move(tuples.hit, tuples.position + self.distance)
