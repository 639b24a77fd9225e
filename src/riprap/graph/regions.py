"""Consistent regions: which operators are in one, why, and what cannot be in any.

A region starts where a policy says so (:meth:`~riprap.protection.Policy.begins`), and has all that this reaches
downstream, by control ports too. It does not go on to operators that leave (:meth:`~riprap.protection.Policy.leaves`):
those, and what only they reach, are autonomous, as are all that no region reaches. Regions that share an operator are
one.

    source -- mean -- late (autonomous) -- screen        region 'source': source, mean, both, out
                \\                                        its ends:        out
    slow -------- both -- out                            autonomous:      late, screen, slow; port 1 of both
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riprap.errors import GraphError
from riprap.graph.connectors.promise import SOURCE_WORDS
from riprap.graph.operator import Operator
from riprap.protection import LOSSES, Losable, Policy, RegionTerms

if TYPE_CHECKING:
    from riprap.graph.graph import Graph

_KEEP_OUT = "keep it out of regions with protect=rr.autonomous()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Operators whose results count exactly once together, by name, in the order of the graph; sinks are among them.

    ``name`` is that of its first start, ``ends`` have no reader in the region but for control ports, and ``reasons``
    says of each operator in a line why it is in. ``autonomous_ports`` are, by operator, the numbers of the ports that
    only autonomous streams feed; the control port comes after the others, and a clock is no port.
    """

    name: str
    terms: RegionTerms
    starts: tuple[str, ...]
    operators: tuple[str, ...]
    ends: tuple[str, ...]
    reasons: Mapping[str, str]
    autonomous_ports: Mapping[str, tuple[int, ...]]


def regions_of(graph: Graph) -> tuple[Region, ...]:
    """Find the consistent regions of a graph, and refuse what cannot be in one.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"), protect=rr.consistent(period="2s"))
    >>> app.sink("shown", words, rr.memory(), protect=rr.autonomous())
    >>> app.sink("kept", app.functor("long", words, where="length(word) > 3"), rr.memory())
    >>> [region.operators for region in regions_of(app.graph())]
    [('words', 'long', 'kept')]
    """
    regions = tuple(_region(graph, starts, members) for starts, members in _merged(graph))
    for region in regions:
        _check(graph, region)
    return regions


def region_by_operator(graph: Graph) -> dict[str, Region]:
    """Return the region of each operator that is in one."""
    return {name: region for region in regions_of(graph) for name in region.operators}


def policy_of(graph: Graph, name: str) -> Policy | None:
    """Return the policy by which an operator comes back: its own, or of those that begin its region the strongest."""
    region = region_by_operator(graph).get(name)
    if region is None:
        return graph[name].protect
    policies = [graph[start].protect for start in region.starts]
    return max(policies, key=lambda p: sum(_survives(p, graph[name], loss) for loss in LOSSES))


def _survives(policy: Policy | None, operator: Operator, loss: Losable) -> bool:
    terms = policy.begins(operator) if policy is not None else None
    return terms is not None and terms.survives(loss)


def why_autonomous(graph: Graph) -> dict[str, str]:
    """Say of each operator that is in no region, in a line, why."""
    inside = region_by_operator(graph)
    return {o.name: _why_outside(graph, o) for o in graph if o.name not in inside}


def describe_regions(graph: Graph) -> Iterator[tuple[str, str]]:
    """Say which regions there are, and of each operator why it is in one or in none, as (what, text)."""
    regions = regions_of(graph)
    for region in regions:
        ends = ", ".join(region.ends)
        terms = region.terms.described(graph[region.starts[0]].marks)
        yield "region", f"{region.name}: {terms}; starts at {', '.join(region.starts)}, ends at {ends}"
        for name, why in region.reasons.items():
            ports = region.autonomous_ports.get(name, ()) if name not in region.starts else ()
            fed = " and ".join(_port_name(graph[name], port) for port in ports)
            apart = f"; autonomous streams feed {fed}" if ports else ""
            held = _why_held(graph[name], region)
            yield "region", f"{name}: {why}{apart}{'; ' if held else ''}{held}"
    for name, why in why_autonomous(graph).items() if regions else ():
        yield "autonomous", f"{name}: {why}"


