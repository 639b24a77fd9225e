"""How lines get from one layer of a text drawing to the next without two of them looking like one.

Between two layers is a channel. A stream enters it at one coordinate, turns on a track, runs across, and
turns again to each of its readers::

    leaves 0 ──┬──► arrives 0
               │
               ╰──► arrives 2

Two streams may cross, but never run along the same stretch: their runs across are on different tracks unless
they are apart, and a stream that leaves where another arrives turns on an earlier track.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A stream on its way through a channel: where it comes in, and where it goes out."""

    stream: str
    leaves: int
    arrives: tuple[int, ...]

    @property
    def straight(self) -> bool:
        return set(self.arrives) == {self.leaves}

    @property
    def span(self) -> tuple[int, int]:
        return min(self.leaves, *self.arrives), max(self.leaves, *self.arrives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A wire with its track. ``begins`` and ``ends`` are tracks too, or None for the sides of the channel."""

    wire: Wire
    track: int
    begins: int | None = None
    ends: int | None = None


def route(wires: Sequence[Wire]) -> list[Leg]:
    """Give each wire that is not straight a track, counted along the flow.

    >>> [leg.track for leg in route([Wire(stream="a", leaves=0, arrives=(0, 2))])]
    [0]
    """
    begins: dict[Wire, int] = {}
    waiting = [wire for wire in wires if not wire.straight]
    used = {at for wire in wires for at in (wire.leaves, *wire.arrives)}
    legs: list[Leg] = []
    track = 0
    while waiting:
        ready = [w for w in waiting if not any(o.leaves in w.arrives for o in waiting if o is not w)]
        if not ready:
            # Each waits for another, as when two streams change places: one steps aside to a free coordinate.
            wire = waiting.pop(0)
            aside = _free_near(wire.leaves, used)
            used.add(aside)
            first = Wire(stream=wire.stream, leaves=wire.leaves, arrives=(aside,))
            second = Wire(stream=wire.stream, leaves=aside, arrives=wire.arrives)
            legs.append(Leg(wire=first, track=track, begins=begins.pop(wire, None), ends=track))
            begins[second] = track
            waiting.append(second)
        taken: list[tuple[int, int]] = []
        for wire in sorted(ready, key=_turns_late):
            low, high = wire.span
            if all(high < other_low or other_high < low for other_low, other_high in taken):
                taken.append((low, high))
                legs.append(Leg(wire=wire, track=track, begins=begins.get(wire)))
                waiting.remove(wire)
        track += 1
    return legs


def _turns_late(wire: Wire) -> int:
    """Of wires that go down the lower, of those that go up the upper turns first: so they need not cross."""
    return -wire.leaves if max(wire.arrives) > wire.leaves else wire.leaves


def _free_near(at: int, used: set[int]) -> int:
    distance = 1
    while True:
        for candidate in (at + distance, at - distance):
            if candidate >= 0 and candidate not in used:
                return candidate
        distance += 1
