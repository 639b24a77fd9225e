"""What of a profile no run tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from riprap.graph.graph import Graph
from riprap.model.profile import OperatorProfile
from riprap.operators.sink import Sink
from riprap.operators.source import Source

KEPT = "state as it was kept at the end, which may be more than is in use, or still grow"
UNFITTED = "alpha and beta are not measured; fit them with `riprap fit`"


def unmeasured(
    graph: Graph, operators: Mapping[str, OperatorProfile], marked: Collection[str] = ()
) -> Iterator[str]:
    """Say in words what a profile has that the run did not tell; ``marked`` operators had punctuations come in."""
    shared = [o.name for o in graph if o.outputs and sum(o.brings_about(p) for p in range(len(o.ports))) > 1]
    if shared:
        yield f"{', '.join(shared)}: what came out is shared among the ports in proportion to what came in"
    if any(len(o.ports) > 1 for o in graph):
        yield "time: the same for every port of an operator"
    sources, sinks = (", ".join(o.name for o in graph.of_kind(kind)) for kind in (Source, Sink))
    yield f"{sources}: time to read tuples and put them in order; {sinks}: without what is written in the background"
    if any(o.period is not None for o in graph):
        yield "ticked: on average, of all that came out, at the rates above"
    for operator in graph:
        yield from operator.unmeasured(marked=operator.name in marked)
    stateful = [name for name, each in operators.items() if each.stateful]
    if stateful:
        names = ", ".join(stateful)
        yield f"{names}: {KEPT}"
        yield f"{names}: {UNFITTED}"
    yield "alpha_tainted, shift and filling: as usual"
