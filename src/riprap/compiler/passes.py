"""The passes: each looks at the graph and settles one thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from riprap.compiler.plan import Path
from riprap.errors import GraphError, NotYetError
from riprap.expressions import Named
from riprap.expressions.tree import Column
from riprap.graph.connectors import FromSpark
from riprap.graph.graph import Graph
from riprap.graph.operators import Aggregate, Functor, Join, Operator, Sink, Source
from riprap.operators.arrival import Entry
from riprap.operators.join import columns_of_port

# For each column of a stream: the source columns it is a plain copy of, by source.
Lineage = Mapping[str, Mapping[str, str]]


def refuse_policies(graph: Graph) -> None:
    """Refuse policies this version cannot carry out: an operator never runs less protected than it says."""
    for operator in graph:
        if operator.protect is not None:
            raise NotYetError(
                f"{operator}: protect={operator.protect} is not carried out by this version. "
                "Remove it to run unprotected"
            )


def trace_columns(graph: Graph) -> dict[str, Lineage]:
    """Follow every column back to the source columns it copies."""

    def visit(operator: Operator, inputs: list[Lineage]) -> Lineage:
        match operator:
            case Source():
                return {name: {operator.name: name} for name in operator.schema.names}
            case Functor():
                return _copies(operator.select, inputs[0])
            case Aggregate():
                return {key: inputs[0].get(key, {}) for key in operator.by}
            case Join():
                both = {
                    f"{stream}.{column}": origin
                    for stream, lineage in zip(operator.inputs, inputs, strict=True)
                    for column, origin in lineage.items()
                }
                shared = {key: {**inputs[1].get(key, {}), **inputs[0].get(key, {})} for key in operator.by}
                keyed = {f"{s}.{k}": shared[k] for s in operator.inputs for k in operator.by}
                return _copies(operator.select, {**both, **keyed})
        return inputs[0]

    return graph.fold(visit)


def find_key(graph: Graph) -> tuple[Entry, ...]:
    """Find the one key of the stage, as columns of each source.

    Every stateful operator's key must come unchanged from the sources, and be the same one.
    """
    lineage = trace_columns(graph)
    sources = graph.of_kind(Source)
    key: dict[str, tuple[str, ...]] | None = None
    first: Operator | None = None
    for operator in graph:
        if not isinstance(operator, Aggregate | Join):
            continue
        found = _key_at_sources(operator, lineage) if operator.by else {s.name: () for s in sources}
        for name in found.keys() & (key or {}).keys():
            if key is not None and key[name] != found[name]:
                raise NotYetError(
                    f"{operator} has key {found[name]} of source '{name}', and {first} has {key[name]}. One "
                    "application has one key in this version: split it in two, joined by files"
                )
        key = {**(key or {}), **found}
        first = first or operator
    lengths = {len(columns) for columns in (key or {}).values()}
    if len(lengths) > 1:
        raise NotYetError(f"application '{graph.name}' has keys of different lengths: {key}")
    if key is not None:
        _check_every_source_has_key(sources, key, max(lengths))
    return tuple(
        Entry(name=s.name, key=key[s.name] if key is not None else (), ordering=s.ordering) for s in sources
    )


def prune_columns(graph: Graph) -> dict[str, frozenset[str]]:
    """Find the columns of every stream that someone downstream reads."""
    reads: dict[str, set[str]] = {o.name: set() for o in graph}
    for operator in reversed(graph.operators):
        needed = reads[operator.name]
        match operator:
            case Sink():
                needed |= set(operator.schema.names)
                reads[operator.inputs[0]] |= needed
            case Functor():
                used = _columns(n for n in operator.select if n.name in needed)
                reads[operator.inputs[0]] |= used | (operator.where.columns if operator.where else set())
            case Aggregate():
                arguments = {
                    c for call in operator.aggregation.calls if call.argument for c in call.argument.columns
                }
                reads[operator.inputs[0]] |= arguments | set(operator.by)
            case Join():
                for port, stream in enumerate(operator.inputs):
                    reads[stream] |= columns_of_port(operator, port)
    return {name: frozenset(columns) for name, columns in reads.items()}


def choose_path(graph: Graph) -> Path:
    """Feed the stage directly where every source can be read by bucket, else through an exchange."""
    spark = any(isinstance(s.connector, FromSpark) for s in graph.of_kind(Source))
    return "exchange" if spark else "direct"


def describe_state(graph: Graph) -> dict[str, str]:
    """Say what every stateful operator keeps: state is only read back by an operator that says the same."""
    described = {}
    for operator in graph:
        if isinstance(operator, Aggregate):
            arguments = [c.argument for c in operator.aggregation.calls if c.argument is not None]
            kept = ", ".join(dict.fromkeys(f"{a.sql} {a.type}" for a in arguments))
            described[operator.name] = (
                f"{operator.window} by {', '.join(operator.by)}, {operator.emit}: {kept}"
            )
        elif isinstance(operator, Join):
            ports = []
            for port, stream in enumerate(operator.inputs):
                schema = graph[stream].schema
                columns = sorted(columns_of_port(operator, port))
                kept = ", ".join(f"{c} {schema.field(c).type}" for c in columns)
                ports.append(f"{operator.windows[port]} of {kept}")
            described[operator.name] = f"by {', '.join(operator.by)}: {'; '.join(ports)}"
    return described


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


def _copies(select: Iterable[Named], lineage: Lineage) -> Lineage:
    return {
        n.name: lineage.get(n.expression.key, {}) if isinstance(n.expression, Column) else {} for n in select
    }


def _key_at_sources(operator: Aggregate | Join, lineage: Mapping[str, Lineage]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for stream in operator.inputs:
        origins = [lineage[stream].get(key, {}) for key in operator.by]
        for key, origin in zip(operator.by, origins, strict=True):
            if not origin:
                raise NotYetError(
                    f"{operator}: its key '{key}' is computed, not a source column. In this version a key must come "
                    "unchanged (or renamed) from the source: compute it there"
                )
        for source in set().union(*origins) if origins else ():
            columns = tuple(origin[source] for origin in origins)
            if found.setdefault(source, columns) != columns:
                raise NotYetError(
                    f"{operator}: its key is {found[source]} and {columns} of source '{source}'. "
                    "In this version both ports must have the same source columns as key"
                )
    return found


def _check_every_source_has_key(
    sources: Iterable[Source], key: Mapping[str, tuple[str, ...]], length: int
) -> None:
    kinds = None
    for source in sources:
        if source.name not in key:
            if length == 0:
                continue
            raise NotYetError(
                f"{source}: none of its columns is the key of a stateful operator, though other sources' are. "
                "In this version every source must feed the keyed part: run it as an application of its own"
            )
        mine = tuple(source.schema.field(c).type for c in key[source.name])
        kinds = kinds or mine
        if mine != kinds:
            raise GraphError(f"{source}: its key has types {mine}, another source's {kinds}: cast one")


def _columns(select: Iterable[Named]) -> set[str]:
    return {c for n in select for c in n.expression.columns}
