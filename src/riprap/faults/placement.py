"""Where faults need be injected: only at operators at which they do something that those at others do not.

A fault at an operator that is no target does what one at the target before it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from riprap.errors import GraphError
from riprap.graph.faults import Corruption, Crash, Model
from riprap.graph.graph import Graph
from riprap.graph.operators import Operator, Sink, Source


@dataclass(frozen=True, slots=True)
class Target:
    """An operator at which to inject faults, why, and which others it stands for."""

    name: str
    why: str
    stands_for: tuple[str, ...] = ()


def find_targets(graph: Graph, sink: str, model: Model | Crash | None = None) -> tuple[Target, ...]:
    """Choose the targets of a model of faults for a sink: every source, then what the paper's rules tell apart.

    A crash also changes what operators hold, so those that hold anything are told apart. What is corrupted may be
    changed by any operator, so it is corrupted in front of each that reads the column.
    """
    if sink not in {s.name for s in graph.of_kind(Sink)}:
        there = ", ".join(s.name for s in graph.of_kind(Sink))
        raise GraphError(f"there is no sink '{sink}'; there are: {there}")
    mine = _leading_to(graph, sink)
    if isinstance(model, Corruption):
        return tuple(_corruptible(graph, model, mine))
    chosen: dict[str, str] = {}
    stand_in: dict[str, str] = {}
    for operator in _breadth_first(graph, mine):
        if isinstance(operator, Source) and operator.tick is not None:
            continue
        why = _why(graph, operator, mine, stateful=isinstance(model, Crash))
        before = [b.name for b in graph.before(operator) if b.name in stand_in]
        if why is not None or not before:
            chosen[operator.name] = why or "a source"
            stand_in[operator.name] = operator.name
        else:
            stand_in[operator.name] = stand_in[before[0]]
    return tuple(
        Target(name, why, tuple(o for o, by in stand_in.items() if by == name and o != name))
        for name, why in chosen.items()
    )


def _corruptible(graph: Graph, model: Corruption, mine: set[str]) -> Iterator[Target]:
    for operator in _breadth_first(graph, mine):
        if isinstance(operator, Sink) or (isinstance(operator, Source) and operator.tick is not None):
            continue
        streams = [s for port in operator.ports for s in port] or [operator.name]
        there = [c for c in model.columns if any(c in graph.schema_of(s).names for s in streams)]
        if there:
            yield Target(operator.name, f"has {', '.join(there)} to be corrupted")


def _leading_to(graph: Graph, sink: str) -> set[str]:
    reaches = graph.fold(lambda o, after: o.name == sink or any(after), upward=True)
    return {name for name, does in reaches.items() if does}


def _breadth_first(graph: Graph, mine: set[str]) -> list[Operator]:
    """List the operators that lead to a sink, each after those it reads from, level by level."""
    waiting: deque[Operator] = deque(s for s in graph.of_kind(Source) if s.name in mine)
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
        return "a source"
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
