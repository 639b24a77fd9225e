"""Run an application batch by batch without Spark: the tasks' own code, a ledger and pages in a folder.

Several processing elements run one after the other, each on what the ones before it put out.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.feeds import tables as lookups
from riprap.graph.operators import Outlet, Sink, Source
from riprap.runtime.results import ResultReader
from riprap.runtime.site import Site
from riprap.runtime.task import Answer, run_task
from riprap.stage.arrival import ReadRows
from riprap.state.ledger import BatchRecord, Ledger, Output
from riprap.state.pages import PageStore
from riprap.state.seals import KEY, make_key

Tables = Mapping[str, pa.Table]


class Element:
    """A processing element, the state its batches left in a folder, and what has come in by channel."""

    def __init__(self, plan: Plan, folder: Path, graph: rr.Graph) -> None:
        self.plan = plan
        self._tables = folder / "tables"
        self._lookups = lookups.Tables(self._tables, graph)
        self.pages = PageStore(str(folder / "pages"))
        self._site = Site(
            ledger=Ledger(str(folder / "ledger")),
            pages=self.pages,
            results=PageStore(str(folder / "results")),
            key=str(folder / KEY),
        )
        folder.mkdir(parents=True, exist_ok=True)
        make_key(folder)
        for store in (self._site.pages, self._site.results):
            store.make()
        self._site.ledger.begin(self.plan.buckets)
        self.record = self._site.ledger.get(self._site.ledger.batches()[-1])
        self._read = dict.fromkeys((e.name for e in self.plan.entries), 0)
        self.waiting: dict[str, list[tuple[pa.Table, pa.Table]]] = {s: [] for s in plan.inlets}

    def feed(
        self, rows: Mapping[str, ReadRows], *, tasks: int = 1, end: int | None = None
    ) -> dict[str, list[Output]]:
        """Run one batch, the buckets dealt out to ``tasks``; return what the tasks left for each sink and outlet."""
        batch = self.record.batch + 1
        dealt = min(tasks, self.plan.buckets) if self.plan.keyed else 1
        plan = dataclasses.replace(self.plan, tasks=dealt)
        self._lookups.settle(batch)
        tables = lookups.load_tables(self._tables, batch)
        answers = [
            run_task(
                plan, self._site, batch=batch, task=task, attempt=str(task), rows=rows, tables=tables, end=end
            )
            for task in range(plan.tasks)
        ]
        manifests = [answer.manifest for answer in answers]
        ends = [o.name for o in plan.graph.of_kind(Sink) + plan.graph.of_kind(Outlet)]
        outputs = {end: [a.outputs[end] for a in answers if end in a.outputs] for end in ends}
        self.record = BatchRecord(
            epoch=0,
            batch=batch,
            manifests=tuple(sorted(manifests, key=lambda m: m.buckets)),
            outputs={end: tuple(found) for end, found in outputs.items()},
            time=self.now(),
        )
        self._site.ledger.write(self.record)
        self.note(answers)
        return outputs

    def now(self) -> float:
        """Return the time that records are given."""
        return 0.0

    def note(self, answers: Sequence[Answer]) -> None:
        """Take note of a batch that is on record, for elements that are more than this."""

    def rows_of(self, sink: Sink, outputs: Sequence[Output]) -> list[dict[str, Any]]:
        """Return the rows that reached a sink."""
        return ResultReader(sink, self._site.results).read(outputs).to_pylist()

    def sent(self, outputs: Sequence[Output]) -> tuple[pa.Table, pa.Table]:
        """Return what an outlet sends on: tuples and punctuations, with their tags."""
        tuples = [self._site.results.read(o.page) for o in outputs]
        marks = [self._site.results.read(o.punctuations) for o in outputs if o.punctuations]
        return pa.Table.from_batches(tuples), pa.Table.from_batches(marks) if marks else pa.table({})

    def take_in(self) -> dict[str, ReadRows]:
        """Return all that has come in by channel."""
        rows = {}
        for stream, parts in self.waiting.items():
            schema = self.plan.graph[stream].schema
            tuples = [t for t, _ in parts if t.num_rows]
            marks = [m for _, m in parts if m.num_rows]
            rows[stream] = _arrived(schema, self.plan.inlets[stream].tags, tuples, marks)
            parts.clear()
        return rows

    def rows(self, name: str, table: pa.Table) -> ReadRows:
        """Return rows of a source, numbered on from those before."""
        source = self.plan.graph[name]
        assert isinstance(source, Source)
        columns = {c: _one(table.column(c)) for c in sorted(self.plan.needed[name])}
        start = self._read[name]
        self._read[name] += table.num_rows
        if source.position is not None:
            return ReadRows(columns, table.column(source.position).to_numpy())
        return ReadRows(columns, np.arange(start, start + table.num_rows))


class Stage:
    """A compiled application, and the state its batches left in a folder."""

    def __init__(self, app: rr.Application, folder: Path, *, buckets: int = 1) -> None:
        self.layout = compile_graph(app.graph(), buckets=buckets, tasks=1)
        self.elements = {p.name: Element(p, folder / p.name, app.graph()) for p in self.layout.plans}
        first = self.elements[self.layout.plans[0].name]
        self.plan, self.pages = first.plan, first.pages
        self._sinks = {s.name: s for s in app.graph().of_kind(Sink)}

    @property
    def record(self) -> BatchRecord:
        return self.elements[self.plan.name].record

    def feed(
        self, tables: Tables, *, tasks: int = 1, held_back: Container[str] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """Run one batch, the buckets dealt out to ``tasks``; return the rows that reached each sink.

        Elements ``held_back`` take in what came for them with a later batch.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for name, element in self.elements.items():
            plan = element.plan
            if plan.inlets:
                if name in held_back:
                    continue
                rows = element.take_in()
            else:
                rows = {s.name: element.rows(s.name, tables[s.name]) for s in plan.graph.of_kind(Source)}
            self._hand_on(element, element.feed(rows, tasks=tasks), found)
        return {sink: found.get(sink, []) for sink in self._sinks}

    def flush(self, *, tasks: int = 1) -> dict[str, list[dict[str, Any]]]:
        """Let every element have what came for it, then the end of its input, in the order of the graph."""
        found: dict[str, list[dict[str, Any]]] = {}
        for level, element in enumerate(self.elements.values()):
            plan = element.plan
            nothing = {
                s.name: element.rows(s.name, s.schema.empty_table()) for s in plan.graph.of_kind(Source)
            }
            if plan.inlets:
                self._hand_on(element, element.feed(element.take_in(), tasks=tasks), found)
            rows = element.take_in() if plan.inlets else nothing
            self._hand_on(element, element.feed(rows, tasks=tasks, end=2**40 + level), found)
        return {sink: found.get(sink, []) for sink in self._sinks}

    def _hand_on(
        self,
        element: Element,
        outputs: Mapping[str, list[Output]],
        found: dict[str, list[dict[str, Any]]],
    ) -> None:
        plan = element.plan
        for end, sent in outputs.items():
            if end in self._sinks:
                found.setdefault(end, []).extend(element.rows_of(self._sinks[end], sent))
            elif sent:
                stream = plan.graph[end].ports[0][0]
                for channel in plan.outlets[stream]:
                    for reader in channel.readers:
                        self.elements[reader].waiting[stream].append(element.sent(sent))


