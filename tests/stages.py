"""Run an application batch by batch without Spark: the tasks' own code, a ledger and pages in a folder."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.graph.operators import Sink, Source
from riprap.operators.arrival import Rows
from riprap.runtime.packets import labels, pack, unpack
from riprap.runtime.sinks import ResultReader
from riprap.runtime.site import Site
from riprap.runtime.task import run_task
from riprap.state.ledger import Ledger, Record
from riprap.state.pages import PageStore

Tables = Mapping[str, pa.Table]
PATHS = st.sampled_from(["direct", "exchange"])


class Stage:
    """A compiled application, and the state its batches left in a folder."""

    def __init__(self, app: rr.Application, folder: Path, *, buckets: int = 1, path: str = "direct") -> None:
        self.plan = compile_graph(app.graph(), buckets=buckets, tasks=1, path=path)
        self.pages = PageStore(str(folder / "pages"))
        self._site = Site(
            ledger=Ledger(str(folder / "ledger")),
            pages=self.pages,
            results=PageStore(str(folder / "results")),
        )
        for store in (self._site.pages, self._site.results):
            Path(store.folder).mkdir()
        self._site.ledger.begin(self.plan.buckets)
        self.record = self._site.ledger.get(-1)
        self._read = dict.fromkeys((e.name for e in self.plan.entries), 0)

    def feed(self, tables: Tables, *, tasks: int = 1) -> dict[str, list[dict[str, Any]]]:
        """Run one batch, the buckets dealt out to ``tasks``; return the rows that reached each sink."""
        rows = {name: self._rows(name, table) for name, table in tables.items()}
        batch = self.record.batch + 1
        plan = dataclasses.replace(self.plan, tasks=min(tasks, self.plan.buckets) if self.plan.keyed else 1)
        parts = (
            self._exchange(plan, rows) if plan.path == "exchange" else dict.fromkeys(range(plan.tasks), rows)
        )
        answers = [
            run_task(plan, self._site, batch=batch, task=task, attempt=str(task), rows=part)
            for task, part in parts.items()
        ]
        manifests = [answer.manifest for answer in answers]
        for task in set(range(plan.tasks)) - set(parts):
            manifests += self.record.state_of(*plan.span(task))
        self.record = Record(
            epoch=0, batch=batch, manifests=tuple(sorted(manifests, key=lambda m: m.buckets))
        )
        self._site.ledger.write(self.record)
        return {
            sink.name: ResultReader(sink, self._site.results)
            .read([a.outputs[sink.name] for a in answers if sink.name in a.outputs])
            .to_pylist()
            for sink in plan.graph.of_kind(Sink)
        }

    def _exchange(self, plan: Plan, rows: Mapping[str, Rows]) -> dict[int, Mapping[str, Rows]]:
        """Send the rows as packets, which come in any order; a task that gets none is not called."""
        sent = [p for number, entry in enumerate(plan.entries) for p in pack(plan, number, rows[entry.name])]
        by_label: dict[int, list[pa.RecordBatch]] = {}
        for packet in reversed(sent):
            by_label.setdefault(packet.column("label")[0].as_py(), []).append(packet)
        return {labels(plan.tasks).index(label): unpack(plan, packets) for label, packets in by_label.items()}

    def _rows(self, name: str, table: pa.Table) -> Rows:
        source = self.plan.graph[name]
        assert isinstance(source, Source)
        columns = {c: _one(table.column(c)) for c in sorted(self.plan.needed[name])}
        start = self._read[name]
        self._read[name] += table.num_rows
        if source.position is not None:
            return Rows(columns, table.column(source.position).to_numpy())
        return Rows(columns, np.arange(start, start + table.num_rows))


def run_batches(
    app: rr.Application,
    batches: Sequence[Tables],
    *,
    sink: str = "out",
    buckets: int = 1,
    tasks: Sequence[int] = (),
    path: str = "direct",
) -> list[dict[str, Any]]:
    """Run batches one after the other and return the rows that reached a sink."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=buckets, path=path)
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
