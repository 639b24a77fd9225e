"""Another order in which streams meet: non-determinism, seeded."""

from __future__ import annotations

from dataclasses import replace

from riprap.compiler import compile_graph
from riprap.compiler.weaving import give, weave
from riprap.errors import GraphError
from riprap.faults.models import Lag
from riprap.graph.faults import Fault
from riprap.graph.graph import Graph
from riprap.operators.faulty import Faulty

_BEHIND = "behind_lags"


def meeting(graph: Graph) -> list[str]:
    """Name the operators at which several streams meet."""
    return [o.name for o in graph if len({s for port in o.ports for s in port}) > 1]


def lags_of(graph: Graph) -> list[Fault]:
    """Return the lags that streams of a graph have, those that a tuple passes first before others."""
    return [o.fault for o in graph.of_kind(Faulty) if o.role == "lag" and o.fault is not None]


def weave_lags(graph: Graph) -> Graph:
    """Let streams that meet be able to lag."""
    return weave(graph, meeting(graph), deep=True, role="lag")


def set_apart(graph: Graph) -> Graph:
    """Put what is behind lags into a processing element of its own, where that can be had.

    Then what is before it is the same for every seed.
    """
    if (
        graph.places
        or any(o.control for o in graph)
        or not any(o.role == "lag" for o in graph.of_kind(Faulty))
    ):
        return graph
    behind = graph.fold(lambda o, before: any(before) or (isinstance(o, Faulty) and o.role == "lag"))
    places = {name: _BEHIND for name, is_behind in behind.items() if is_behind}
    apart = replace(graph, places=places)
    try:
        compile_graph(apart, buckets=1, tasks=1)
    except GraphError:
        # Not all of it has one key.
        return graph
    return apart


def interleave(graph: Graph, *, distance: int, knots: tuple[int, ...], seed: int) -> Graph:
    """Let every stream that meets another lag by up to so many positions, in a way of its own for each seed.

    At the ``knots`` none does: where blocks end nothing is on its way.
    """
    woven = [o for o in graph.of_kind(Faulty) if o.role == "lag"]
    faults: dict[str, dict[str, Fault]] = {}
    for number, operator in enumerate(woven):
        lag = Fault(model=Lag(distance=distance, knots=knots), seed=seed * len(woven) + number)
        faults.setdefault(operator.target, {})[operator.stream] = lag
    return give(graph, faults, role="lag")
