"""What operators share that keep their state by a key, and those that keep windows of tuples by it."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.graph.operator import Operator
from riprap.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Operator):
    """An operator that keeps its state by some columns, () for one state in all."""

    by: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed(Keyed):
    """One of a single port that keeps a window of each key's tuples."""

    slots = ("0",)

    window: Window

    @property
    def heeds(self) -> bool:
        return self.window.punctuation

    @property
    def reopens(self) -> bool:
        return self.window.shape == "tumbling"

    def window_of(self, port: int) -> Window | None:
        return self.window