def _arrived(schema: pa.Schema, tags: int, tuples: Sequence[pa.Table], marks: Sequence[pa.Table]) -> ReadRows:
    names = [f"${i}" for i in range(tags)]
    table = (
        pa.concat_tables(tuples)
        if tuples
        else pa.schema([*schema, *((n, pa.int64()) for n in names)]).empty_table()
    )
    punctuations = pa.concat_tables(marks) if marks else None
    return ReadRows(
        {c: _one(table.column(c)) for c in schema.names},
        np.arange(table.num_rows),
        tuple(table.column(n).to_numpy() for n in names),
        tuple(punctuations.column(n).to_numpy() for n in names) if punctuations is not None else (),
    )


def run_batches(
    app: rr.Application,
    batches: Sequence[Tables],
    *,
    sink: str = "out",
    buckets: int = 1,
    tasks: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Run batches one after the other and return the rows that reached a sink."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets)
        dealt = [*tasks, *[1] * len(batches)]
        return [
            row
            for tables, tasks in zip(batches, dealt, strict=False)
            for row in stage.feed(tables, tasks=tasks)[sink]
        ]


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


@st.composite
def cuts(draw: st.DrawFn, rows: int) -> list[int]:
    """Draw where batches end: any number of them, empty ones included; the last ends at the last row."""
    return [*sorted(draw(st.lists(st.integers(0, rows), max_size=5))), rows]


def dealings(batches: Sequence[object], buckets: int) -> st.SearchStrategy[list[int]]:
    """Draw, for each batch, the number of tasks that the buckets are dealt out to."""
    return st.lists(st.integers(1, buckets), min_size=len(batches), max_size=len(batches))


def cut(table: pa.Table, ends: Sequence[int]) -> list[Tables]:
    """Cut the rows of source ``source`` into batches that end at the given rows."""
    return [{"source": table.slice(low, high - low)} for low, high in zip([0, *ends], ends, strict=False)]
