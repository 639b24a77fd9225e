"""Weave faults into a graph: operators of their own in front of those they hit, and never the user's code.

First the operators are woven in, which do nothing; then faults are given to some. So one compiled graph serves for any
number of faults, and what a fault changes is told by comparing with the same graph without any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from riprap.errors import GraphError
from riprap.graph.faults import Fault
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.operators.faulty import Faulty, Role
from riprap.operators.source import Source

# For each target a fault of all the streams it reads, or one for each of some.
WovenFaults = Mapping[str, Fault | Mapping[str, Fault]]


def weave(graph: Graph, targets: Collection[str], *, deep: bool = False, role: Role = "fault") -> Graph:
    """Return the graph with faults to be: in front of each stream that a target reads, or behind it if it is a source.

    Only ``deep`` ones can repeat or move tuples. What is woven in later is nearer to the target.
    """
    operators: dict[str, Operator] = {o.name: o for o in graph}
    places = dict(graph.places)
    for name in targets:
        if name not in operators:
            raise GraphError(
                f"there is no operator '{name}' for a fault; there are: {', '.join(o.name for o in graph)}"
            )
        target = operators[name]
        woven = (_behind if isinstance(target, Source) else _before)(operators, target, deep, role)
        if name in places:
            places.update(dict.fromkeys(woven, places[name]))
    return Graph.of(graph.name, operators.values(), places, graph.restarts, graph.processes)


def give(graph: Graph, faults: WovenFaults, *, role: Role = "fault") -> Graph:
    """Give faults to the operators that were woven in for their targets; those of all others do nothing."""
    operators = []
    for operator in graph:
        if isinstance(operator, Faulty) and operator.role == role:
            wanted = faults.get(operator.target)
            fault = wanted if wanted is None or isinstance(wanted, Fault) else wanted.get(operator.stream)
            if fault is not None:
                _check(graph, operator, fault)
            operator = replace(operator, fault=fault)
        operators.append(operator)
    return replace(graph, operators=tuple(operators))


def _check(graph: Graph, operator: Faulty, fault: Fault) -> None:
    if fault.model.deep and not operator.deep:
        raise GraphError(f"'{operator.target}': {fault.describe()}, and was not woven in to do so")
    if not fault.model.concerns(operator.schema.names):
        names = ", ".join(operator.schema.names)
        raise GraphError(
            f"'{operator.target}': no column '{fault.model.changes[0]}' comes in by '{operator.stream}' to be "
            f"corrupted; it has: {names}"
        )


def _before(operators: dict[str, Operator], target: Operator, deep: bool, role: Role) -> list[str]:
    woven: dict[tuple[int, str], str] = {}
    for number, port in enumerate(target.ports):
        for stream in port:
            woven[number, stream] = _faulty(
                operators, stream, f"{role}:{target.name}:{number}:", target, deep, role
            )
    ports = tuple(tuple(woven[n, s] for s in port) for n, port in enumerate(target.ports))
    operators[target.name] = replace(target, ports=ports)
    return list(woven.values())


def _behind(operators: dict[str, Operator], source: Operator, deep: bool, role: Role) -> list[str]:
    assert isinstance(source, Source)
    if source.tick is not None:
        raise GraphError(
            f"{source} is a clock: its ticks go to every operator that hears it, and are not tuples"
        )
    readers = [o for o in operators.values() if source.name in {*o.inputs, *o.control}]
    woven = _faulty(operators, source.name, f"{role}:", source, deep, role)

    def instead(streams: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(woven if stream == source.name else stream for stream in streams)

    for reader in readers:
        operators[reader.name] = replace(
            reader, ports=tuple(instead(port) for port in reader.ports), control=instead(reader.control)
        )
    return [woven]


def _faulty(
    operators: dict[str, Operator], stream: str, prefix: str, target: Operator, deep: bool, role: Role
) -> str:
    """Add the operator of a fault; a stream may get several, one after the other."""
    producer = next(o for o in operators.values() if stream in o.outputs)
    # Behind another fault it is still the same stream to those who name it.
    origin = producer.stream if isinstance(producer, Faulty) else stream
    name = f"{prefix}{origin}"
    operators[name] = Faulty(
        name=name,
        location=target.location,
        ports=((stream,),),
        schema=producer.schema_of(stream),
        target=target.name,
        stream=origin,
        role=role,
        deep=deep,
    )
    return name
