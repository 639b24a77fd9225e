"""Turn a graph into the plans of its processing elements, pass by pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from riprap.compiler.draft import Draft
from riprap.compiler.elements import fuse
from riprap.compiler.passes import (
    check_ordering,
    describe_state,
    is_aligned,
    prune_columns,
    refuse_policies,
    source_tags,
)
from riprap.compiler.replication import with_replicas, without_copies
from riprap.errors import GraphError
from riprap.graph.graph import Graph
from riprap.graph.guarantees import describe_guarantees
from riprap.graph.operator import Operator
from riprap.graph.regions import Region, describe_regions, regions_of
from riprap.graph.replicas import describe_groups
from riprap.operators.channel import Inlet, Outlet
from riprap.operators.source import Source
from riprap.protection import Settled
from riprap.stage.arrival import Intake
from riprap.stage.plan import MAIN, ChannelPlan, Layout, Plan

__all__ = [
    "ChannelPlan",
    "Layout",
    "Plan",
    "compile_graph",
    "describe_state",
    "explain",
    "without_copies",
]

_ORDERING = "ordering"


def compile_graph(graph: Graph, *, buckets: int, tasks: int) -> Layout:
    """Compile a graph for a number of key buckets and parallel tasks; there are never more tasks than buckets."""
    for what, value in (("buckets", buckets), ("tasks", tasks)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise GraphError(f"{what}= takes a whole number of at least 1, got {value!r}")
    refuse_policies(graph)
    regions = regions_of(graph)
    check_ordering(graph)
    elements = fuse(graph)
    _check_sources_together(graph, elements)
    needed = prune_columns(graph)
    roots = _roots(graph, elements)
    inside = {e.name: r for e in elements for r in regions if r.name == e.region}
    marking = {name for name, region in inside.items() if region.terms.marks}
    channels = _channels(graph, elements, needed, roots, marking, buckets)
    plans = tuple(
        _plan(graph, element, inside.get(element.name), needed, channels, roots[element.name], buckets, tasks)
        for element in elements
    )
    return with_replicas(Layout(graph=graph, plans=plans, channels=tuple(channels), regions=regions))


def explain(layout: Layout) -> Iterator[tuple[str, str]]:
    """Say what every pass decided, as (pass, text)."""
    once = without_copies(layout)
    many = len(once.plans) > 1
    for plan in once.plans:
        names = [o.name for o in plan.graph if not isinstance(o, Inlet | Outlet)]
        listed = f": {', '.join(names)}" if many else ""
        kind = "processing element" if many else "one processing element"
        yield "fuse", f"{kind} '{plan.name}' of {len(names)} operators{listed}"
    for channel in once.channels:
        key = f"by {', '.join(channel.key)}" if channel.key else "all of it"
        logs = f", a log for each replica of '{channel.group}'" if channel.group is not None else ""
        yield "channel", f"{channel.stream}: {channel.writer} -> {', '.join(channel.readers)}, {key}{logs}"
    yield from (("replicas", text) for text in describe_groups(layout.graph))
    if layout.graph.groups:
        yield from (("process", text) for text in _describe_processes(layout))
    for plan in once.plans:
        where = f"{plan.name}: " if many else ""
        keys = ", ".join(f"{e.name}({', '.join(e.key)})" for e in plan.entries if e.key)
        if plan.keyed:
            yield "key", f"{where}{keys or 'none: one bucket'}; {plan.buckets} buckets in {plan.tasks} tasks"
        else:
            yield "key", f"{where}no operator keeps state; {plan.tasks} tasks take rows as they come"
    needed = prune_columns(layout.graph)
    for operator in layout.graph:
        for stream in operator.outputs:
            schema = operator.schema_of(stream)
            read = needed[stream] | _extra(layout, stream)
            columns = [c for c in schema.names if c in read]
            left_out = [c for c in schema.names if c not in columns]
            note = f"; leaves out {', '.join(left_out)}" if left_out else ""
            yield "prune", f"{stream}: {', '.join(columns)}{note}"
    for operator in layout.graph:
        if operator.protect is not None:
            yield "protect", f"{operator.name}: {operator.protect.describe()}"
    yield from describe_regions(layout.graph)
    yield from (("holds", text) for text in describe_guarantees(layout.graph))
    for plan in once.plans:
        how = "a streaming query of Spark" if plan.ingests else f"a Spark job whose {plan.tasks} tasks stay"
        yield "run", (f"{plan.name}: " if many else "") + how


def _describe_processes(layout: Layout) -> Iterator[str]:
    """Say in a line for each process what runs in it, and where."""
    hosts = {
        group.process(letter): f", on {host}"
        for group in layout.graph.groups
        for letter, host in zip(group.letters, group.hosts, strict=False)
    }
    inside: dict[str, list[str]] = {}
    for plan in layout.plans:
        inside.setdefault(plan.process, []).append(plan.name)
    for process, names in inside.items():
        yield f"{process}: {', '.join(names)}{hosts.get(process, '')}"


def _extra(layout: Layout, stream: str) -> frozenset[str]:
    """Return the columns that a source is read for beyond what operators ask for: key, ordering, position."""
    columns: frozenset[str] = frozenset()
    for plan in layout.plans:
        if any(e.name == stream for e in plan.entries):
            columns |= plan.needed[stream]
    return columns


def _check_sources_together(graph: Graph, elements: tuple[Draft, ...]) -> None:
    """Refuse sources that interleave by an ordering column and are read apart: each would end where it does, and those
    who read both could not tell when one has no more to come."""
    reading = [e for e in elements if e.reads_sources]
    if is_aligned(graph) and len(reading) > 1:
        names = " and ".join(f"'{e.name}'" for e in reading)
        raise GraphError(
            f"application '{graph.name}': its sources have ordering=, and are placed in {names}. Place them together, "
            "or leave out ordering="
        )


def _roots(graph: Graph, elements: tuple[Draft, ...]) -> dict[str, str]:
    """Say what the frontiers of each element count."""
    made_in = {s: e.name for e in elements for s in e.streams}
    roots: dict[str, str] = {}
    for element in elements:
        if is_aligned(graph):
            roots[element.name] = _ORDERING
        elif element.reads_sources:
            roots[element.name] = element.name
        else:
            upstream = {roots[made_in[s]] for s in element.entries}
            roots[element.name] = upstream.pop() if len(upstream) == 1 else element.name
    return roots


def _channels(
    graph: Graph,
    elements: tuple[Draft, ...],
    needed: Mapping[str, frozenset[str]],
    roots: Mapping[str, str],
    marking: Collection[str],
    buckets: int,
) -> list[ChannelPlan]:
    """List the channels: one for every stream and key it is read by in another element."""
    made_in = {s: e for e in elements for s in e.streams}
    depths = _tag_depths(graph, elements, roots)
    readers_of: dict[tuple[str, tuple[str, ...] | None], list[str]] = {}
    for element in elements:
        for stream in element.entries:
            if made_in[stream] is not element:
                readers_of.setdefault((stream, _entry_key(element, stream) or None), []).append(element.name)
    channels = []
    for (stream, key), readers in readers_of.items():
        whole = graph.schema_of(stream)
        columns = needed[stream] | frozenset(key or ())
        writer = made_in[stream].name
        channels.append(
            ChannelPlan(
                name=f"{stream}@{'+'.join(key or ())}",
                stream=stream,
                schema=pa.schema([f for f in whole if f.name in columns]),
                key=key,
                buckets=buckets if key else 1,
                tags=depths[stream],
                writer=writer,
                readers=tuple(readers),
                root=roots[writer],
                marks=writer in marking,
            )
        )
    return channels


def _entry_key(element: Draft, stream: str) -> tuple[str, ...] | None:
    return element.key.get(stream) if element.key is not None else None


def _tag_depths(graph: Graph, elements: tuple[Draft, ...], roots: Mapping[str, str]) -> dict[str, int]:
    """Count the numbers in the tags of every stream, element by element."""
    made_in = {s: e for e in elements for s in e.streams}
    depths: dict[str, int] = {}
    for element in elements:
        outside = [s for s in element.entries if made_in[s] is not element]
        restarts = any(roots[made_in[s].name] != roots[element.name] for s in outside)
        # What starts an order of its own puts it in front.
        entering = {s: depths[s] + (2 if restarts else 0) for s in outside}
        for operator in element.operators:
            streams = [s for port in operator.ports for s in port]
            ahead = [entering[s] if s in entering else depths[s] for s in streams]
            depth = max(ahead, default=source_tags(graph)) + (len(streams) > 1) + operator.depth
            depths.update(dict.fromkeys(operator.outputs, depth))
    return depths


def _plan(
    graph: Graph,
    element: Draft,
    region: Region | None,
    needed: Mapping[str, frozenset[str]],
    channels: list[ChannelPlan],
    root: str,
    buckets: int,
    tasks: int,
) -> Plan:
    inlets = {c.stream: c for c in channels if element.name in c.readers}
    written = [c for c in channels if c.writer == element.name]
    outlets = {c.stream: tuple(o for o in written if o.stream == c.stream) for c in written}
    operators: list[Operator] = [_inlet(graph, stream, channel) for stream, channel in inlets.items()]
    operators += [_bare(o, region) for o in element.operators]
    operators += [_outlet(graph, stream, leaving) for stream, leaving in outlets.items()]
    part = Graph(element.name, tuple(operators))
    entries = _entries(graph, element, part, inlets, root)
    reads = {e.name: needed[e.name] | _read_beside(part, e) for e in entries}
    # A channel may carry more than the element itself needs of a stream.
    leaving = {o.ports[0][0]: frozenset(o.schema.names) for o in part.of_kind(Outlet)}
    for stream, columns in leaving.items():
        reads[stream] = reads.get(stream, needed[stream]) | columns
    keyed = any(o.stateful for o in element.operators)
    one_bucket = keyed and not any(e.key for e in entries)
    kept = region is not None and region.terms.survives("host")
    return Plan(
        name=element.name,
        graph=part,
        entries=entries,
        needed={**needed, **reads},
        buckets=1 if one_bucket else buckets,
        tasks=1 if one_bucket else min(tasks, buckets),
        sources=tuple(s.name for s in graph.of_kind(Source)),
        inlets=inlets,
        outlets=outlets,
        root=root,
        aligned=is_aligned(graph),
        origin=source_tags(graph) - 2,
        restart=graph.restarts.get(element.name, "resume") if element.placed else "resume",
        ingests=element.ingests,
        region=element.region,
        kept=kept,
        holds=kept and element.holds,
        marked=_marked(part, region, inlets),
        group=element.group,
        process=graph.processes.get(element.name, MAIN),
    )


def _entries(
    graph: Graph, element: Draft, part: Graph, inlets: Mapping[str, ChannelPlan], root: str
) -> tuple[Intake, ...]:
    """Say of each stream that comes into an element from outside how it is put in order, and dealt out."""
    sources = graph.of_kind(Source)
    read = {c.root for c in inlets.values()}
    foreign = sorted(read) if read - {root} else []
    return tuple(
        Intake(
            name=stream,
            key=_entry_key(element, stream),
            ordering=o.ordering if isinstance(o, Source) and len(sources) > 1 else None,
            # A clock is kept where it is heard, and nothing is kept where Spark reads.
            tick=None if element.ingests else o.tick,
            number=sources.index(graph[stream]) if isinstance(o, Source) else None,
            root=foreign.index(inlets[stream].root) if foreign else None,
        )
        for stream in element.entries
        for o in [part.producer(stream)]
    )


def _marked(part: Graph, region: Region | None, inlets: Mapping[str, ChannelPlan]) -> tuple[str, ...]:
    """Name what marks the batches of an element whose region is cut by its start: sources, or roots of channels."""
    if region is None or not region.terms.marks:
        return ()
    if not inlets:
        return tuple(sorted(source.name for source in part.of_kind(Source)))
    return tuple(sorted({channel.root for channel in inlets.values() if channel.marks}))


def _read_beside(graph: Graph, entry: Intake) -> frozenset[str]:
    """Return the columns of an entry that the stage itself reads."""
    operator = graph.producer(entry.name)
    position = operator.position if isinstance(operator, Source) else None
    return frozenset(c for c in (*(entry.key or ()), entry.ordering, entry.tick, position) if c is not None)


def _inlet(graph: Graph, stream: str, channel: ChannelPlan) -> Inlet:
    made_by = graph.producer(stream)
    return Inlet(name=stream, location=made_by.location, ports=(), schema=channel.schema, tick=made_by.tick)


def _outlet(graph: Graph, stream: str, channels: tuple[ChannelPlan, ...]) -> Outlet:
    columns = {name for channel in channels for name in channel.schema.names}
    producer = graph.producer(stream)
    schema = pa.schema([f for f in producer.schema_of(stream) if f.name in columns])
    return Outlet(name=f"to:{stream}", location=producer.location, ports=((stream,),), schema=schema)


def _bare(operator: Operator, region: Region | None) -> Operator:
    """Leave out what only the driver uses, such as callbacks: the plan travels to every task."""
    if operator.recording is not None:
        settled = Settled(saved=None, kept=True, recorded=operator.recording)
        operator = dataclasses.replace(operator, protect=settled)
    elif region is not None and operator.name in region.operators:
        settled = Settled(saved=region.terms.saving, kept=region.terms.survives("host"))
        operator = dataclasses.replace(operator, protect=settled)
    elif operator.protect is not None:
        settled = Settled(saved=operator.saving, kept=operator.replays)
        operator = dataclasses.replace(operator, protect=settled)
    return operator.bare()
