"""What operators mean that take each tuple by itself: functor, split, union, punctor, lookup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tests.graphs.expressions import Expression, Row
from tests.graphs.model import ARROW, Happening, Operator, Output, Schema, key_of

import riprap as rr

Named = tuple[tuple[str, Expression], ...]


def select_of(named: Named, labels: tuple[str, ...] = ()) -> str:
    """Write what is selected as a user would."""
    return ", ".join(f"{expression.sql(labels)} as {name}" for name, expression in named)


def types_of(named: Named) -> Schema:
    return {name: expression.type for name, expression in named}


def computed(named: Named, *rows: Row | None) -> Row:
    return {name: expression.of(*rows) for name, expression in named}


@dataclass(frozen=True, kw_only=True)
class Functor(Operator):
    """Filters and computes. ``variables`` are (name, first value, next value)."""

    where: Expression | None = None
    select: Named | None = None
    by: tuple[str, ...] = ()
    variables: tuple[tuple[str, Expression, Expression], ...] = ()

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        kept = {name: update.type for name, _, update in self.variables}
        return [types_of(self.select) if self.select is not None else {**ports[0], **kept}]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        where = self.where.sql() if self.where is not None else None
        select = select_of(self.select) if self.select is not None else None
        kept: dict[str, Any] = {}
        if self.variables:
            kept = {
                "variables": {name: first.sql() for name, first, _ in self.variables},
                "update": ", ".join(f"{update.sql()} as {name}" for name, _, update in self.variables),
                "by": self.by,
            }
        return [app.functor(self.name, ports[0], where=where, select=select, **kept)]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        variables: dict[Any, Row] = {}
        for event in events:
            if event.row is None:
                output.pass_on(event)
                continue
            key = key_of(event.row, self.by)
            old = variables.setdefault(key, {name: first.of() for name, first, _ in self.variables})
            new = {name: update.of({**event.row, **old}) for name, _, update in self.variables}
            variables[key] = new
            row = {**event.row, **new}
            if self.where is None or self.where.of(row) is True:
                output.put(event, row if self.select is None else computed(self.select, row))
        return [output]


@dataclass(frozen=True, kw_only=True)
class Split(Operator):
    """Sends tuples to the outputs whose condition is true, or that a table names for the value of column ``on``."""

    streams: tuple[str, ...]
    conditions: tuple[Expression, ...] = ()
    first: bool = False
    on: str | None = None
    table: tuple[tuple[Any, tuple[str, ...]], ...] = ()
    default: str | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]] * len(self.streams)

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        if self.on is None:
            outputs = {name: c.sql() for name, c in zip(self.streams, self.conditions, strict=True)}
            return list(app.split(self.name, ports[0], outputs=outputs, first=self.first).values())
        made = app.split(
            self.name,
            ports[0],
            outputs=self.streams,
            on=self.on,
            table=dict(self.table),
            default=self.default,
        )
        return list(made.values())

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        outputs = {name: Output(self.depth) for name in self.streams}
        for event in events:
            if event.row is None:
                for output in outputs.values():
                    output.pass_on(event)
                continue
            for name in self._chosen(event.row):
                outputs[name].put(event, event.row)
        return list(outputs.values())

    def _chosen(self, row: Row) -> Sequence[str]:
        if self.on is not None:
            default = (self.default,) if self.default is not None else ()
            return dict(self.table).get(row[self.on], default)
        true = [n for n, c in zip(self.streams, self.conditions, strict=True) if c.of(row) is True]
        return true[:1] if self.first else true


@dataclass(frozen=True, kw_only=True)
class Union(Operator):
    """Brings streams together."""

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        return [app.union(self.name, *ports[0])]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        for event in events:
            output.put(event, event.row)
        return [output]


@dataclass(frozen=True, kw_only=True)
class Punctor(Operator):
    """Puts punctuations before or after tuples."""

    where: Expression
    place: str

    @property
    def depth(self) -> int:
        return 1

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [ports[0]]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        return [app.punctor(self.name, ports[0], where=self.where.sql(), place=self.place)]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output = Output(self.depth)
        for event in events:
            meets = event.row is not None and self.where.of(event.row) is True
            if meets and self.place == "before":
                output.put(event, None)
            output.put(event, event.row)
            if meets and self.place == "after":
                output.put(event, None)
        return [output]


@dataclass(frozen=True, kw_only=True)
class Lookup(Operator):
    """Adds the row of a table. ``table`` has (key, value) pairs; the value is a whole number under ``value``."""

    by: str
    table: tuple[tuple[Any, Any], ...]
    value: str
    missing: str

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [{**{n: t for n, t in ports[0].items() if n != self.value}, self.value: "bigint"}]

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        stream = ports[0] if isinstance(ports[0], rr.Stream) else ports[0][0]
        keys, values = zip(*self.table, strict=True) if self.table else ((), ())
        kind = stream.schema.field(self.by).type
        table = pa.table({"id": pa.array(keys, kind), "found": pa.array(values, ARROW["bigint"])})
        own = stream.label if isinstance(ports[0], rr.Stream) or len(ports[0]) == 1 else "stream"
        columns = [f"{own}.{n} as {n}" for n in stream.schema.names if n != self.value]
        select = ", ".join([*columns, f"{self.name}.found as {self.value}"])
        return [
            app.lookup(
                self.name, ports[0], table=table, by={self.by: "id"}, select=select, missing=self.missing
            )
        ]

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        output, table = Output(self.depth), dict(self.table)
        for event in events:
            if event.row is None:
                output.pass_on(event)
            elif event.row[self.by] in table or self.missing == "null":
                own = {n: v for n, v in event.row.items() if n != self.value}
                output.put(event, {**own, self.value: table.get(event.row[self.by])})
        return [output]


@dataclass
class Seen:
    """What the operator below keeps."""

    tuples: int = 0
    punctuations: int = 0


class Echo(rr.CustomOperator):
    """Counts tuples and punctuations, and puts out each tuple with the counts up to twice, on two outputs in turn."""

    state: Seen

    def on_tuple(self, port: Any, tuple: Row) -> None:
        self.state.tuples += 1
        for copy, row in enumerate(echoes(tuple, self.state.tuples, self.state.punctuations)):
            self.submit(row, output=copy % 2)

    def on_punctuation(self, port: int) -> None:
        self.state.punctuations += 1
        self.punctuate()


def echoes(row: Row, tuples: int, punctuations: int) -> list[Row]:
    return [{**row, "n": tuples + 100 * punctuations}] * ((tuples + punctuations) % 3)


@dataclass(frozen=True, kw_only=True)
class Custom(Operator):
    """Runs the class above."""

    streams: tuple[str, str]

    @property
    def depth(self) -> int:
        return 1

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def schemas(self, ports: Sequence[Schema]) -> list[Schema]:
        return [{**ports[0], "n": "bigint"}] * 2

    def add(self, app: rr.Application, ports: Sequence[Any], clock: rr.Stream | None) -> Sequence[rr.Stream]:
        stream = ports[0] if isinstance(ports[0], rr.Stream) else ports[0][0]
        columns = {f.name: f.type for f in stream.schema}
        schema = pa.schema({**columns, "n": ARROW["bigint"]})
        return list(app.custom(self.name, Echo, *ports, outputs=dict.fromkeys(self.streams, schema)).values())

    def run(self, events: Sequence[Happening], schemas: Sequence[Schema]) -> list[Output]:
        # What one tuple makes is numbered whatever the output.
        both = Output(self.depth)
        outputs = (Output(self.depth), Output(self.depth))
        tuples = punctuations = 0
        for event in events:
            if event.row is None:
                punctuations += 1
                for output in outputs:
                    both.put(event, None)
                    output.events.append(both.events[-1])
                continue
            tuples += 1
            for copy, row in enumerate(echoes(event.row, tuples, punctuations)):
                both.put(event, row)
                outputs[copy % 2].events.append(both.events[-1])
        return list(outputs)
