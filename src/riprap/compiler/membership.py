"""Which consistent region and which replica group each operator is in: what shares an element shares both."""

from __future__ import annotations

from typing import NamedTuple

from riprap.graph.graph import Graph
from riprap.graph.regions import region_by_operator
from riprap.graph.replicas import group_by_operator


class Membership(NamedTuple):
    """What an operator is in: a consistent region, a replica group, both, or neither."""

    region: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        group = f"in the replica group '{self.group}'" if self.group else ""
        region = f"in the consistent region '{self.region}'" if self.region else "autonomous"
        return f"{group} and {region}" if group and self.region else group or region


def memberships(graph: Graph) -> dict[str, Membership]:
    """Say of each operator what it is in."""
    regions = {name: region.name for name, region in region_by_operator(graph).items()}
    groups = {name: group.name for name, group in group_by_operator(graph).items()}
    return {o.name: Membership(regions.get(o.name), groups.get(o.name)) for o in graph}
