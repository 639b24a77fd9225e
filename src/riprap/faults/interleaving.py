"""Another order in which streams meet: non-determinism, seeded."""

from __future__ import annotations

from riprap.compiler.weaving import give, weave
from riprap.graph.faults import Fault, Lag
from riprap.graph.graph import Graph
from riprap.graph.operators import Faulty


def meeting(graph: Graph) -> list[str]:
    """Name the operators at which several streams meet."""
    return [o.name for o in graph if len({s for port in o.ports for s in port}) > 1]


def lags_of(graph: Graph) -> list[Fault]:
    """Return the lags that streams of a graph have, those that a tuple passes first before others."""
    return [o.fault for o in graph.of_kind(Faulty) if o.role == "lag" and o.fault is not None]


def weave_lags(graph: Graph) -> Graph:
    """Let streams that meet be able to lag."""
    return weave(graph, meeting(graph), deep=True, role="lag")


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
