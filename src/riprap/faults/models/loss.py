"""Tuples that are lost."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.errors import GraphError
from riprap.graph.faults import Exposed, FaultModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(FaultModel):
    """Tuples are lost, but for a random share that a buffer has kept."""

    keep: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.keep <= 1.0:
            raise GraphError(f"keep={self.keep}: give the share of tuples that a buffer keeps, 0 to 1")

    @property
    def drawn(self) -> bool:
        return 0.0 < self.keep < 1.0

    def describe(self, where: str) -> str:
        return f"loses tuples {where}" + (f", {self.keep:.0%} kept" if self.keep else "")

    def apply(self, tuples: Exposed) -> Exposed:
        lost = tuples.hit & (tuples.chance() >= self.keep) if self.keep else tuples.hit
        return tuples.keep(~lost)
