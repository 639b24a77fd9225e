"""Drive an application batch by batch, without Spark: tasks' own code, in the memory of one process."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from riprap.application import Application
from riprap.compiler import Plan, compile_graph
from riprap.errors import GraphError
from riprap.faults.replay import StreamPiece
from riprap.graph import Graph
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.testing.element import Death, DeathStep, HandedOn, Lost, RehearsedElement

Row: TypeAlias = dict[str, Any]
GivenRows: TypeAlias = pa.Table | Iterable[Mapping[str, Any]]

# Beyond the numbers of all batches.
_END = 2**40


class Rehearsal:
    """An application that a test gives its batches, and takes its output from.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> window = rr.sliding(tuples=10)
    >>> app.sink("out", app.aggregate("counts", words, by="word", window=window, select="count(*) as n"), rr.memory())
    >>> rehearsal = rr.testing.Rehearsal(app)
    >>> rehearsal.feed({"words": [{"word": "a"}, {"word": "b"}]})
    {'out': [{'word': 'a', 'n': 1}, {'word': 'b', 'n': 1}]}
    >>> rehearsal.crash("counts")
    >>> rehearsal.feed({"words": [{"word": "a"}]})
    {'out': [{'word': 'a', 'n': 2}]}
    >>> rehearsal.crash("counts", lost="host")
    >>> rehearsal.feed({"words": [{"word": "a"}]})
    {'out': [{'word': 'a', 'n': 1}]}

    What sources and sinks are connected to is not touched. Keys are dealt out to ``buckets``, and these to the tasks of
    a batch, which changes nothing in what comes out.
    """

    def __init__(self, app: Application | Graph, *, buckets: int = 1) -> None:
        graph = app.graph() if isinstance(app, Application) else app
        self.graph = graph.without_replicas
        self.layout = compile_graph(self.graph, buckets=buckets, tasks=1)
        self.elements = {plan.name: self._element(plan) for plan in self.layout.plans}
        self._sources = {source.name: source for source in self.graph.of_kind(Source)}
        self._sinks = {sink.name: sink for sink in self.graph.of_kind(Sink)}

    def _element(self, plan: Plan) -> RehearsedElement:
        return RehearsedElement(plan, self.graph)

    def feed(
        self, tables: Mapping[str, GivenRows], *, tasks: int = 1, held_back: Container[str] = ()
    ) -> dict[str, list[Row]]:
        """Run a batch of rows by source, and return the rows that reached each sink.

        A source that is not named has none. Processing elements that are ``held_back`` take in what came for them with
        a later batch.
        """
        unknown = [name for name in tables if name not in self._sources]
        if unknown:
            raise GraphError(f"no source '{unknown[0]}'; there are: {', '.join(self._sources)}")
        reached: dict[str, list[Row]] = {name: [] for name in self._sinks}
        for name, element in self.elements.items():
            if element.plan.inlets and name in held_back:
                continue
            rows = element.take_in() if element.plan.inlets else self._read(element, tables)
            self._hand_on(element, element.run(rows, tasks=tasks), reached)
        return reached

    def flush(self, *, tasks: int = 1) -> dict[str, list[Row]]:
        """Let the input end, as with ``at_end="flush"``; return what windows and queues still held, by sink."""
        reached: dict[str, list[Row]] = {name: [] for name in self._sinks}
        for level, element in enumerate(self.elements.values()):
            if element.plan.inlets:
                self._hand_on(element, element.run(element.take_in(), tasks=tasks), reached)
            rows = element.take_in() if element.plan.inlets else self._read(element, {})
            self._hand_on(element, element.run(rows, tasks=tasks, end=_END + level), reached)
        return reached

    def save(self, *operators: str) -> None:
        """Save the state of operators whose policies save it, as if that were due; of all, if none is named."""
        protected = {name: element for element in self.elements.values() for name in element.plan.protected}
        for operator in operators or protected:
            if operator not in protected:
                raise GraphError(
                    f"'{operator}' is not saved: it has no policy that does so. "
                    f"Saved are: {', '.join(protected) or 'none'}"
                )
            protected[operator].save(operator)

    def crash(self, name: str, *, lost: Lost = "process", step: DeathStep = "idle") -> None:
        """Crash the processing element of an operator, or of a name: it comes back as its operators' policies have it.

        Only the ``process`` is lost, or with the ``host`` its memory. That happens now, while it is *idle*, or in its
        next batch once that is *computed*, *recorded* or *published*.
        """
        for what, word, words in (("lost", lost, get_args(Lost)), ("step", step, get_args(DeathStep))):
            if word not in words:
                raise GraphError(f"crash({what}=...) is one of {', '.join(words)}, got {word!r}")
        of_operator = (e for e in self.elements.values() if name in (o.name for o in e.plan.graph))
        element = next(of_operator, self.elements.get(name))
        if element is None:
            raise GraphError(
                f"no processing element or operator '{name}'; there are: {', '.join(self.elements)}"
            )
        if step == "idle":
            element.come_back(lost)
        else:
            element.crash = Death(step, lost)

    def _read(self, element: RehearsedElement, tables: Mapping[str, GivenRows]) -> dict[str, Any]:
        rows = {}
        for source in element.plan.graph.of_kind(Source):
            given = tables.get(source.name, ())
            table = given if isinstance(given, pa.Table) else pa.Table.from_pylist(list(given), source.schema)
            rows[source.name] = element.rows(source, table)
        return rows

    def _hand_on(self, element: RehearsedElement, handed: HandedOn, reached: dict[str, list[Row]]) -> None:
        plan = element.plan
        for end, piece in handed.outputs.items():
            if end in self._sinks:
                sink = self._sinks[end]
                twice = handed.again and sink.connector.PROMISE.word == "repeats"
                reached[end] += _in_order(sink, piece) * (2 if twice else 1)
            else:
                stream = plan.graph[end].ports[0][0]
                for channel in plan.outlets[stream]:
                    for reader in channel.readers:
                        self.elements[reader].waiting[stream].append(piece)


def _in_order(sink: Sink, piece: StreamPiece) -> list[Row]:
    if not piece.rows:
        return []
    table = pa.table({f.name: piece.columns[f.name].cast(f.type) for f in sink.schema})
    rows: list[Row] = table.take(pa.array(np.lexsort(piece.tags[::-1]))).to_pylist()
    return rows
