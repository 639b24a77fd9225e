"""Show an application's graph, what each pass of the compiler makes of it, and its processing elements."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from riprap.cli.applications import add_application, application_of, positive
from riprap.cli.screen import Screen, new_table, shown
from riprap.compiler import Layout, compile_graph, without_copies
from riprap.compiler import explain as explain_passes
from riprap.expressions import type_name
from riprap.graph.graph import Graph
from riprap.graph.guarantees import guarantees
from riprap.graph.operator import Operator
from riprap.graph.regions import regions_of, why_autonomous
from riprap.graph.replicas import ReplicaGroup
from riprap.operators.channel import Inlet, Outlet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riprap.graph.graph import Graph


import io
import tempfile

SUMMARY = "show an application's graph and what the compiler makes of it"
EXAMPLES = """\
examples:
  riprap explain bargain                     the graph, the compiler's passes, the processing elements
  riprap explain bargain --svg graph.svg     a drawing for a browser
  riprap explain app.py:app --spark          with the plan Spark makes of it (starts Spark: some seconds)
  riprap explain app.py:app --json           for a script
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_application(parser)
    group = parser.add_argument_group("what to show")
    group.add_argument("--svg", type=Path, metavar="FILE", help="write a drawing of the graph to FILE")
    group.add_argument("--spark", action="store_true", help="show Spark's plan too; this starts Spark")
    group.add_argument("--master", metavar="URL", help="Spark's master (default: this machine)")
    group.add_argument("--buckets", type=positive, metavar="N", help="key buckets")
    group.add_argument("--parallelism", type=positive, metavar="N", help="tasks a batch (default: the cores)")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show the application."""
    from riprap.drawing import draw_svg

    graph = application_of(arguments, needs_feed=False).graph()
    tasks = arguments.parallelism or os.cpu_count() or 1
    layout = compile_graph(graph, buckets=arguments.buckets or max(8, 2 * tasks), tasks=tasks)
    spark = None
    if arguments.spark:
        with screen.waiting("Starting Spark"):
            spark = spark_plan(layout, master=arguments.master)
    if arguments.svg is not None:
        arguments.svg.write_text(draw_svg(graph, title=graph.name, elements=elements_of(layout)))
    if screen.json:
        screen.print_json(as_json(layout, spark))
        return 0
    _print(layout, spark, screen)
    if arguments.svg is not None:
        screen.say()
        screen.say(f"Drawing: {shown(arguments.svg)}")
    return 0


def as_json(layout: Layout, spark: str | None) -> dict[str, Any]:
    """Return the object that ``--json`` prints; its keys are stable."""
    graph = layout.graph
    return {
        "application": graph.name,
        "operators": [
            {
                "name": operator.name,
                "kind": operator.kind,
                "inputs": list(operator.inputs),
                "ports": [list(port) for port in operator.ports],
                "outputs": list(operator.outputs),
                "schema": {field.name: type_name(field.type) for field in operator.schema},
                "stateful": operator.stateful,
                "summary": operator.summary(),
                "location": str(operator.location),
            }
            for operator in graph
        ],
        "passes": [{"pass": name, "text": text} for name, text in explain_passes(layout)],
        "pes": _elements(layout),
        "channels": [
            {
                "stream": c.stream,
                "from": c.writer,
                "to": list(c.readers),
                "key": list(c.key or ()),
                "replicas": c.group,
            }
            for c in without_copies(layout).channels
        ],
        "groups": [_group(layout, group) for group in graph.groups],
        "regions": [dataclasses.asdict(region) for region in regions_of(graph)],
        "autonomous": why_autonomous(graph),
        "guarantees": {
            sink: {loss: {"holds": g.word, **dataclasses.asdict(g)} for loss, g in held.items()}
            for sink, held in guarantees(graph).items()
        },
        "spark_plan": spark,
    }


def print_graph(graph: Graph, screen: Screen, elements: Mapping[str, Sequence[str]] | None = None) -> None:
    """Draw the graph, as wide as the terminal allows; with ``elements`` each box says in which it is."""
    from riprap.drawing import draw_text

    coloured = screen.out.color_system is not None
    drawing = draw_text(graph, width=screen.out.width, colour=coloured, elements=elements)
    screen.out.print(Text.from_ansi(drawing), no_wrap=True, crop=False)


def _print(layout: Layout, spark: str | None, screen: Screen) -> None:
    graph = layout.graph
    screen.say(f"{graph.name}: {len(graph.operators)} operators", style="bold")
    screen.say()
    print_graph(graph, screen, elements_of(layout))
    screen.heading("Operators")
    screen.out.print(_operators(graph))
    screen.heading("Passes of the compiler")
    screen.out.print(_passes(layout))
    screen.heading("Processing elements")
    for element in _elements(layout):
        how = (
            "read by a streaming query of Spark"
            if element["ingests"]
            else f"{element['buckets']} buckets in {element['tasks']} tasks"
        )
        copies = f"; replicas of '{element['replicas']}'" if element["replicas"] is not None else ""
        screen.say(f"{element['name']}: {how}; {', '.join(element['operators'])}{copies}")
    if spark is not None:
        screen.heading("Spark's plan")
        screen.say(spark)


def elements_of(layout: Layout) -> dict[str, list[str]]:
    """Return the operators of each processing element."""
    return {element["name"]: element["operators"] for element in _elements(layout)}


def _group(layout: Layout, group: ReplicaGroup) -> dict[str, Any]:
    """Return what a replica group is, and what runs in which process."""
    told = {name: value for name, value in dataclasses.asdict(group).items() if name != "location"}
    processes = {
        group.process(letter): [plan.name for plan in layout.plans if plan.process == group.process(letter)]
        for letter in group.letters
    }
    return {**told, "location": str(group.location), "processes": processes}


def _elements(layout: Layout) -> list[dict[str, Any]]:
    return [
        {
            "name": plan.name,
            "operators": [o.name for o in plan.graph if not isinstance(o, Inlet | Outlet)],
            "ingests": plan.ingests,
            "buckets": plan.buckets,
            "tasks": plan.tasks,
            "key": {entry.name: list(entry.key or ()) for entry in plan.entries},
            "replicas": plan.group,
        }
        for plan in without_copies(layout).plans
    ]


def _operators(graph: Graph) -> Table:
    table = new_table()
    table.add_column("name")
    table.add_column("kind")
    table.add_column("does", ratio=1)
    table.add_column("puts out", ratio=1)
    table.add_column("at")
    for operator in graph:
        columns = ", ".join(f"{field.name} {type_name(field.type)}" for field in operator.schema)
        where = f"{Path(operator.location.file).name}:{operator.location.line}"
        table.add_row(operator.name, operator.kind, Text(_does(operator)), Text(columns), Text(where))
    return table


def _does(operator: Operator) -> str:
    promise = operator.promise
    return f"{operator.summary()} ({promise})" if promise else operator.summary()


def _passes(layout: Layout) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    before = ""
    for name, text in explain_passes(layout):
        table.add_row("" if name == before else name, Text(text))
        before = name
    return table


@contextlib.contextmanager
def spark_session(master: str | None, log: Path, graph: Graph) -> Iterator[SparkSession]:
    """Start a Spark session for an application, whose JVM writes to ``log``, and stop it in the end."""
    from riprap.runtime.kafka import session_config
    from riprap.runtime.session import make_session

    session = make_session(master, session_config(graph), log)
    try:
        yield session
    finally:
        session.stop()


def spark_plan(layout: Layout, *, master: str | None) -> str:
    """Return, for every element, Spark's plans from parsed to physical, or that it has none. This starts a session."""
    from riprap.runtime.ingest import answers_of

    with tempfile.TemporaryDirectory(prefix="riprap-explain-") as name:
        texts = []
        with spark_session(master, Path(name) / "spark.log", layout.graph) as session:
            plans = without_copies(layout).plans
            for plan in plans:
                title = f"{plan.name}\n" if len(plans) > 1 else ""
                if not plan.ingests:
                    texts.append(f"{title}A job of {plan.tasks} tasks that stay: Spark has nothing to plan.")
                    continue
                printed = io.StringIO()
                # explain() is the one way that also plans a query which is not running, and it only prints. Nothing
                # runs, so that the element's setting need not exist.
                with contextlib.redirect_stdout(printed):
                    answers_of(session, layout.graph, plan, Path(name) / "setting.json", 1).explain(
                        extended=True
                    )
                texts.append(title + printed.getvalue().strip())
        return "\n\n".join(texts)
