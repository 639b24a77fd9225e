"""How long the application takes through the streaming runtime, to compare with replaying in memory."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from riprap.graph.connectors import Files, Rows, memory
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.sink import Sink
from riprap.operators.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def streaming_seconds(graph: Graph, session: SparkSession) -> float:
    """Run an application once, as fast as it goes and with its output in memory, and return how long that took."""
    from riprap.runtime.start import run

    with tempfile.TemporaryDirectory(prefix="riprap-sample-") as runs:
        began = time.perf_counter()
        with run(harmless(graph), RunOptions(spark=session, runs=runs)) as running:
            running.wait()
        return time.perf_counter() - began


def harmless(graph: Graph) -> Graph:
    """Return a graph that writes nowhere, and reads as fast as it can."""
    operators = []
    for operator in graph:
        if isinstance(operator, Sink):
            operator = replace(operator, connector=memory())
        elif isinstance(operator, Source) and isinstance(operator.connector, Files | Rows):
            operator = replace(operator, connector=replace(operator.connector, rate=None))
        operators.append(operator)
    return replace(graph, operators=tuple(operators))
