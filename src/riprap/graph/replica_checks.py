"""What cannot be in a replica group, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riprap.errors import GraphError
from riprap.graph.operator import Operator
from riprap.graph.regions import region_by_operator
from riprap.graph.replicas import ReplicaGroup

if TYPE_CHECKING:
    from riprap.graph.graph import Graph


def check_groups(graph: Graph) -> None:
    """Refuse what cannot be in a replica group, with what to do instead."""
    taken: dict[str, ReplicaGroup] = {}
    regions = region_by_operator(graph) if graph.groups else {}
    names = {process: f"process '{process}'" for process in graph.processes.values()}
    for group in graph.groups:
        if group.name in names:
            raise GraphError(f"{group}: there is a {names[group.name]} already. Give it another name")
        names[group.name] = "replica group of that name"
        members = [graph[name] for name in group.operators]
        if not members:
            raise GraphError(
                f"{group}: there is nothing between sources and sinks to have replicas of. Leave it out"
            )
        for operator in members:
            if operator.name in taken:
                raise GraphError(
                    f"{group}: {operator} is in {taken[operator.name]} too. Groups do not overlap: put both into one, "
                    "or leave it out of one"
                )
            taken[operator.name] = group
            if operator.name in regions and not group.compared:
                raise GraphError(
                    f"{group}: {operator} is in region '{regions[operator.name].name}', whose results count exactly "
                    "once, and failover='plain' loses some. Write failover='exact', or keep it out of regions with "
                    "protect=rr.autonomous()"
                )
            _check_member(graph, group, operator)
        apart = None if group.failover == "ahead" else _apart(graph, members)
        if apart is not None:
            raise GraphError(
                f"{group}: '{apart}' and '{members[0].name}' are not connected within it. Name what is between them, "
                "or make two groups"
            )


def _check_member(graph: Graph, group: ReplicaGroup, operator: Operator) -> None:
    if not operator.ports:
        raise GraphError(
            f"{group}: {operator} is a source, and what two read of it would differ. Leave it out: all replicas read "
            "what one process has read"
        )
    if not operator.outputs:
        raise GraphError(
            f"{group}: {operator} is a sink, and would get everything twice. Leave it out: it reads one replica's "
            "results"
        )
    place = graph.places.get(operator.name, "")
    if place in graph.processes:
        raise GraphError(
            f"{group}: {operator} is placed in process '{graph.processes[place]}', and each replica has a process of "
            "its own. Leave out process="
        )
    if graph.restarts.get(place, "resume") == "live":
        raise GraphError(
            f"{group}: {operator} is placed in '{place}', which restarts live: replicas would read different tuples. "
            "Place it with restart='resume'"
        )
    if not group.compared:
        return
    # Of all operators none can be left out by not naming it.
    without = "leave it out" if group.failover == "exact" else "name others than it in app.replicate(...)"
    if operator.differs:
        raise GraphError(
            f"{group}: {operator} may put out something else than its copy: {operator.differs}. Make it deterministic, "
            f"{without}, or write failover='plain'"
        )
    if operator.looks_up:
        raise GraphError(
            f"{group}: {operator} reads a table that changes, each replica at a time of its own, so their results may "
            f"differ. {without.capitalize()}, or write failover='plain'"
        )


def _apart(graph: Graph, members: list[Operator]) -> str | None:
    """Name an operator of a group that no path inside of it connects to the first, None if there is none."""
    inside = {o.name for o in members}
    reached, waiting = {members[0].name}, [members[0]]
    while waiting:
        operator = waiting.pop()
        steering = (graph.producer(stream) for stream in operator.control)
        for other in (*graph.before(operator), *steering, *graph.after(operator)):
            if other.name in inside and other.name not in reached:
                reached.add(other.name)
                waiting.append(other)
    return next((o.name for o in members if o.name not in reached), None)
