"""What a graph means, in plain Python: every operator takes one event after the other.

A stream is a list of events in order: tuples and punctuations. An event's *tag* says where it stands in the order of
everything, as a list of whole numbers; the tags of one stream all have the same length.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from tests.graphs.expressions import Row
from tests.oracle import group_of

import riprap as rr
from riprap.state.hashing import NO_KEY_HASH, hash_arrays

Tag = tuple[int, ...]
Schema = dict[str, str]
Key = tuple[Any, ...]

# The numbers that stand for nothing yet, and for what comes after everything else.
FIRST, LAST = -1, 2**63 - 1
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class Event(NamedTuple):
    """A tuple, or a punctuation where there is no row."""

    tag: Tag
    row: Row | None


@dataclass(frozen=True)
class Trail:
    """A stream with all that ever happens on it; its tags have ``depth`` numbers more than a source's."""

    schema: Schema
    depth: int
    events: Sequence[Event]


class Tick(NamedTuple):
    """A clock's tick: the tag of its tuple, and the time in microseconds."""

    tag: Tag
    time: int


class Happening(NamedTuple):
    """What reaches an operator: a tuple or a punctuation on a port, or a tick, which has a time and no port."""

    tag: Tag
    port: int | None = None
    row: Row | None = None
    time: int | None = None


def happenings(ports: Sequence[Sequence[Trail]], ticks: Iterable[Tick] = ()) -> list[Happening]:
    """Put what reaches an operator in order: by tag, then lower port, then earlier stream; ticks after all of theirs.

    Where there are several streams, the place of each becomes part of the tag: no two have the same.
    """
    depth = depth_of(ports)
    places = itertools.count()
    found = []
    for port, trails in enumerate(ports):
        for trail in trails:
            own = (next(places),) if several(ports) else ()
            padding = (FIRST,) * (depth - trail.depth - len(own))
            found += [Happening(event.tag + padding + own, port, event.row) for event in trail.events]
    found += [Happening(tick.tag + (LAST,) * depth, time=tick.time) for tick in ticks]
    return sorted(found, key=lambda happening: happening.tag)


def several(ports: Sequence[Sequence[Trail]]) -> bool:
    return sum(map(len, ports)) > 1


def depth_of(ports: Sequence[Sequence[Trail]]) -> int:
    """Return how many numbers more than a source's the tags have at an operator."""
    return max(trail.depth for trails in ports for trail in trails) + several(ports)


@dataclass
class Output:
    """What an operator puts out, in order. ``depth`` says what it adds to the tag of the event that made it.

    1: the place among what that event made. 2: before it, the hash of the key, where a tick or a punctuation made it.
    """

    depth: int
    events: list[Event] = field(default_factory=list)
    _made: Counter[Tag] = field(default_factory=Counter)

    def put(self, cause: Happening, row: Row | None, hash_part: int = 0) -> None:
        """Put out a tuple, or a punctuation."""
        tag = cause.tag + ((hash_part,) if self.depth == 2 else ())
        if self.depth:
            self._made[tag] += 1
            self.events.append(Event((*tag, self._made[tag] - 1), row))
        else:
            self.events.append(Event(tag, row))

    def pass_on(self, cause: Happening) -> None:
        """Let a punctuation pass, after all that it made."""
        self.events.append(Event(cause.tag + (LAST,) * self.depth, None))


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator as it was drawn: it can be added to an application, and says what it means."""

    name: str
    ports: tuple[tuple[str, ...], ...]

    @property
    def depth(self) -> int:
        return 0

    @property
    def clocked(self) -> bool:
        return False

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name,)

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        """Return the schemas of its outputs."""
        raise NotImplementedError

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        """Add it to an application; return its streams."""
        raise NotImplementedError

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        """Say what it makes of all that reaches it."""
        raise NotImplementedError


def key_of(row: Row, by: Sequence[str]) -> Key:
    """Return a tuple's key."""
    return tuple(group_of(row[column]) for column in by)


def hash_of(key: Key, by: Sequence[str], schema: Mapping[str, str]) -> int:
    """Return what stands for a key in a tag, and what keys are put in order by."""
    if not by:
        return int(NO_KEY_HASH) >> 1
    values = [
        math.nan if value == "NaN" and schema[c] == "double" else value
        for c, value in zip(by, key, strict=True)
    ]
    arrays = [pa.array([value], plain(schema[c])) for c, value in zip(by, values, strict=True)]
    return int(hash_arrays(arrays)[0]) >> 1


def plain(kind: str) -> pa.DataType:
    """Return the Arrow type that the model keeps values in: times are numbers here."""
    return pa.int64() if kind == "timestamp" else ARROW[kind]
