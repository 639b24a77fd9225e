"""Weave faults into a graph: operators of their own in front of those they hit, and never the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from riprap.errors import GraphError
from riprap.graph.faults import Corruption, Fault
from riprap.graph.graph import Graph
from riprap.graph.operators import Faulty, Operator, Source

# For each target a fault of all its ports, or one for each of some.
Faults = Mapping[str, Fault | Mapping[int, Fault]]


def weave(graph: Graph, faults: Faults) -> Graph:
    """Return the graph with faults: in front of each stream that a target reads, or behind it if it is a source.

    What is woven in later is nearer to the target. A graph with faults has the streams of the one without, and others.
    """
    operators: dict[str, Operator] = {o.name: o for o in graph}
    places = dict(graph.places)
    for name, wanted in faults.items():
        if name not in operators:
            raise GraphError(f"there is no operator '{name}' for a fault; there are: {', '.join(operators)}")
        target = operators[name]
        made = _behind(operators, target, wanted) if isinstance(target, Source) else _before(operators, target, wanted)
        if name in places:
            places.update(dict.fromkeys(made, places[name]))
    return Graph.of(graph.name, operators.values(), places, graph.restarts, graph.processes)


def _before(
    operators: dict[str, Operator], target: Operator, wanted: Fault | Mapping[int, Fault]
) -> list[str]:
    ports, made = [], []
    for number, port in enumerate(target.ports):
        fault = wanted if isinstance(wanted, Fault) else wanted.get(number)
        if fault is None:
            ports.append(port)
            continue
        streams = []
        for stream in port:
            faulty = _faulty(operators, stream, f"fault:{target.name}:{number}:{stream}", target, fault)
            made.append(faulty.name)
            streams.append(faulty.name)
        ports.append(tuple(streams))
    operators[target.name] = replace(target, ports=tuple(ports))
    return made


def _behind(
    operators: dict[str, Operator], source: Source, wanted: Fault | Mapping[int, Fault]
) -> list[str]:
    fault = wanted if isinstance(wanted, Fault) else wanted.get(0)
    if fault is None:
        return []
    if source.tick is not None:
        raise GraphError(f"{source} is a clock: its ticks go to every operator that hears it, and are not tuples")
    faulty = _faulty(operators, source.name, f"fault:{source.name}", source, fault)
    for name, operator in operators.items():
        if operator is not faulty:
            ports = tuple(
                tuple(faulty.name if stream == source.name else stream for stream in port) for port in operator.ports
            )
            control = tuple(faulty.name if stream == source.name else stream for stream in operator.control)
            operators[name] = replace(operator, ports=ports, control=control)
    return [faulty.name]


def _faulty(operators: dict[str, Operator], stream: str, name: str, target: Operator, fault: Fault) -> Faulty:
    """Add the operator of a fault; a stream may get several, one after the other."""
    producer = next(o for o in operators.values() if stream in o.outputs)
    schema = producer.schema_of(stream)
    if isinstance(fault.model, Corruption):
        unknown = [c for c in fault.model.columns if c not in schema.names]
        if unknown:
            there = ", ".join(schema.names)
            raise GraphError(f"{target}: no column '{unknown[0]}' comes in by '{stream}' to be corrupted; it has: {there}")
    while name in operators:
        name += "'"
    faulty = Faulty(name=name, location=target.location, ports=((stream,),), schema=schema, fault=fault)
    operators[name] = faulty
    return faulty
