"""The passes: each looks at the graph and settles one thing."""

from __future__ import annotations

from riprap.errors import GraphError, NotYetError
from riprap.graph.connectors import ReadBySpark
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.graph.replicas import group_by_operator
from riprap.operators.source import Source


def refuse_policies(graph: Graph) -> None:
    """Refuse policies this version cannot carry out: an operator never runs less protected than it says."""
    for operator in graph:
        if operator.protect is not None and not operator.protect.CARRIED_OUT:
            raise NotYetError(
                f"{operator}: protect={operator.protect} is not carried out by this version. "
                "Remove it to run unprotected"
            )
        if operator.recording is not None:
            _check_recorded(graph, operator)
        if operator.saving is not None and operator.saving.every is None:
            raise GraphError(
                f"{operator}: protect={operator.protect} saves it when the start of its region says so, and begins no "
                "region. Give Saving(every=...) seconds"
            )


def _check_recorded(graph: Graph, operator: Operator) -> None:
    """Refuse to record an operator's windows where there is no log of its own to record them in."""
    group = group_by_operator(graph).get(operator.name)
    if group is not None:
        raise GraphError(
            f"{operator}: protect={operator.protect} records its windows in its output log, and each replica of "
            f"{group} has a log that begins anew when it comes back. Leave one of the two out"
        )
    if not any(
        stream in after.inputs or stream in after.control for stream in operator.outputs for after in graph
    ):
        raise GraphError(
            f"{operator}: protect={operator.protect} records its windows in its output log, and nobody reads what it "
            "puts out, so there is none. Give it a sink"
        )


def prune_columns(graph: Graph) -> dict[str, frozenset[str]]:
    """Find the columns of every stream that someone downstream reads."""
    needed: dict[str, frozenset[str]] = {s: frozenset() for o in graph for s in o.outputs}
    # A control port takes whole tuples.
    for operator in graph:
        for stream in operator.control:
            needed[stream] = frozenset(graph.schema_of(stream).names)
    for operator in reversed(graph.operators):
        for port, columns in zip(operator.ports, operator.reads(needed), strict=True):
            for stream in port:
                needed[stream] |= columns
        if operator.clock is not None:
            needed[operator.clock] |= {_tick_column(graph, operator.clock)}
    return needed


def describe_state(graph: Graph) -> dict[str, str]:
    """Say what every stateful operator keeps: state is only read back by an operator that says the same."""
    needed = prune_columns(graph)
    # Whose windows are recorded has an index of the records beside its state: one without the other cannot be read.
    return {
        o.name: o.layout(needed) + ("" if o.recording is None else "; windows recorded in its log")
        for o in graph
        if o.stateful
    }


def check_ordering(graph: Graph) -> None:
    """Check that several sources interleave by one rule."""
    sources = graph.of_kind(Source)
    named = [s for s in sources if s.ordering is not None]
    if named and len(named) < len(sources):
        lacking = next(s for s in sources if s.ordering is None)
        raise GraphError(
            f"{lacking}: has no ordering=, though {named[0]} has. Name one for every source, or for none"
        )
    kinds = {s.schema.field(s.ordering).type for s in named if s.ordering is not None}
    if len(kinds) > 1:
        raise GraphError(
            f"{named[0]}: the ordering columns have different types {sorted(map(str, kinds))}: cast one"
        )


def is_aligned(graph: Graph) -> bool:
    """Say whether batches end at ordering numbers, so that several sources interleave alike however they are cut."""
    sources = graph.of_kind(Source)
    return (
        len(sources) > 1
        and all(s.ordering is not None for s in sources)
        and not any(isinstance(s.connector, ReadBySpark) for s in sources)
    )


def source_tags(graph: Graph) -> int:
    """Count the numbers in the tag of a source's tuple: ordering or batch, source, position; with an ordering that
    batches do not keep to, the batch comes first."""
    sources = graph.of_kind(Source)
    ordered = len(sources) > 1 and any(s.ordering is not None for s in sources)
    return 4 if ordered and not is_aligned(graph) else 3


def _tick_column(graph: Graph, clock: str) -> str:
    source = graph.producer(clock)
    assert isinstance(source, Source)
    assert source.tick is not None
    return source.tick
