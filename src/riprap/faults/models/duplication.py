"""Tuples that come again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from riprap.errors import GraphError
from riprap.graph.faults import Exposed, FaultModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplication(FaultModel):
    """Tuples come more than once, one after the other."""

    deep = True

    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise GraphError(f"copies={self.copies}: give how many more times a tuple comes, at least 1")

    def describe(self, where: str) -> str:
        return f"repeats tuples {where}, {self.copies + 1} times in all"

    def apply(self, tuples: Exposed) -> Exposed:
        return tuples.repeat(np.where(tuples.hit, self.copies + 1, 1))