def reach_of(graph: Graph, start: str) -> tuple[str, ...]:
    """Name the operators of a region that would start at one, in order."""
    reached = _reached(start, _readers(graph))
    return tuple(o.name for o in graph if o.name in reached)


def ports_of(operator: Operator) -> tuple[tuple[str, ...], ...]:
    """Return the streams on each port, the control port after the others."""
    return (*operator.ports, *((operator.control,) if operator.control else ()))


def _why_held(operator: Operator, region: Region) -> str:
    if not operator.differs or not region.terms.survives("host"):
        return ""
    seen = "a cut has them" if operator.stateful else "all that read it can have them"
    return (
        f"may put out something else the second time ({operator.differs}): its results are held until {seen}"
    )


def _port_name(operator: Operator, port: int) -> str:
    return "its control port" if port == len(operator.ports) else f"port {port}"


def _merged(graph: Graph) -> list[tuple[dict[str, RegionTerms], set[str]]]:
    """Return of each region the starts with their terms, and the operators; those that overlap are one."""
    parts: list[tuple[dict[str, RegionTerms], set[str]]] = []
    readers: dict[str, list[str]] = {}
    for operator in graph:
        terms = operator.protect.begins(operator) if operator.protect is not None else None
        if terms is None:
            continue
        if _leaves(operator):
            raise GraphError(
                f"{operator}: protect={operator.protect} begins a consistent region and leaves it. Let it do one"
            )
        readers = readers or _readers(graph)
        starts, members = {operator.name: terms}, _reached(operator.name, readers)
        for part in [p for p in parts if not members.isdisjoint(p[1])]:
            parts.remove(part)
            starts, members = {**part[0], **starts}, part[1] | members
        parts.append((starts, members))
    order = [o.name for o in graph]
    return sorted(parts, key=lambda part: min(order.index(start) for start in part[0]))


def _readers(graph: Graph) -> dict[str, list[str]]:
    """Return for each operator those that a region goes on to from it."""
    return {o.name: [r.name for r in graph.after(o) if not _leaves(r)] for o in graph}


