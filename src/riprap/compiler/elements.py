"""Fuse operators into processing elements.

Operators are taken in order, each going into an element that has its inputs, unless the user placed it apart, or its
key is another one than the element's, or it must see punctuations that only another task knows of. What it then reads
from other elements comes by channels. A source that Spark reads is an element by itself. The borders of consistent
regions and of replica groups are borders of elements, and an operator of a region that may put out something else the
second time is alone. Elements have levels, and read only from lower ones, so they never run in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from riprap.compiler.draft import Draft, Key, Lineage, reads_by_spark
from riprap.compiler.membership import Membership, memberships
from riprap.errors import GraphError
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.operators.source import Source


def fuse(graph: Graph) -> tuple[Draft, ...]:
    """Put every operator into a processing element; each element comes after those it reads from."""
    elements: list[Draft] = []
    inside = memberships(graph)
    for operator in graph:
        home = _home(graph, elements, operator, inside[operator.name])
        _enter(graph, home, operator)
    _check_loops(graph, elements)
    for element in elements:
        _check_replays(graph, element)
    ordered = _in_order(elements)
    taken = {e.name for e in ordered if e.placed}
    stages = [e for e in ordered if not e.ingests]
    for element in ordered:
        if not element.placed:
            first = next((o for o in element.operators if not isinstance(o, Source)), element.operators[0])
            name = graph.name if stages and element is stages[0] else first.name
            element.name = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)
            taken.add(element.name)
    return tuple(ordered)


def _home(graph: Graph, elements: list[Draft], operator: Operator, part: Membership) -> Draft:
    """Choose the element of an operator, or make one."""
    place = graph.places.get(operator.name)
    feeding = [_home_of(elements, graph.producer(s)) for s in operator.inputs]
    level = 1 + max((e.level for e in feeding), default=-1)
    if reads_by_spark(operator):
        return _made(elements, Draft("", 0, part=part))
    if place is not None:
        for element in elements:
            if element.placed and element.name == place:
                _check_placed(graph, element, operator, part)
                element.level = max([element.level, *(e.level + 1 for e in feeding if e is not element)])
                return element
        return _made(elements, Draft(place, level, placed=True, part=part))
    if operator.protect is not None and operator.protect.stands_alone(operator):
        # Alone with its state: what is kept upstream is kept for it and no other.
        region = part.region if operator.recording is not None else None
        return _made(elements, Draft("", level, part=Membership(region, part.group)))
    if part.region is not None and operator.differs:
        return _made(elements, Draft("", level, part=part))
    if isinstance(operator, Source):
        beside = (e for e in elements if e.level == 0 and not e.placed and not e.ingests and e.part == part)
        return next(beside, None) or _made(elements, Draft("", 0, part=part))
    highest = max(feeding, key=lambda e: e.level)
    again = (
        not (highest.replays and operator.looks_up)
        and not highest.holds
        and not highest.records
        and _is_of(highest, operator, part)
    )
    if highest.placed and operator.key is None and again and all(e is highest for e in feeding):
        # What only works on the tuples of a placed element need not leave it, if it can do so again.
        return highest
    candidates = [highest, *(e for e in elements if e.level == level)]
    for element in candidates:
        # It reads from lower ones only.
        above = any(e is not element and e.level >= element.level for e in feeding)
        fits = not element.placed and not above and _is_of(element, operator, part)
        if fits and _takes(graph, element, operator):
            return element
    return _made(elements, Draft("", level, part=part))


def _is_of(element: Draft, operator: Operator, part: Membership) -> bool:
    """Say whether an operator may be in an element by the part of the application it is in.

    An autonomous one that only the element feeds, and that keeps nothing, can do its work again with the region.
    """
    fed = bool(operator.inputs) and all(s in element.streams for s in operator.inputs)
    again = part.region is None and fed and not operator.stateful and not operator.looks_up
    return element.part == part or (again and element.group == part.group)


def _made(elements: list[Draft], element: Draft) -> Draft:
    elements.append(element)
    return element


def _home_of(elements: Iterable[Draft], operator: Operator) -> Draft:
    return next(e for e in elements if operator in e.operators)


def _takes(graph: Graph, element: Draft, operator: Operator) -> bool:
    """Say whether an operator can run in an element."""
    outside = [s for s in operator.inputs if s not in element.streams]
    if element.ingests or element.holds or element.records or (outside and element.reads_sources):
        return False
    if element.replays and (operator.stateful or operator.looks_up):
        return False
    if operator.key is None:
        return True
    if operator.key and operator.heeds and any(s in element.private for s in operator.inputs):
        return False
    return _key_with(graph, element, operator) is not None


def _key_with(graph: Graph, element: Draft, operator: Operator) -> Key | None:
    """Return the element's key with an operator in it, None if the operator's differs."""
    assert operator.key is not None
    entries = {
        **element.entries,
        **{s: graph.schema_of(s) for s in operator.inputs if s not in element.streams},
    }
    if not operator.key:
        own: dict[str, tuple[str, ...]] = dict.fromkeys(entries, ())
    else:
        traced = _key_at_entries(graph, element, operator)
        if traced is None:
            return None
        own = traced
    settled = dict(element.key or {})
    if any(settled.get(entry, columns) != columns for entry, columns in own.items()):
        return None
    both = {**settled, **own}
    kinds = {tuple(entries[e].field(c).type for c in columns) for e, columns in both.items()}
    return both if len(kinds) <= 1 else None


def _key_at_entries(graph: Graph, element: Draft, operator: Operator) -> dict[str, tuple[str, ...]] | None:
    """Follow an operator's key back to the streams that come into the element; None if it is computed on the way."""
    keys: dict[str, tuple[str, ...]] = {}
    for port in operator.ports:
        for stream in port:
            lineage = element.lineage.get(stream) or _identity(stream, graph.schema_of(stream))
            origins = [lineage.get(key, {}) for key in operator.key or ()]
            everywhere = element.origins.get(stream, frozenset({stream}))
            if not all(everywhere <= origin.keys() for origin in origins):
                return None
            for entry in everywhere:
                columns = tuple(origin[entry] for origin in origins)
                if keys.setdefault(entry, columns) != columns:
                    return None
    return keys


