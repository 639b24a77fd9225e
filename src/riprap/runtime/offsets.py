"""Where a batch begins and ends in the input of a processing element, and what of it each task reads.

An *offset* says how far there is input: of recorded sources by row, of channels by frontier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.feeds.segments import FeedSegment
from riprap.state.ledger import BatchRecord

Offset = dict[str, Any]

# In the offset of sources that interleave by an ordering column: the ordering number up to which all are read.
FRONTIER = "$frontier"
# In the offset of finite input that is to be flushed: 1 once its end has been planned, which is a batch of its own.
END = "$end"
# In the offset of what reads replicas: for each group the epoch it is in, and the replica whose log was read.
ACTIVE = "$active"
# Where cuts are made when a start says so, it has MARK of the ledger besides.
# Below every frontier: nothing is complete.
NOTHING_YET = -(2**63)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task reads: for each source rows from start to end, in these segments; for each root, frontiers.

    Or it reads nothing and puts out what is held at the end of the input, if ``ends``: at ``frontier``, or where there
    is none, at the batch. A small batch is ``alone``: there is no other piece, and all buckets are this task's. Of
    groups it is said which of their ``replicas`` is read.
    """

    task: int
    sources: Mapping[str, tuple[int, int, list[FeedSegment]]] = field(default_factory=dict)
    frontiers: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    ends: bool = False
    frontier: int | None = None
    alone: bool = False
    replicas: Mapping[str, str] = field(default_factory=dict)

    def end(self, batch: int) -> int | None:
        """Return the frontier of the end of the input, None where this is not the end."""
        if not self.ends:
            return None
        return batch if self.frontier is None else self.frontier

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Piece:
        """Make a piece as it is written as JSON."""
        sources = {
            n: (a, b, [FeedSegment(**s) for s in segments]) for n, (a, b, segments) in data["sources"].items()
        }
        frontiers = {n: (a, b) for n, (a, b) in data["frontiers"].items()}
        ends, replicas = data["ends"], data["replicas"]
        return cls(data["task"], sources, frontiers, ends, data["frontier"], data["alone"], replicas)


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a batch ends in each source or root, and how far the element's streams are complete by it."""

    ends: dict[str, Any]
    frontier: int

    @classmethod
    def of(cls, plan: Plan, batch: int, offset: Offset) -> Planned:
        """Say what a batch that reaches an offset is."""
        ends = {name: end for name, end in offset.items() if name != FRONTIER}
        if plan.root in plan.roots:
            reached: int | None = ends[plan.root]
        else:
            reached = offset.get(FRONTIER) if plan.aligned else batch
        # Spark runs a first batch even if nothing has come: then all is complete up to the least there is.
        return cls(ends, NOTHING_YET if reached is None else reached)

    @staticmethod
    def reached(record: BatchRecord | None, initial: Offset) -> Offset:
        """Return the offset up to which the input is on record; ``initial`` is that of the beginning."""
        if record is None:
            return initial
        ends = {name: end for name, (_, end) in record.sources.items()}
        offset = {name: ends.get(name, begin) for name, begin in initial.items()}
        if FRONTIER in initial:
            offset[FRONTIER] = None if record.frontier == NOTHING_YET else record.frontier
        return offset

    @staticmethod
    def covered(record: BatchRecord, initial: Offset) -> tuple[Offset, Offset]:
        """Return the offsets that a batch on record begins and ends at; ``initial`` is that of the beginning."""
        starts = {name: start for name, (start, _) in record.sources.items() if start is not None}
        ends = {name: end for name, (_, end) in record.sources.items()}
        reached = None if record.frontier == NOTHING_YET else record.frontier
        frontier = {FRONTIER: reached} if FRONTIER in initial else {}
        return {**initial, **starts}, {**initial, **ends, **frontier}

    def compare(self, record: BatchRecord, element: str) -> None:
        """Refuse other input for a batch than it has on record: tuples would be left out, or counted twice."""
        ends = {name: end for name, (_, end) in record.sources.items()}
        if self.ends != ends:
            raise LedgerError(
                f"batch {record.batch} of '{element}' is on record up to {ends}, and is planned up to {self.ends}: "
                "tuples would be left out or counted twice. Put back the run's folder as it was, from a copy; or start "
                "a new run"
            )


class Inflow(Protocol):
    """Where a processing element's input comes from."""

    def initial(self) -> Offset:
        """Return the offset of the beginning."""

    def latest(self, start: Offset, rows: int) -> Offset:
        """Return how far the next batch may go, with about so many rows of each source, or channel."""

    def pieces(self, start: Offset, end: Offset, *, alone: bool = False) -> list[Piece]:
        """Cut a batch up for the tasks, or for one of them alone."""

    def commit(self, end: Offset) -> None:
        """Let go of what was read up to an offset."""

    def fix(self) -> None:
        """Take no input into account that is not there now."""

    def close(self) -> None:
        """Let go of it."""


def is_end(start: Offset, end: Offset) -> bool:
    """Say whether a batch is the end of its input."""
    return bool(end.get(END)) and not start.get(END)
