"""A drawn application, its data, and how a run of it is cut up; what it means and what it puts out."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.graphs.expressions import EPOCH, Row
from tests.graphs.model import ARROW, Event, Operator, Schema, Tick, Trail, depth_of, happenings
from tests.stages import Stage

import riprap as rr

# What a run put out: the rows of every sink.
Rows = dict[str, list[Row]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source with its rows. Column ``at`` is what sources interleave by; ``tick`` makes it a clock."""

    name: str
    schema: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Any, ...], ...]
    tick: str | None = None

    def dicts(self) -> list[Row]:
        return [dict(zip(dict(self.schema), row, strict=True)) for row in self.rows]

    def table(self, rows: Sequence[Row]) -> pa.Table:
        return pa.table(
            {
                name: pa.array(
                    [row[name] for row in rows], pa.int64() if kind == "timestamp" else ARROW[kind]
                ).cast(ARROW[kind])
                for name, kind in self.schema
            }
        )


@dataclass(frozen=True, kw_only=True)
class Program:
    """An application: sources, operators in an order in which each comes after its inputs, and sinks.

    ``sinks`` lists the streams of each. ``places`` are (element, operators); ``composites`` are names of operators that
    are built in a composite of their own.
    """

    sources: tuple[Source, ...]
    operators: tuple[Operator, ...] = ()
    sinks: tuple[tuple[str, ...], ...]
    places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    composites: tuple[str, ...] = ()

    @property
    def ordered(self) -> bool:
        return len(self.sources) > 1

    def application(self) -> rr.Application:
        """Build it as a user would."""
        app = rr.Application("drawn")
        streams: dict[str, rr.Stream] = {}
        clock = None
        ordering = "at" if self.ordered else None
        for source in self.sources:
            connector = rr.rows(source.table([]))
            if source.tick is not None:
                clock = app.clock(source.name, connector, time=source.tick, ordering=ordering)
            else:
                streams[source.name] = app.source(source.name, connector, ordering=ordering)
        for operator in self.operators:
            ports = [port_of([streams[s] for s in port]) for port in operator.ports]
            if operator.name in self.composites:
                made = app.composite(f"in_{operator.name}", operator.add, ports, clock)
            else:
                made = operator.add(app, ports, clock)
            streams.update(zip(operator.outputs, made, strict=True))
        for number, sink in enumerate(self.sinks):
            app.sink(f"out{number}", [streams[s] for s in sink], rr.memory())
        by_operator = {o.name: streams[o.outputs[0]] for o in self.operators}
        for element, operators in self.places:
            named = [
                n if n.startswith("out") else by_operator.get(n) or streams.get(n) or clock for n in operators
            ]
            app.place(element, *named)
        return app


def port_of(streams: list[rr.Stream]) -> rr.Stream | list[rr.Stream]:
    """Give a port as a user would: a single stream as it is."""
    return streams[0] if len(streams) == 1 else streams


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What must not show in the results: where batches end (before these ``at``s or positions), buckets, tasks,
    elements (by number) that take in a batch later, and how tuples reach the first element."""

    ends: tuple[int, ...] = ()
    buckets: int = 1
    tasks: tuple[int, ...] = ()
    held_back: tuple[tuple[int, ...], ...] = ()


def meaning(program: Program) -> Rows:
    """Take every event through the model."""
    trails: dict[str, Trail] = {}
    ticks: list[Tick] = []
    for number, source in enumerate(program.sources):
        events = [
            Event((row["at"] if program.ordered else 0, number, position), row)
            for position, row in enumerate(source.dicts())
        ]
        trails[source.name] = Trail(dict(source.schema), 0, events)
        if source.tick is not None:
            ticks = [Tick(event.tag, event.row[source.tick]) for event in events if event.row is not None]
    for operator in program.operators:
        ports = [[trails[s] for s in port] for port in operator.ports]
        schemas: list[Schema] = [port[0].schema for port in ports]
        made = operator.run(happenings(ports, ticks if operator.clocked else ()), schemas)
        depth = depth_of(ports) + operator.depth
        for stream, schema, output in zip(operator.outputs, operator.schemas(schemas), made, strict=True):
            assert all(a.tag < b.tag for a, b in itertools.pairwise(output.events)), (
                "no two have the same tag"
            )
            trails[stream] = Trail(schema, depth, output.events)
    return {
        f"out{number}": [h.row for h in happenings([[trails[s] for s in sink]]) if h.row is not None]
        for number, sink in enumerate(program.sinks)
    }


def run(program: Program, around: Circumstances, stage: Stage) -> Rows:
    """Run the program batch by batch; return what reached each sink."""
    found: Rows = {f"out{n}": [] for n in range(len(program.sinks))}
    starts, lasts = [-math.inf, *around.ends], [*around.ends, math.inf]
    for batch, (low, high) in enumerate(zip(starts, lasts, strict=True)):
        tables = {}
        for source in program.sources:
            rows = source.dicts()
            numbers = [row["at"] for row in rows] if program.ordered else range(len(rows))
            part = [row for row, number in zip(rows, numbers, strict=True) if low <= number < high]
            tables[source.name] = source.table(part)
        back = around.held_back[batch] if batch < len(around.held_back) else ()
        tasks = around.tasks[batch] if batch < len(around.tasks) else 1
        _add(found, stage.feed(tables, tasks=tasks, held_back=held_back(stage, back)))
    # Elements that were held back catch up.
    nothing = {source.name: source.table([]) for source in program.sources}
    _add(found, stage.feed(nothing))
    return found


def held_back(stage: Stage, numbers: Sequence[int]) -> set[str]:
    """Return the elements with these numbers, and all that read from them: an element takes in whole frontiers."""
    plans = stage.layout.plans
    back = {plans[n % len(plans)].name for n in numbers}
    for plan in plans:
        if any(channel.writer in back for channel in plan.inlets.values()):
            back.add(plan.name)
    return back


def _add(found: Rows, more: Rows) -> None:
    for sink, rows in more.items():
        found[sink] += [{n: plain(v) for n, v in row.items()} for row in rows]


def plain(value: Any) -> Any:
    """Return a value as the model has it."""
    if isinstance(value, datetime):
        since = value - EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return value


def same(got: Any, wanted: Any) -> bool:
    if isinstance(got, float) and isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(got)
    return got == wanted and type(got) is type(wanted)


def check(program: Program, around: Circumstances) -> None:
    """Require that a run puts out what the program means, in that order."""
    wanted = meaning(program)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(program.application(), Path(folder), buckets=around.buckets)
        got = run(program, around, stage)
    for sink, rows in wanted.items():
        for number, (mine, other) in enumerate(zip(got[sink], rows, strict=False)):
            assert mine.keys() == other.keys()
            wrong = {n: (mine[n], other[n]) for n in other if not same(mine[n], other[n])}
            assert not wrong, f"{sink}, row {number}: got {mine}, wanted {other}\n{got[sink]}\n{rows}"
        assert len(got[sink]) == len(rows), f"{sink}: got {got[sink]}, wanted {rows}"