def _enter(graph: Graph, element: Draft, operator: Operator) -> None:
    """Put an operator into an element, with the streams it needs from outside."""
    if operator.key is not None:
        element.key = _key_with(graph, element, operator) or element.key
    entering = (operator.name,) if isinstance(operator, Source) else operator.inputs
    for stream in entering:
        if stream not in element.streams and stream not in element.entries:
            element.entries[stream] = graph.schema_of(stream)
            element.lineage[stream] = _identity(stream, graph.schema_of(stream))
            element.origins[stream] = frozenset({stream})
    element.operators.append(operator)
    if isinstance(operator, Source):
        return
    copies = operator.copies()
    for stream in operator.outputs:
        element.lineage[stream] = {
            column: _origins(element, operator, sources) for column, sources in copies.items()
        }
        element.origins[stream] = frozenset().union(
            *(element.origins[s] for port in operator.ports for s in port)
        )
    if operator.punctuates or any(s in element.private for s in operator.inputs):
        element.private |= set(operator.outputs)


def _origins(element: Draft, operator: Operator, sources: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return the columns of entries that a column is a copy of, whichever stream of its port a tuple came by."""
    origins: dict[str, str] = {}
    for port, column in sorted(sources):
        of_port: dict[str, str] = {}
        for stream in operator.ports[port]:
            origin = element.lineage[stream].get(column, {})
            if not element.origins[stream] <= origin.keys() or any(
                of_port.get(e, c) != c for e, c in origin.items()
            ):
                break
            of_port.update(origin)
        else:
            origins = {**of_port, **origins}
    return origins


def _identity(stream: str, schema: pa.Schema) -> Lineage:
    return {name: {stream: name} for name in schema.names}


def _check_placed(graph: Graph, element: Draft, operator: Operator, part: Membership) -> None:
    if not _is_of(element, operator, part):
        raise GraphError(
            f"{operator} is placed in '{element.name}', whose operators are {element.part}, and it is {part}. A "
            "processing element is in one region, or in none, and all of it in one replica group: place it elsewhere"
        )
    drawn = next((o for o in (operator, *element.operators) if part.region is not None and o.differs), None)
    if drawn is not None:
        raise GraphError(
            f"{operator} is placed in '{element.name}', and '{drawn.name}' there, of a consistent region, may put out "
            f"something else when it computes again: {drawn.differs}. It is a processing element of its own: place it "
            "elsewhere, or nowhere"
        )
    outside = [s for s in operator.inputs if s not in element.streams]
    if element.reads_sources and outside:
        raise GraphError(
            f"{operator} is placed in '{element.name}', which reads sources, and so cannot read '{outside[0]}' from "
            "elsewhere. Place it apart from the sources"
        )
    foreign = [s for s in element.entries if s not in element.streams]
    if isinstance(operator, Source) and foreign:
        raise GraphError(
            f"{operator} is placed in '{element.name}', which reads '{foreign[0]}' from elsewhere, and so cannot read "
            "sources. Place it apart"
        )
    if operator.key is not None and not _takes(graph, element, operator):
        others = ", ".join(o.name for o in element.operators if o.key is not None) or "its input"
        raise GraphError(
            f"{operator} is placed in '{element.name}', and its key ({', '.join(operator.key) or 'none'}) is not that "
            f"of {others}. One processing element has one key: place it elsewhere"
        )


def _check_replays(graph: Graph, element: Draft) -> None:
    """Refuse to place an operator whose input is kept upstream where that would not help it, or others too."""
    operator = next((o for o in element.operators if o.replays), None)
    if operator is None:
        return
    others = [o for o in element.operators if (o.stateful or o.looks_up) and o is not operator]
    if element.reads_sources:
        why = f"'{element.name}' reads sources"
    elif others:
        what = "whose table of then nobody has" if others[0].looks_up else "with a state of its own"
        why = f"'{element.name}' also has {others[0].kind} '{others[0].name}', {what}"
    elif element.records and len(element.operators) > 1:
        beside = next(o for o in element.operators if o is not operator)
        raise GraphError(
            f"{operator}: protect=rr.eventual(...) records its windows in a log of its own results, and "
            f"'{beside.name}' is placed in '{element.name}' with it. Place it alone"
        )
    elif graph.restarts.get(element.name, "resume") == "live":
        why = f"'{element.name}' restarts live, which would lose tuples"
    else:
        return
    raise GraphError(
        f"{operator}: with protect= its input is kept upstream until it is saved, for it alone, and {why}. Place it "
        "apart, with restart='resume', or leave out protect="
    )


def _check_loops(graph: Graph, elements: Iterable[Draft]) -> None:
    for operator in graph:
        for stream in operator.control:
            here, producer = _home_of(elements, operator), _home_of(elements, graph.producer(stream))
            held = next((e.operators[0] for e in (here, producer) if e.holds), None)
            if held is not None:
                raise GraphError(
                    f"{operator}: its control port reads '{stream}', and '{held.name}', of a consistent region, may "
                    f"put out something else when it computes again: {held.differs}. Such an operator is a processing "
                    "element of its own, and a loop must stay inside one. Keep it out of regions with "
                    "protect=rr.autonomous(), or make it deterministic"
                )
            if here is not producer:
                raise GraphError(
                    f"{operator}: its control port reads '{stream}' of another processing element (with another key, "
                    "or placed apart). A loop must stay inside one: give its operators the same key, or none"
                )


def _in_order(elements: list[Draft]) -> list[Draft]:
    made_in = {s: e for e in elements for s in e.streams}
    ordered: list[Draft] = []
    waiting = list(elements)
    while waiting:
        ready = [e for e in waiting if all(made_in[s] is e or made_in[s] in ordered for s in e.entries)]
        if not ready:
            names = ", ".join(sorted(e.name or "another" for e in waiting if e.placed))
            raise GraphError(
                f"processing elements feed each other in a circle: what lies between the operators placed in {names} "
                "must be placed with them"
            )
        ordered += ready
        waiting = [e for e in waiting if e not in ready]
    return ordered
