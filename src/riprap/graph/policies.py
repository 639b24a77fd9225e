"""Fault-tolerance policies, as values written beside the operators that need them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from riprap.errors import GraphError

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


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


def checkpoint(*, every: str | float, keep: int = 3, group: int | Literal["auto"] = "auto") -> Checkpoint:
    """Describe independent, incremental checkpoints of one operator.

    >>> checkpoint(every="10s")
    Checkpoint(every=10.0, keep=3, group='auto')
    """
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
        raise GraphError(f"checkpoint(keep=...) takes a whole number of at least 1, got {keep!r}")
    if group != "auto" and (not isinstance(group, int) or isinstance(group, bool) or group < 1):
        raise GraphError(f"checkpoint(group=...) takes a number of tuples, or 'auto', got {group!r}")
    return Checkpoint(every=seconds("checkpoint(every=...)", every), keep=keep, group=group)


def consistent(*, period: str | float) -> Consistent:
    """Describe a consistent region that starts at an operator.

    >>> consistent(period="2s")
    Consistent(period=2.0)
    """
    return Consistent(period=seconds("consistent(period=...)", period))


def eventual(*, every: str | float) -> Eventual:
    """Describe continuous eventual checkpointing of an operator's open windows.

    >>> eventual(every="100ms")
    Eventual(every=0.1)
    """
    return Eventual(every=seconds("eventual(every=...)", every))


def seconds(what: str, duration: str | float) -> float:
    """Turn ``"10s"``, ``"250ms"``, ``"2m"`` or a number of seconds into seconds."""
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration)
        value = float(match[1]) * _SECONDS[match[2]] if match else -1.0
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        value = float(duration)
    else:
        value = -1.0
    if not 0 < value < float("inf"):
        raise GraphError(f"{what} takes a time such as '10s', '250ms' or '2m', got {duration!r}")
    return value
