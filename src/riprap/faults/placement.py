"""Where faults need be injected: only at operators at which they do something that those at others do not.

A fault at an operator that is no target does what one at the target before it does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from riprap.errors import GraphError
from riprap.graph.graph import Graph
from riprap.graph.operators import Operator, Sink, Source


@dataclass(frozen=True, slots=True)
class Target:
    """An operator at which to inject faults, why, and which others it stands for."""

    name: str
    why: str
    stands_for: tuple[str, ...] = ()


def find_targets(graph: Graph, sink: str, *, stateful: bool = False) -> tuple[Target, ...]:
    """Choose the targets for a sink: every source, then breadth first whatever is told apart by the paper's rules.

    With ``stateful``, for faults that change what operators hold, those that hold anything too.
    """
    if sink not in {s.name for s in graph.of_kind(Sink)}:
        there = ", ".join(s.name for s in graph.of_kind(Sink))
        raise GraphError(f"there is no sink '{sink}'; there are: {there}")
    mine = _leading_to(graph, sink)
    chosen: dict[str, str] = {}
    stand_in: dict[str, str] = {}
    for operator in _breadth_first(graph, mine):
        why = _why(graph, operator, mine, stateful=stateful)
        if why is not None:
            chosen[operator.name] = why
            stand_in[operator.name] = operator.name
        else:
            stand_in[operator.name] = stand_in[graph.before(operator)[0].name]
    return tuple(
        Target(name, why, tuple(o for o, by in stand_in.items() if by == name and o != name))
        for name, why in chosen.items()
    )


def _leading_to(graph: Graph, sink: str) -> set[str]:
    reaches = graph.fold(lambda o, after: o.name == sink or any(after), upward=True)
    return {name for name, does in reaches.items() if does}


def _breadth_first(graph: Graph, mine: set[str]) -> list[Operator]:
    """List the operators that lead to a sink, each after those it reads from, level by level."""
    waiting = deque(s for s in graph.of_kind(Source) if s.name in mine)
    seen: dict[str, Operator] = {}
    while waiting:
        operator = waiting.popleft()
        if operator.name in seen or any(b.name not in seen for b in graph.before(operator)):
            continue
        seen[operator.name] = operator
        waiting.extend(o for o in graph.after(operator) if o.name in mine)
    return list(seen.values())


def _why(graph: Graph, operator: Operator, mine: set[str], *, stateful: bool) -> str | None:
    if isinstance(operator, Source):
        return None if operator.tick is not None else "a source"
    if isinstance(operator, Sink):
        return None
    before = [b for b in graph.before(operator) if not (isinstance(b, Source) and b.tick is not None)]
    if len({s for port in operator.ports for s in port}) > 1:
        return "several streams come in"
    shared = [b.name for b in before if len([o for o in graph.after(b) if o.name in mine]) > 1]
    if shared:
        return f"others read from '{shared[0]}' too"
    held = [b.name for b in before if b.stateful]
    if held:
        return f"'{held[0]}' before it keeps state"
    if stateful and operator.stateful:
        return "it keeps state, which a crash changes"
    return None
