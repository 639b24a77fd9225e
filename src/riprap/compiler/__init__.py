"""Turn a graph into the plan of a processing element, pass by pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from riprap.compiler.passes import (
    check_ordering,
    choose_path,
    describe_state,
    find_key,
    prune_columns,
    refuse_policies,
)
from riprap.compiler.plan import Path, Plan
from riprap.errors import GraphError, NotYetError
from riprap.graph.connectors import FromSpark, Memory, Rows
from riprap.graph.graph import Graph
from riprap.graph.operators import Operator, Sink, Source

__all__ = ["Plan", "compile_graph", "describe_state", "explain"]


def compile_graph(graph: Graph, *, buckets: int, tasks: int, path: Path | None = None) -> Plan:
    """Compile a graph for a number of key buckets and parallel tasks.

    There are never more tasks than buckets. The whole graph is fused into one processing element, fed as
    ``choose_path`` says unless ``path`` does.
    """
    for what, value in (("buckets", buckets), ("tasks", tasks)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise GraphError(f"{what}= takes a whole number of at least 1, got {value!r}")
    if path not in (None, "direct", "exchange"):
        raise GraphError(f"path= is 'direct' or 'exchange', got {path!r}")
    refuse_policies(graph)
    check_ordering(graph)
    entries = find_key(graph)
    needed = prune_columns(graph)
    chosen = choose_path(graph)
    if path == "direct" and chosen == "exchange":
        raise NotYetError(f"application '{graph.name}' reads a Spark DataFrame, which cannot be fed directly")
    keyed = any(o.stateful for o in graph)
    reads = {
        e.name: needed[e.name]
        | set(e.key)
        | ({e.ordering} if e.ordering else set())
        | _position(graph, e.name)
        for e in entries
    }
    one_bucket = keyed and not entries[0].key
    return Plan(
        name=graph.name,
        graph=Graph(graph.name, tuple(_bare(o) for o in graph)),
        entries=entries,
        needed={**needed, **reads},
        path=path or chosen,
        buckets=1 if one_bucket else buckets,
        tasks=1 if one_bucket else min(tasks, buckets),
    )


def explain(graph: Graph, plan: Plan) -> Iterator[tuple[str, str]]:
    """Say what every pass decided, as (pass, text)."""
    yield "fuse", f"one processing element '{plan.name}' of {len(graph.operators)} operators"
    keys = ", ".join(f"{e.name}({', '.join(e.key)})" for e in plan.entries if e.key)
    if plan.keyed:
        yield "key", f"{keys or 'none: one bucket'}; {plan.buckets} buckets in {plan.tasks} tasks"
    else:
        yield "key", f"no operator keeps state; {plan.tasks} tasks take rows as they come"
    for operator in graph:
        if not isinstance(operator, Sink):
            columns = [c for c in operator.schema.names if c in plan.needed[operator.name]]
            left_out = [c for c in operator.schema.names if c not in columns]
            note = f"; leaves out {', '.join(left_out)}" if left_out else ""
            yield "prune", f"{operator.name}: {', '.join(columns)}{note}"
    how = {
        "direct": "direct: the task that reads a bucket computes it; one Spark stage, no shuffle",
        "exchange": "exchange: rows are packed, shuffled by bucket, then computed; two Spark stages",
    }
    yield "feed", how[plan.path]


def _bare(operator: Operator) -> Operator:
    """Leave out what only the driver uses, such as callbacks: the plan travels to every task."""
    if isinstance(operator, Sink):
        return dataclasses.replace(operator, connector=Memory())
    if isinstance(operator, Source) and isinstance(operator.connector, Rows):
        return dataclasses.replace(operator, connector=Rows(table=operator.connector.schema.empty_table()))
    if isinstance(operator, Source) and isinstance(operator.connector, FromSpark):
        return dataclasses.replace(operator, connector=dataclasses.replace(operator.connector, build=str))
    return operator


def _position(graph: Graph, source: str) -> set[str]:
    operator = graph[source]
    assert isinstance(operator, Source)
    return {operator.position} if operator.position else set()
