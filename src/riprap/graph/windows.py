"""Windows and output rules, as values."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.errors import GraphError


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """The newest ``tuples`` tuples of a key."""

    tuples: int

    def __str__(self) -> str:
        return f"sliding({self.tuples} tuples)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """An output each time ``tuples`` tuples of a key have arrived."""

    tuples: int

    def __str__(self) -> str:
        return f"every {self.tuples} tuples"


def sliding(*, tuples: int) -> SlidingWindow:
    """Describe a window of the newest tuples of each key.

    >>> sliding(tuples=5)
    SlidingWindow(tuples=5)
    """
    return SlidingWindow(tuples=_whole("sliding(tuples=...)", tuples, least=0))


def every(*, tuples: int) -> Every:
    """Describe an output every so many tuples of a key.

    >>> every(tuples=1)
    Every(tuples=1)
    """
    return Every(tuples=_whole("every(tuples=...)", tuples, least=1))


def _whole(what: str, value: object, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{what} takes a whole number of at least {least}, got {value!r}")
    return value
