"""Where faults need be injected: only at operators at which they do something that those at others do not.

A fault at an operator that is no target does what one at the target before it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from riprap.compiler import Layout, compile_graph
from riprap.errors import GraphError
from riprap.faults.campaign import Campaign, Targets
from riprap.graph.faults import Crash, FaultModel
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.graph.replicas import group_by_operator
from riprap.operators.channel import Inlet
from riprap.operators.faulty import Faulty
from riprap.operators.sink import Sink
from riprap.operators.source import Source


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """An operator at which to inject faults, why, and which others it stands for."""

    name: str
    why: str
    stands_for: tuple[str, ...] = ()


def find_targets(graph: Graph, sink: str, model: FaultModel | Crash | None = None) -> tuple[FaultTarget, ...]:
    """Choose the targets of a model of faults for a sink: every source, then what the paper's rules tell apart.

    A crash also changes what operators hold, so those that hold anything are told apart; and so are those in a replica
    group from those outside, where its replicas take over. What is corrupted may be changed by any operator, so it is
    corrupted in front of each that reads the column.
    """
    if sink not in {s.name for s in graph.of_kind(Sink)}:
        sinks = ", ".join(s.name for s in graph.of_kind(Sink))
        raise GraphError(f"there is no sink '{sink}'; there are: {sinks}")
    leading = _leading_to(graph, sink)
    if isinstance(model, FaultModel) and model.changes:
        return tuple(_changing(graph, model.changes, leading))
    groups = {name: group.name for name, group in group_by_operator(graph).items()}
    chosen: dict[str, str] = {}
    stand_in: dict[str, str] = {}
    for operator in _breadth_first(graph, leading):
        if operator.tick is not None:
            continue
        why = _why(graph, operator, leading, stateful=isinstance(model, Crash))
        before = [b.name for b in graph.before(operator) if b.name in stand_in]
        if why is None and before and isinstance(model, Crash) and model.protection == "own":
            why = _why_apart(operator, before[0], groups)
        if why is not None or not before:
            chosen[operator.name] = why or "a source"
            stand_in[operator.name] = operator.name
        else:
            stand_in[operator.name] = stand_in[before[0]]
    return tuple(
        FaultTarget(name, why, tuple(o for o, by in stand_in.items() if by == name and o != name))
        for name, why in chosen.items()
    )


def _changing(graph: Graph, columns: Sequence[str], leading: set[str]) -> Iterator[FaultTarget]:
    for operator in _breadth_first(graph, leading):
        if isinstance(operator, Sink) or operator.tick is not None:
            continue
        streams = [s for port in operator.ports for s in port] or [operator.name]
        changed = [c for c in columns if any(c in graph.schema_of(s).names for s in streams)]
        if changed:
            yield FaultTarget(operator.name, f"has {', '.join(changed)} to be corrupted")


def place(graph: Graph, campaign: Campaign) -> tuple[Campaign, dict[str, tuple[FaultTarget, ...]]]:
    """Return a campaign with the targets of each model, and why each is one.

    They are chosen by the rules of placement unless the campaign names some; "pe:NAME" is all operators of a processing
    element.
    """
    if campaign.sink not in {s.name for s in graph.of_kind(Sink)}:
        sinks = ", ".join(s.name for s in graph.of_kind(Sink))
        raise GraphError(f"there is no sink '{campaign.sink}' to score; there are: {sinks}")
    if campaign.targets:
        named = tuple(_named(graph, targets) for targets in campaign.targets)
        if len(set(named)) < len(named):
            raise GraphError("targets: one of them is there twice")
        chosen = {
            m: tuple(FaultTarget("+".join(t), "named by the campaign") for t in named)
            for m in campaign.models
        }
        return replace(campaign, targets=named, placed=dict.fromkeys(campaign.models, named)), chosen
    chosen = {name: find_targets(graph, campaign.sink, model) for name, model in campaign.models.items()}
    for name, targets in chosen.items():
        if not targets:
            raise GraphError(
                f"model '{name}': no operator that leads to '{campaign.sink}' has what it is about"
            )
    placed = {name: tuple((t.name,) for t in targets) for name, targets in chosen.items()}
    everywhere = tuple(dict.fromkeys(t for targets in placed.values() for t in targets))
    return replace(campaign, targets=everywhere, placed=placed), chosen


def _named(graph: Graph, targets: Targets) -> Targets:
    operators = {o.name: o for o in graph if not isinstance(o, Sink)}
    if len(targets) == 1 and targets[0].startswith("pe:"):
        plans = {plan.name: plan for plan in compile_graph(unprotected(graph), buckets=1, tasks=1).plans}
        plan = plans.get(targets[0].removeprefix("pe:"))
        if plan is None:
            names = ", ".join(plans)
            raise GraphError(f"there is no processing element for target '{targets[0]}'; there are: {names}")
        return tuple(o.name for o in plan.graph if o.name in operators and not isinstance(o, Inlet))
    for name in targets:
        if name not in operators:
            names = ", ".join(sorted(operators))
            raise GraphError(f"there is no operator '{name}' to inject faults at; there are: {names}")
        operator = operators[name]
        if operator.tick is not None:
            raise GraphError(
                f"'{name}' is a clock: its ticks go to every operator that hears it, and are not tuples"
            )
    return targets


def unprotected(graph: Graph) -> Graph:
    """Return a graph without policies and replicas: what they would do is worked out, not run."""
    bare = tuple(replace(o, protect=None) if o.protect else o for o in graph)
    return replace(graph.without_replicas, operators=bare)


def check_changes(campaign: Campaign, layout: Layout) -> None:
    """Refuse to change values that a trial cannot."""
    for name, model in campaign.models.items():
        if isinstance(model, Crash):
            continue
        for plan in layout.plans:
            for woven in plan.graph.of_kind(Faulty):
                here = (woven.target,) in campaign.placed[name] and woven.role == "fault"
                for column in (c for c in model.changes if here and c in woven.schema.names):
                    why_not = model.why_not(woven.schema.field(column))
                    if why_not is not None:
                        raise GraphError(f"model '{name}': {why_not}")
                    if any(column in (entry.key or ()) for entry in plan.entries):
                        raise GraphError(
                            f"model '{name}': at '{woven.target}' {column} is what tuples are dealt out and kept by, "
                            "and a trial does not send them elsewhere. Corrupt another column, or name other targets"
                        )


def _leading_to(graph: Graph, sink: str) -> set[str]:
    reaches = graph.fold(lambda o, after: o.name == sink or any(after), upward=True)
    return {name for name, does in reaches.items() if does}


def _breadth_first(graph: Graph, leading: set[str]) -> list[Operator]:
    """List the operators that lead to a sink, each after those it reads from, level by level."""
    waiting: deque[Operator] = deque(s for s in graph.of_kind(Source) if s.name in leading)
    seen: dict[str, Operator] = {}
    while waiting:
        operator = waiting.popleft()
        if operator.name in seen or any(b.name not in seen for b in graph.before(operator)):
            continue
        seen[operator.name] = operator
        waiting.extend(o for o in graph.after(operator) if o.name in leading)
    return list(seen.values())


def _why_apart(operator: Operator, before: str, groups: Mapping[str, str]) -> str | None:
    group, other = groups.get(operator.name), groups.get(before)
    if group == other or isinstance(operator, Sink):
        return None
    if group is not None:
        return f"it is in replica group '{group}', and '{before}' before it is not"
    return f"'{before}' before it is in replica group '{other}'"


def _why(graph: Graph, operator: Operator, leading: set[str], *, stateful: bool) -> str | None:
    if isinstance(operator, Source):
        return "a source"
    if isinstance(operator, Sink):
        return None
    before = [b for b in graph.before(operator) if b.tick is None]
    if len({s for port in operator.ports for s in port}) > 1:
        return "several streams come in"
    shared = [b.name for b in before if len([o for o in graph.after(b) if o.name in leading]) > 1]
    if shared:
        return f"others read from '{shared[0]}' too"
    held = [b.name for b in before if b.stateful]
    if held:
        return f"'{held[0]}' before it keeps state"
    if stateful and operator.stateful:
        return "it keeps state, which a crash changes"
    return None