def _reached(start: str, readers: Mapping[str, list[str]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = [name for name in readers[waiting.pop()] if name not in reached]
        reached.update(new)
        waiting += new
    return reached


def _leaves(operator: Operator) -> bool:
    return operator.protect is not None and operator.protect.leaves(operator)


def _region(graph: Graph, starts: Mapping[str, RegionTerms], members: set[str]) -> Region:
    inside = [o for o in graph if o.name in members]
    read = {graph.producer(stream).name for o in inside for stream in o.inputs}
    ordered = tuple(o.name for o in inside if o.name in starts)
    autonomous = {
        o.name: tuple(
            number
            for number, port in enumerate(ports_of(o))
            if members.isdisjoint(graph.producer(stream).name for stream in port)
        )
        for o in inside
    }
    return Region(
        name=ordered[0],
        terms=_joined_terms(graph, {name: starts[name] for name in ordered}),
        starts=ordered,
        operators=tuple(o.name for o in inside),
        ends=tuple(o.name for o in inside if o.name not in read),
        reasons={o.name: _why_inside(graph, o, o.name in starts, members) for o in inside},
        autonomous_ports={name: ports for name, ports in autonomous.items() if ports},
    )


def _joined_terms(graph: Graph, starts: Mapping[str, RegionTerms]) -> RegionTerms:
    (first, terms), *others = starts.items()
    for name, other in others:
        if other.trigger != terms.trigger:
            raise GraphError(
                f"{graph[name]}: its region is that of {graph[first]} too, and has trigger='{other.trigger}', where "
                f"that has '{terms.trigger}'. Give both the same, or part them with protect=rr.autonomous()"
            )
        if terms.trigger == "operator":
            raise GraphError(
                f"{graph[name]}: with trigger='operator' one start says when to make a cut, and its region starts at "
                f"{graph[first]} too. Leave out protect= at one, or write trigger='periodic'"
            )
        terms = terms.joined(other)
    if terms.trigger == "operator" and not graph[first].marks:
        raise GraphError(
            f"{graph[first]}: with trigger='operator' it says when to make a cut, and {_what(graph[first])} cannot. "
            "Begin the region at a source that reads rr.folder_scan(...) or rr.files(...), which says so after each "
            "file; or write period="
        )
    return terms


def _what(operator: Operator) -> str:
    kind = operator.kind.lower()
    return (
        f"a {kind} of {operator.summary()}"
        if not operator.ports
        else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    )


def _why_inside(graph: Graph, operator: Operator, starts: bool, members: set[str]) -> str:
    if starts and not operator.ports:
        kept = "what was read is kept, and " if operator.promise == "forgets" else ""
        return f"starts the region: {kept}{SOURCE_WORDS.get(operator.promise or 'replays', '')}"
    feeding = {port: [graph.producer(s).name for s in streams] for port, streams in _named_ports(operator)}
    if starts:
        outside = dict.fromkeys(n for names in feeding.values() for n in names if n not in members)
        kept = f": what comes from {_listed(outside)} is kept in a channel" if outside else ""
        return f"starts the region{kept}"
    by = [(port, name) for port, names in feeding.items() for name in names if name in members]
    port, name = by[0]
    return f"{'steered' if port == 'control' else 'fed'} by '{name}'"


def _why_outside(graph: Graph, operator: Operator) -> str:
    if _leaves(operator):
        return "leaves regions by its protect="
    if not operator.ports:
        return "no region starts at it"
    return f"fed by {_listed(dict.fromkeys(o.name for o in graph.before(operator)))}, in no region"


def _named_ports(operator: Operator) -> Iterator[tuple[int | str, tuple[str, ...]]]:
    yield from enumerate(operator.ports)
    yield "control", operator.control


def _check(graph: Graph, region: Region) -> None:
    for name in region.operators:
        operator = graph[name]
        _check_operator(graph, region, operator)
        _check_ports(graph, region, operator)


def _check_operator(graph: Graph, region: Region, operator: Operator) -> None:
    where = f"{operator}: it is in region '{region.name}' ({region.reasons[operator.name]})"
    if operator.protect is not None and operator.name not in region.starts and operator.recording is None:
        raise GraphError(
            f"{where}, which saves it, and has protect={operator.protect} of its own. Leave that out, or let one "
            "before it leave the region with protect=rr.autonomous()"
        )
    if operator.unrepeatable is not None:
        why_not, remedy = operator.unrepeatable
        raise GraphError(f"{where}, and cannot be: {why_not}. {remedy}")
    place = graph.places.get(operator.name, "")
    if graph.restarts.get(place, "resume") == "live":
        raise GraphError(
            f"{where}, and placed in '{place}', which restarts live and so loses tuples. Place it with "
            f"restart='resume', or {_KEEP_OUT}"
        )


def _check_ports(graph: Graph, region: Region, operator: Operator) -> None:
    for port in ports_of(operator):
        inside = [s for s in port if graph.producer(s).name in region.operators]
        outside = [s for s in port if s not in inside]
        if inside and outside:
            raise GraphError(
                f"{operator}: one of its ports takes '{inside[0]}', of region '{region.name}', and '{outside[0]}', "
                "which is autonomous. A port is fed by one kind: let a region start at what makes "
                f"'{outside[0]}' too, or {_KEEP_OUT}"
            )


def _listed(names: Mapping[str, object]) -> str:
    return " and ".join(f"'{name}'" for name in names)
