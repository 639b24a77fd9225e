"""What becomes of state when a run is taken up again with an application that has changed.

    operator         state
    unchanged        is taken up
    new              begins empty
    changed, gone    cannot be taken up; whoever starts the run says that it may go: by name, or all state at once

Processing elements and the channels between them must be as they were: their logs cannot be read otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from riprap.compiler import Layout, Plan, compile_graph, describe_state
from riprap.errors import RunError
from riprap.graph.graph import Graph
from riprap.operators.channel import Inlet, Outlet
from riprap.runtime.checkpointing.recovery import FRESH, wish
from riprap.runtime.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to become of a run's state: which of it goes, and how it is cut up from then on.

    ``dropped`` says of operators in which elements they have state: several, if they have replicas.
    """

    folder: RunFolder
    dropped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Sequence[str] = ()
    layout: Mapping[str, Any] | None = None

    def make(self) -> None:
        """Make the changes. Not before Spark is there: a run that does not start is to be as it was."""
        for name, elements in self.dropped.items():
            for element in elements:
                wish(self.folder.path / "elements" / element, name, FRESH)
        for name in self.gone:
            what = f"'{name}' is not in the application any more"
            self.folder.event("state lost", operator=name, message=what)
        if self.layout is not None:
            self.folder.replace_state_layout(self.layout)


def accept_changes(
    folder: RunFolder, graph: Graph, *, ignore_state: Collection[str] = (), fresh: bool = False
) -> Changes:
    """Let a run be taken up by a graph that is not the one it began with, as far as that is asked for."""
    recorded = folder.state_layout()
    if recorded is None:
        return Changes(folder)
    before, now = recorded["operators"], describe_state(graph)
    _check_names(ignore_state, before, now)
    changed = sorted(n for n in before.keys() & now.keys() if before[n] != now[n])
    gone = sorted(before.keys() - now.keys())
    refused = [name for name in (*changed, *gone) if name not in ignore_state and not fresh]
    if refused:
        raise RunError(_explain(folder, before, now, refused))
    layout = compile_graph(graph, buckets=1, tasks=1)
    elements = elements_of(layout)
    ends = {name for name, text in before.items() if name in gone} | (now.keys() - before.keys())
    if _without(recorded["elements"], ends) != _without(elements, ends):
        # The layout of the run says so, with both sides of it.
        return Changes(folder)
    homes = {name: [p.name for p in layout.plans if _keeps(p, name)] for name in now}
    dropped = sorted(now) if fresh else [name for name in ignore_state if name in now]
    return Changes(
        folder,
        {name: homes[name] for name in dropped},
        gone,
        {**recorded, "operators": now, "elements": elements},
    )


def elements_of(layout: Layout) -> dict[str, list[str]]:
    """Name what each processing element keeps on disk: state, and streams that come in or leave."""
    return {
        plan.name: [o.name for o in plan.graph if o.stateful or isinstance(o, Inlet | Outlet)]
        for plan in layout.plans
    }


def _keeps(plan: Plan, operator: str) -> bool:
    # An inlet has the name of the operator whose stream it is.
    return any(o.stateful for o in plan.graph if o.name == operator)


def _without(elements: Mapping[str, Sequence[str]], names: Collection[str]) -> dict[str, list[str]]:
    return {element: sorted(set(listed) - set(names)) for element, listed in elements.items()}


def _check_names(ignore_state: Collection[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in ignore_state:
        if name not in before and name not in now:
            names = ", ".join(sorted({*before, *now})) or "none"
            raise RunError(
                f"--ignore-state {name}: there is no operator of that name with state. There are: {names}"
            )


def _explain(
    folder: RunFolder, before: Mapping[str, str], now: Mapping[str, str], refused: Sequence[str]
) -> str:
    lines = [
        f"  '{name}' has changed: {before[name]} there, {now[name]} here"
        if name in now
        else f"  '{name}' is gone: {before[name]}"
        for name in refused
    ]
    options = " ".join(f"--ignore-state {name}" for name in refused)
    return "\n".join(
        [
            f"the run in {folder.path} has state that this application cannot take up:",
            *lines,
            f"Take it up with the application it was started with; or let that state go with {options} (in Python: "
            "ignore_state=[...]), all state with --fresh (fresh=True)",
        ]
    )
