"""What holds of each sink's results after a loss: exactly once, at least once, or less, and why.

Replicas that run on one host have their memory there together, so that for them its loss is as without replicas. Where
they are on several hosts, the state of their operators outlives the loss of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from riprap.graph.connectors.promise import SINK_WORDS
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.graph.regions import Region, region_by_operator
from riprap.graph.replicas import ReplicaGroup
from riprap.protection import LOSSES, Losable


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What a sink's results are after a loss, beside those of a run that lost nothing.

    Some may be ``missing``, some ``repeated``, others ``differing``; ``why`` says what makes it so. ``of`` names what
    that is said of, where it is not all that came in: a region answers for what enters it.
    """

    missing: bool = False
    repeated: bool = False
    differing: bool = False
    why: tuple[str, ...] = ()
    of: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What holds, in a word or two."""
        if self.differing:
            return "approximately"
        if self.missing:
            return "best effort" if self.repeated else "at most once"
        return "at least once" if self.repeated else "exactly once"

    def __str__(self) -> str:
        of = f", of what {' and '.join(self.of)}" if self.of else ""
        return f"{self.word}{of}" + (f" ({'; '.join(self.why)})" if self.why else "")


def guarantees(graph: Graph) -> dict[str, dict[Losable, Guarantee]]:
    """Say for each sink what holds after each loss.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> app.sink("out", words, rr.csv("words"))
    >>> for loss, guarantee in guarantees(app.graph())["out"].items():
    ...     print(f"{loss}: {guarantee}")
    process: exactly once
    host: at most once (results that are not published yet are lost)
    power: at most once (results that are not published yet are lost)
    """
    regions = region_by_operator(graph)
    return {
        o.name: {loss: _guarantee(graph, regions, o, loss) for loss in LOSSES} for o in graph if not o.outputs
    }


def describe_guarantees(graph: Graph) -> Iterator[str]:
    """Say in a line for each sink what holds after which loss."""
    for sink, held in guarantees(graph).items():
        parts = []
        for guarantee, losses in groupby(held, key=lambda loss: held[loss]):
            *most, last = (LOSSES[loss] for loss in losses)
            lost = f"{', '.join(most)} or {last}" if most else last
            parts.append(f"after the loss of {lost}: {guarantee}")
        yield f"{sink}: {'; '.join(parts)}"


def _guarantee(graph: Graph, regions: Mapping[str, Region], sink: Operator, loss: Losable) -> Guarantee:
    surviving = {name: region for name, region in regions.items() if region.terms.survives(loss)}
    behind, entering = _behind(graph, surviving, sink)
    exposed = [o for o in graph if o.name in behind and o.name not in surviving]
    unread = [o.name for o in graph if o.name in behind and o.promise == "forgets" and not o.ports]
    of = (*(f"'{name}' puts out" for name in entering), *(f"'{name}' has read" for name in unread))
    missing, differing, why = False, False, []
    for region in dict.fromkeys(regions[o.name].name for o in exposed if o.name in regions):
        durable = regions[region].terms.durable
        why.append(f"region '{region}' has durable='{durable}', and need not survive it")
        missing = differing = True
    unprotected = [o for o in exposed if o.name not in regions]
    for part in (
        _passed_over(graph, unprotected),
        _failed_over(graph, unprotected),
        *(() if loss == "process" else (_forgotten(unprotected, _elsewhere_too(graph, loss)),)),
    ):
        missing, differing, why = missing or part.missing, differing or part.differing, [*why, *part.why]
    unordered = [o for o in unprotected if not o.ports and o.unrepeatable is not None]
    why += [f"'{o.name}': {(o.unrepeatable or ('',))[0]}" for o in unordered]
    repeated = sink.promise == "repeats"
    return Guarantee(
        missing=missing,
        repeated=repeated,
        differing=differing or bool(unordered),
        why=(*why, *((SINK_WORDS["repeats"],) if repeated else ())),
        of=of,
    )


def _behind(
    graph: Graph, surviving: Mapping[str, Region], sink: Operator
) -> tuple[set[str], tuple[str, ...]]:
    """Find what a sink's results depend on, the sink included, and what enters a region on the way: no further."""
    behind, waiting = {sink.name}, [sink]
    entering: dict[str, None] = {}
    while waiting:
        operator = waiting.pop()
        for producer in (graph.producer(stream) for stream in (*operator.inputs, *operator.control)):
            if operator.name in surviving and producer.name not in surviving[operator.name].operators:
                if producer.tick is None:
                    entering[producer.name] = None
            elif producer.name not in behind:
                behind.add(producer.name)
                waiting.append(producer)
    return behind, tuple(o.name for o in graph if o.name in entering)


def _passed_over(graph: Graph, unprotected: list[Operator]) -> Guarantee:
    """Say what becomes of what comes while an element is down that restarts live."""
    live = {o.name: graph.places[o.name] for o in unprotected if _restarts_live(graph, o)}
    if not live:
        return Guarantee()
    below = graph.fold(lambda o, before: o.name in live or any(before))
    places = " and ".join(f"'{place}'" for place in dict.fromkeys(live.values()))
    return Guarantee(
        missing=True,
        differing=any(o.stateful and below[o.name] for o in unprotected),
        why=(f"what comes while {places} is down is passed over",),
    )


def _restarts_live(graph: Graph, operator: Operator) -> bool:
    return graph.restarts.get(graph.places.get(operator.name, ""), "resume") == "live"


def _failed_over(graph: Graph, unprotected: list[Operator]) -> Guarantee:
    """Say what becomes of results of replicas whose readers go on from where another is."""
    exposed = {o.name for o in unprotected}
    groups = [g for g in graph.groups if not g.compared and not exposed.isdisjoint(g.operators)]
    if not groups:
        return Guarantee()
    inside = {name for group in groups for name in group.operators}
    below = graph.fold(lambda o, before: o.name in inside or any(before))
    empty = [g for g in groups if g.back == "empty" and any(graph[name].stateful for name in g.operators)]
    why = [f"results of {_listed(groups)} between one replica and the next are lost"]
    if empty:
        why.append(f"a replica of {_listed(empty)} comes back with empty state")
    return Guarantee(
        missing=True,
        differing=bool(empty)
        or any(o.stateful and below[o.name] and o.name not in inside for o in unprotected),
        why=tuple(why),
    )


def _listed(groups: list[ReplicaGroup]) -> str:
    return " and ".join(f"'{group.name}'" for group in groups)


def _elsewhere_too(graph: Graph, loss: Losable) -> set[str]:
    """Name the operators whose state a replica on another host has as well."""
    apart = [group for group in graph.groups if loss == "host" and len(set(group.hosts)) > 1]
    return {name for group in apart for name in group.operators}


def _forgotten(unprotected: list[Operator], elsewhere: Collection[str]) -> Guarantee:
    """Say what becomes of what was in memory only; of what is ``elsewhere`` too the state is not lost."""
    if not unprotected:
        return Guarantee()
    why = ["results that are not published yet are lost"]
    lost = [o for o in unprotected if o.stateful and not o.replays and o.name not in elsewhere]
    afresh = [f"'{o.name}'" for o in lost if o.saving is None]
    older = [f"'{o.name}'" for o in lost if o.saving is not None]
    if afresh:
        why.append(f"the state of {', '.join(afresh)} starts afresh")
    if older:
        why.append(f"the state of {', '.join(older)} is as of the last checkpoint")
    return Guarantee(missing=True, differing=bool(lost), why=tuple(why))
