"""The output of a real run over time, to be drawn beside a predicted one (figure 5.15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.operators.sink import Sink
from riprap.operators.source import Source


def output_over_time(
    graph: Graph, metrics: Sequence[Mapping[str, Any]], rate: float
) -> list[tuple[float, float]]:
    """Return for each batch of a run when it ended, and the tuples a second at the sinks, if ``rate`` came in.

    A run that reads a feed as fast as it can shows no times of its own, so tuples of the source are its clock.

    >>> graph = Graph("two", ())
    >>> output_over_time(graph, [], 100.0)
    Traceback (most recent call last):
    riprap.errors.ModelError: the run has no batch that shows what its sources and sinks did
    """
    sources = {s.name for s in graph.of_kind(Source) if s.tick is None}
    sinks = {s.name for s in graph.of_kind(Sink)}
    came = 0.0
    points = []
    # Elements take the same batches; what one did is added to what the others did with the same number.
    batches: dict[int, list[float]] = {}
    for line in metrics:
        if line["repeated"]:
            continue
        counts = batches.setdefault(line["batch"], [0.0, 0.0])
        for name, each in line["operators"].items():
            counts[0] += each["in"] if name in sources else 0
            counts[1] += each["in"] if name in sinks else 0
    for _, (rows, results) in sorted(batches.items()):
        if rows > 0:
            came += rows
            points.append((came / rate, results * rate / rows))
    if not points:
        raise ModelError("the run has no batch that shows what its sources and sinks did")
    return points
