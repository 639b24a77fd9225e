"""The same application with a policy on its sources: whether a region starts there is nothing the applications ask."""

from __future__ import annotations

from dataclasses import replace

from riprap.graph.graph import Graph
from riprap.operators.source import Source
from riprap.protection import Policy


def protected(graph: Graph, policy: Policy | None) -> Graph:
    """Return a graph whose sources have a policy, or the graph as it is.

    >>> import riprap as rr
    >>> app = rr.Application("demo")
    >>> app.sink("out", app.source("words", rr.rows([], "word string")), rr.memory())
    >>> protected(app.graph(), rr.consistent(period="2s"))["words"].protect
    Consistent(period=2.0)
    """
    if policy is None:
        return graph
    operators = (replace(o, protect=policy) if isinstance(o, Source) else o for o in graph)
    return replace(graph, operators=tuple(operators))
