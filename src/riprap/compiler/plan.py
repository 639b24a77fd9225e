"""What the compiler makes of a graph: a plan that the runtime carries out. A value, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from riprap.graph.graph import Graph
from riprap.operators.arrival import Entry

Path = Literal["direct", "exchange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One processing element: fused operators, their key, what they read, and how they are fed."""

    name: str
    graph: Graph
    entries: tuple[Entry, ...]
    needed: Mapping[str, frozenset[str]]
    path: Path
    buckets: int
    tasks: int

    @property
    def keyed(self) -> bool:
        """Whether rows belong to buckets. Without state any task may take any row."""
        return any(o.stateful for o in self.graph)

    def span(self, task: int) -> tuple[int, int]:
        """Return the buckets [first, end) that a task has."""
        return self.buckets * task // self.tasks, self.buckets * (task + 1) // self.tasks
