"""Applications that a test gives their batches, with a ledger and pages in a folder as a run has them.

Several processing elements run one after the other, each on what the ones before it put out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import riprap as rr
from riprap.compiler import Plan
from riprap.faults.replay import StreamPiece
from riprap.feeds import tables as lookups
from riprap.operators.channel import Outlet
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.runtime.site import Site
from riprap.runtime.task import Answer, run_task
from riprap.stage.arrival import ReadRows
from riprap.state.ledger import BatchRecord, Ledger, Output
from riprap.state.pages import PageStore
from riprap.state.seals import KEY, make_key
from riprap.testing import Rehearsal
from riprap.testing.element import HandedOn, RehearsedElement

Tables = Mapping[str, pa.Table]


class Element(RehearsedElement):
    """A processing element whose batches leave their state in a folder."""

    def __init__(self, plan: Plan, folder: Path, graph: rr.Graph) -> None:
        super().__init__(plan, graph)
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

    def run(self, rows: Mapping[str, ReadRows], *, tasks: int = 1, end: int | None = None) -> HandedOn:
        """Run one batch by the tasks' own code, and put it on record."""
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
        return HandedOn({end: self._left(end, outputs) for end, outputs in outputs.items() if outputs})

    def now(self) -> float:
        """Return the time that records are given."""
        return 0.0

    def note(self, answers: Sequence[Answer]) -> None:
        """Take note of a batch that is on record, for elements that are more than this."""

    def _left(self, end: str, outputs: Sequence[Output]) -> StreamPiece:
        """Read what tasks left for a sink or an outlet."""
        tuples = pa.Table.from_batches([self._site.results.read(o.page) for o in outputs])
        marks = [self._site.results.read(o.punctuations) for o in outputs if o.punctuations]
        return StreamPiece(
            {name: tuples.column(name).combine_chunks() for name in self.plan.graph[end].schema.names},
            _tags(tuples),
            np.zeros(tuples.num_rows, np.uint64),
            _tags(pa.Table.from_batches(marks)) if marks else (),
        )


def _tags(table: pa.Table) -> tuple[Any, ...]:
    return tuple(table.column(name).to_numpy() for name in table.column_names if name.startswith("$"))


class Stage(Rehearsal):
    """A compiled application, and the state its batches left in a folder."""

    def __init__(self, app: rr.Application, folder: Path, *, buckets: int = 1) -> None:
        self._folder = folder
        super().__init__(app, buckets=buckets)
        first = self.elements[self.layout.plans[0].name]
        assert isinstance(first, Element)
        self.plan, self.pages = first.plan, first.pages

    def _element(self, plan: Plan) -> Element:
        return Element(plan, self._folder / plan.name, self.graph)

    def feed(self, tables: Tables, **options: Any) -> dict[str, list[dict[str, Any]]]:
        return super().feed(of_sources(self, tables), **options)

    @property
    def record(self) -> BatchRecord:
        element = self.elements[self.plan.name]
        assert isinstance(element, Element)
        return element.record


def run_batches(
    app: rr.Application,
    batches: Sequence[Tables],
    *,
    sink: str = "out",
    buckets: int = 1,
    tasks: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Run batches one after the other, in memory, and return the rows that reached a sink."""
    rehearsal = Rehearsal(app, buckets=buckets)
    dealt = [*tasks, *[1] * len(batches)]
    return [
        row
        for tables, tasks in zip(batches, dealt, strict=False)
        for row in rehearsal.feed(of_sources(rehearsal, tables), tasks=tasks)[sink]
    ]


def of_sources(rehearsal: Rehearsal, tables: Tables) -> Tables:
    """Leave out what an application has no source for, such as ticks where it has no clock."""
    sources = {source.name for source in rehearsal.graph.of_kind(Source)}
    return {name: table for name, table in tables.items() if name in sources}


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
