"""A net as shapes and lines between them, from left to right: what a drawing of it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from riprap.san.code import expression, read_by, statements, written_by
from riprap.san.net import InputGate, Net

ShapeKind = Literal["place", "timed", "instantaneous", "input gate", "output gate"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A place, an activity or a gate; ``detail`` is written under its name, ``about`` shown when it is pointed at."""

    key: str
    kind: ShapeKind
    name: str
    detail: str
    about: str
    tokens: int = 0


def shapes_of(net: Net) -> tuple[dict[str, Shape], list[tuple[str, str]]]:
    """Return the shapes of a net by key, and which leads to which.

    A gate stands between an activity and the places that it reads or changes. Places that a case puts tokens in, or
    changes, are reached from the activity.
    """
    shapes = {}
    lines: list[tuple[str, str]] = []
    places = {place.name for place in net.places}
    for place in net.places:
        shapes[place.name] = Shape(place.name, "place", place.name, "", f"place {place.name}", place.initial)
    for activity in net.activities:
        key = f"activity {activity.name}"
        kind: ShapeKind = "timed" if activity.timed else "instantaneous"
        odds = ", ".join(str(case.probability) for case in activity.cases)
        about = f"{key}: {activity.time or 'at once'}" + (f"; cases {odds}" if odds else "")
        shapes[key] = Shape(key, kind, activity.name, str(activity.time or ""), about)
        lines += [(place, key) for place in activity.takes]
        lines += [(key, place) for place in activity.puts]
        for case in activity.cases:
            lines += [(key, place) for place in (*case.puts, *written_by(statements(case.then)))]
        for number, gate in enumerate(activity.gates, start=1):
            own = f"gate {number} of {activity.name}"
            if isinstance(gate, InputGate):
                shapes[own] = Shape(own, "input gate", "", "", f"when {gate.when}: {gate.then or 'go'}")
                read = {*read_by(expression(str(gate.when))), *written_by(statements(gate.then))}
                lines += [(own, key), *((place, own) for place in sorted(read & places))]
            else:
                shapes[own] = Shape(own, "output gate", "", "", gate.then)
                lines += [
                    (key, own),
                    *((own, place) for place in sorted({*written_by(statements(gate.then))})),
                ]
    return shapes, list(dict.fromkeys(lines))


def forward(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Turn the lines around that would close a circle, so that all can go from left to right."""
    after: dict[str, list[str]] = {key: [] for key in shapes}
    for source, target in lines:
        after[source].append(target)
    order: list[str] = []
    seen: set[str] = set()

    def walk(key: str) -> Iterator[tuple[str, Iterator[str]]]:
        seen.add(key)
        yield key, iter(after[key])

    for root in _roots(shapes, lines):
        stack = [*walk(root)] if root not in seen else []
        while stack:
            key, rest = stack[-1]
            following = next((target for target in rest if target not in seen), None)
            if following is None:
                order.append(key)
                stack.pop()
            else:
                stack += walk(following)
    rank = {key: len(order) - place for place, key in enumerate(order)}
    return [(a, b) if rank[a] < rank[b] else (b, a) for a, b in lines if a != b]


def _roots(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> list[str]:
    """Return where to begin: what nothing leads to, then what holds tokens, then the rest."""
    reached = {target for _, target in lines}
    return sorted(shapes, key=lambda key: (key in reached, shapes[key].tokens == 0))


def layers(shapes: Mapping[str, Shape], lines: list[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each shape: the length of the longest way to it."""
    depth = dict.fromkeys(shapes, 0)
    for _ in shapes:
        moved = False
        for a, b in lines:
            if depth[b] <= depth[a]:
                depth[b], moved = depth[a] + 1, True
        if not moved:
            break
    return depth
