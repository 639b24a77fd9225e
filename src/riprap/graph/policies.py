"""Fault-tolerance policies, as values written beside the operators that need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from riprap.errors import GraphError
from riprap.graph.durations import Duration, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Save the operator's state every so many seconds, keeping the newest versions.

    A group of at most ``group`` tuples of a window is saved, and can be lost, as one; by itself it is chosen by the
    size of tuples and the rate of each key.
    """

    every: float
    keep: int = 3
    group: int | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistent:
    """Make the operator, and all it reaches, a region whose results count exactly once."""

    period: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Eventual:
    """Save each open window now and then, in the operator's own output log."""

    every: float


Policy = Checkpoint | Consistent | Eventual


def checkpoint(*, every: Duration, keep: int = 3, group: int | Literal["auto"] = "auto") -> Checkpoint:
    """Describe independent, incremental checkpoints of one operator.

    >>> checkpoint(every="10s")
    Checkpoint(every=10.0, keep=3, group='auto')
    """
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
        raise GraphError(f"checkpoint(keep=...) takes a whole number of at least 1, got {keep!r}")
    if group != "auto" and (not isinstance(group, int) or isinstance(group, bool) or group < 1):
        raise GraphError(f"checkpoint(group=...) takes a number of tuples, or 'auto', got {group!r}")
    return Checkpoint(every=seconds("checkpoint(every=...)", every), keep=keep, group=group)


def consistent(*, period: Duration) -> Consistent:
    """Describe a consistent region that starts at an operator.

    >>> consistent(period="2s")
    Consistent(period=2.0)
    """
    return Consistent(period=seconds("consistent(period=...)", period))


def eventual(*, every: Duration) -> Eventual:
    """Describe continuous eventual checkpointing of an operator's open windows.

    >>> eventual(every="100ms")
    Eventual(every=0.1)
    """
    return Eventual(every=seconds("eventual(every=...)", every))
