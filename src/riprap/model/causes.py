"""What makes an operator put out tuples: those of its ports, time or punctuations; and what of it no run tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from riprap.graph.graph import Graph
from riprap.graph.operators import Aggregate, Custom, Join, Operator, Sink, Sort, Source
from riprap.graph.windows import Every
from riprap.model.profile import OperatorProfile

KEPT = "state as it was kept at the end, which may be more than is in use, or still grow"
UNFITTED = "alpha and beta are not measured; fit them with `riprap fit`"
_MICROSECONDS = 1_000_000


def speaks(operator: Operator, port: int) -> bool:
    """Say whether a port's tuples can bring results about: one of a join that meets an empty window cannot."""
    return not (isinstance(operator, Join) and operator.windows[1 - port].empty)


def period_of(operator: Operator) -> float | None:
    """Return every how many seconds an operator puts out, if time alone makes it do so."""
    if isinstance(operator, Aggregate) and isinstance(operator.emit, Every):
        return operator.emit.time / _MICROSECONDS if operator.emit.time is not None else None
    if isinstance(operator, Aggregate | Sort) and operator.window.shape == "tumbling":
        return operator.window.time / _MICROSECONDS if operator.window.time is not None else None
    return None


def answers_punctuation(operator: Operator) -> bool:
    """Say whether punctuations alone make an operator put out."""
    return isinstance(operator, Aggregate | Sort) and operator.window.punctuation


def unmeasured(
    graph: Graph, operators: Mapping[str, OperatorProfile], marked: Collection[str] = ()
) -> Iterator[str]:
    """Say in words what a profile has that the run did not tell; ``marked`` operators had punctuations come in."""
    shared = [o.name for o in graph if o.outputs and sum(speaks(o, p) for p in range(len(o.ports))) > 1]
    if shared:
        yield f"{', '.join(shared)}: what came out is shared among the ports in proportion to what came in"
    if any(len(o.ports) > 1 for o in graph):
        yield "time: the same for every port of an operator"
    sources, sinks = (", ".join(o.name for o in graph.of_kind(kind)) for kind in (Source, Sink))
    yield f"{sources}: time to read tuples and put them in order; {sinks}: without what is written in the background"
    if any(period_of(o) is not None for o in graph):
        yield "ticked: on average, of all that came out, at the rates above"
    for custom in graph.of_kind(Custom):
        if custom.clock is not None:
            yield f"{custom.name}: what it puts out at ticks is counted as if its tuples made it"
        if custom.heeds and custom.name in marked:
            yield f"{custom.name}: what it puts out at punctuations is counted as if its tuples made it"
    for join in graph.of_kind(Join):
        if join.outer != "inner":
            yield f"{join.name}: unmatched tuples are counted as if they came out as they came in"
    stateful = [name for name, each in operators.items() if each.stateful]
    if stateful:
        names = ", ".join(stateful)
        yield f"{names}: {KEPT}"
        yield f"{names}: {UNFITTED}"
    yield "alpha_tainted, shift and filling: as usual"
