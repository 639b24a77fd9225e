"""Number the parts of a model and their protection through, as the simulation reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riprap.arrays import Floats
from riprap.errors import ModelError
from riprap.model.arrays import CHECKPOINT, SCRATCH, WHOLE, ModelArrays
from riprap.model.fault_effects import mean_flows
from riprap.model.parts import Part
from riprap.protection import Protection

_RESTORES = {"scratch": SCRATCH, "checkpoint": CHECKPOINT, "whole": WHOLE}


@dataclass(frozen=True, slots=True)
class Node:
    """An operator, or one of its replicas in a high-availability group."""

    part: Part
    protection: Protection
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Wired:
    """A model ready to be simulated, with the names of what is numbered in it.

    ``units`` are what fails together: pairs of a node and a copy.
    """

    wiring: ModelArrays
    nodes: tuple[Node, ...]
    sinks: tuple[str, ...]
    units: tuple[tuple[tuple[int, int], ...], ...]

    def nodes_of(self, operator: str) -> list[int]:
        """Return the nodes of an operator."""
        return [n for n, node in enumerate(self.nodes) if node.part.name == operator]

    def units_of(self, operator: str) -> list[int]:
        """Return the units that an operator's first copy fails with."""
        first = self.nodes_of(operator)[0]
        return [u for u, members in enumerate(self.units) if (first, 0) in members]

    def flows(self) -> Floats:
        """Return the tuples a second at each port while nothing fails."""
        w = self.wiring
        flow = np.zeros(len(w.port_node))
        groups = len(w.group_failover)
        everyone = np.ones(len(self.nodes), np.bool_)
        mean_flows(w, everyone, np.zeros(groups, np.int64), np.ones(groups, np.bool_), flow)
        return flow


def wire(
    parts: Sequence[Part], protections: Mapping[str, Protection], together: Sequence[Sequence[str]] = ()
) -> Wired:
    """Number everything through. ``together`` are the operators that fail together."""
    nodes = tuple(_nodes(parts, protections))
    groups = list(dict.fromkeys(n.protection.group for n in nodes if n.protection.group is not None))
    of_groups = [_of_group(nodes, group) for group in groups]
    sinks = tuple(p.name for p in parts if p.sink)
    operators = [p.name for p in parts]
    readers: dict[str, list[tuple[int, int]]] = {}
    port_first, output_first = (
        _firsts(len(n.part.entries) for n in nodes),
        _firsts(len(n.part.outputs) for n in nodes),
    )
    for number, node in enumerate(nodes):
        for place, entry in enumerate(node.part.entries):
            for stream in entry.streams:
                readers.setdefault(stream, []).append((number, port_first[number] + place))
    link_first = [0]
    link_port: list[int] = []
    link_group: list[int] = []
    for node in nodes:
        for stream in node.part.outputs:
            for reader, port in readers.get(stream, ()):
                group = node.protection.group
                inside = group is not None and nodes[reader].protection.group == group
                if inside and nodes[reader].replica != node.replica:
                    continue
                link_port.append(port)
                link_group.append(-1 if inside or group is None else groups.index(group))
            link_first.append(len(link_port))
    units = tuple(_units(nodes, together))
    wiring = ModelArrays(
        node_ports=np.array(port_first),
        node_outputs=np.array(output_first),
        output_links=np.array(link_first),
        link_port=np.array(link_port, np.int64),
        link_group=np.array(link_group, np.int64),
        node_operator=np.array([operators.index(n.part.name) for n in nodes]),
        node_copies=np.array([n.protection.copies for n in nodes]),
        node_replica=np.array([n.replica for n in nodes]),
        node_group=np.array(
            [-1 if n.protection.group is None else groups.index(n.protection.group) for n in nodes]
        ),
        node_sink=np.array([sinks.index(n.part.name) if n.part.sink else -1 for n in nodes]),
        node_restore=np.array([_RESTORES[n.protection.restore] for n in nodes]),
        node_kept=np.array([n.protection.kept for n in nodes]),
        node_twin=np.array([_twin(nodes, n) for n in nodes]),
        node_age=np.array([n.protection.age for n in nodes]),
        **_ports(nodes),
        most=_most(nodes, port_first, output_first, link_first, link_port),
        unit_members=np.array([2 * n + copy for members in units for n, copy in members], np.int64),
        unit_first=np.array(_firsts(len(members) for members in units)),
        group_failover=np.array([g.failover for g in of_groups], np.float64),
        group_kept=np.array([g.kept for g in of_groups], np.bool_),
        group_peer=np.array([g.peer or g.kept for g in of_groups], np.bool_),
        operators=len(operators),
        sinks=len(sinks),
    )
    return Wired(wiring, nodes, sinks, units)


def _nodes(parts: Sequence[Part], protections: Mapping[str, Protection]) -> Iterator[Node]:
    for part in parts:
        protection = protections.get(part.name, Protection())
        if protection.copies not in (1, 2):
            raise ModelError(f"operator '{part.name}': {protection.copies} copies; a model has one or two")
        if part.sink and (protection.group is not None or protection.copies > 1):
            raise ModelError(f"'{part.name}' is a sink: its results are outside, and it cannot have copies")
        for replica in range(2 if protection.group is not None else 1):
            yield Node(part, protection, replica)


def _of_group(nodes: Sequence[Node], group: str) -> Protection:
    """Return the protection whose failover all operators of a group have."""
    first, *others = (n for n in nodes if n.protection.group == group)
    for other in others:
        if _failover(other.protection) != _failover(first.protection):
            raise ModelError(
                f"operators '{first.part.name}' and '{other.part.name}' are in group '{group}', and do not fail over "
                "alike: give them the same failover, kept and peer"
            )
    return first.protection


def _failover(protection: Protection) -> tuple[float, bool, bool]:
    return protection.failover, protection.kept, protection.peer


def _twin(nodes: Sequence[Node], node: Node) -> int:
    """Return the number of the same operator in the other replica of its group, -1 if it is in none."""
    numbers = (n for n, o in enumerate(nodes) if o.part.name == node.part.name and o.replica != node.replica)
    return next(numbers, -1)


Members = tuple[tuple[int, int], ...]


def _units(nodes: Sequence[Node], together: Sequence[Sequence[str]]) -> Iterator[Members]:
    """Say what fails together: the named operators replica by replica, every other copy alone."""
    operators = {n.part.name for n in nodes}
    taken: set[str] = set()
    for names in together:
        for name in names:
            if name not in operators:
                listed = ", ".join(sorted(operators))
                raise ModelError(
                    f"there is no operator '{name}' to fail together with others; there are: {listed}"
                )
            if name in taken:
                raise ModelError(f"operator '{name}' is to fail together with two sets of others")
            taken.add(name)
        for copy in (0, 1):
            members = tuple(
                (n, 0 if node.protection.group else copy)
                for n, node in enumerate(nodes)
                if node.part.name in names and _has(node, copy)
            )
            if members:
                yield members
    for n, node in enumerate(nodes):
        if node.part.name not in taken:
            for copy in range(node.protection.copies):
                yield ((n, copy),)


def _has(node: Node, copy: int) -> bool:
    """Say whether a node is, or has, the copy of its operator with this number."""
    return node.replica == copy if node.protection.group is not None else copy < node.protection.copies


def _ports(nodes: Sequence[Node]) -> dict[str, Any]:
    widest = max((len(n.part.outputs) for n in nodes), default=0)
    rows = [(number, node, entry) for number, node in enumerate(nodes) for entry in node.part.entries]
    clean, tainted, filling = (np.zeros((len(rows), widest)) for _ in range(3))
    for place, (_, node, entry) in enumerate(rows):
        for output, share in enumerate(entry.shares):
            clean[place, output] = share
            tainted[place, output] = (
                min(1.0, share * (1.0 + node.part.profile.shifted)) if share < 1.0 else share
            )
            filling[place, output] = share * node.part.profile.filling
    ports = [entry.port for _, _, entry in rows]
    # A tuple that a split sends to one of its outputs goes to no other. Measured shares may add up to a little more.
    exclusive = (clean.sum(1) <= 1.001) & ((clean > 0).sum(1) > 1)
    for shares in (clean, tainted, filling):
        shares[exclusive] /= np.maximum(1.0, shares[exclusive].sum(1))[:, np.newaxis]
    return {
        "port_node": np.array([number for number, _, _ in rows]),
        "port_rate": np.array([entry.rate for _, _, entry in rows]),
        "clean": clean,
        "tainted": tainted,
        "scratch": filling,
        "exclusive": exclusive,
        "size": np.floor([p.state for p in ports]),
        "alpha": np.array([p.alpha for p in ports]),
        "hurt": np.floor([min(p.alpha_tainted, p.gamma) * np.floor(p.state) for p in ports]),
        "beta": np.array([p.beta for p in ports]),
        "gamma": np.array([p.gamma for p in ports]),
    }


def _most(
    nodes: Sequence[Node],
    port_first: Sequence[int],
    output_first: Sequence[int],
    link_first: Sequence[int],
    link_port: Sequence[int],
) -> Floats:
    """Work out how many tuples at each port one from outside can make at most."""
    ports = port_first[-1]
    most = np.zeros((ports, ports))
    for number, node in enumerate(nodes):
        for place, entry in enumerate(node.part.entries):
            port = port_first[number] + place
            if entry.rate > 0:
                most[port, port] = 1.0
            for output, share in enumerate(entry.shares):
                # Copies that differ, one of them ill, put out two tuples for one.
                reach = np.ceil(share) * most[port] * node.protection.copies
                first = output_first[number] + output
                for link in range(link_first[first], link_first[first + 1]):
                    most[link_port[link]] += reach
    return most


def _firsts(lengths: Iterable[int]) -> list[int]:
    firsts = [0]
    for length in lengths:
        firsts.append(firsts[-1] + length)
    return firsts
