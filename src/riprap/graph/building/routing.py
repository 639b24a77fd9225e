"""Add operators that route tuples, punctuate a stream, or look things up in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from riprap.expressions import Scope, parse_condition, parse_select
from riprap.graph.building.builder import Builder, schema_of
from riprap.graph.building.tables import Routes, lookup_key, lookup_table, routing_table
from riprap.graph.checks import NAME, Here, Inputs, Port
from riprap.graph.connectors import Files, Rows
from riprap.graph.operators import Lookup, Punctor, Split, Union
from riprap.graph.operators.lookup import Missing
from riprap.graph.operators.routing import Place
from riprap.graph.stream import Stream
from riprap.protection import Policy


class Routing(Builder):
    """Split, union, punctor, lookup."""

    def split(
        self,
        name: str,
        stream: Port,
        *,
        outputs: Mapping[str, str] | Sequence[str],
        first: bool = False,
        on: str | None = None,
        table: Routes | str | Path | None = None,
        default: str | None = None,
        protect: Policy | None = None,
    ) -> dict[str, Stream]:
        """Add a split, and return its streams by name, in order.

        ``outputs`` maps the name of each to its condition: a tuple goes to every one whose condition is true, or with
        ``first`` to the first such. Or ``outputs`` lists names, and ``table`` says where each value of column ``on``
        goes: a mapping to one name or several, or a CSV file with columns ``value,output`` that is read now. A value
        that the table lacks goes to ``default``.
        """
        here = Here("Split", name, self, stream)
        inputs = here.port(stream)
        names = tuple(outputs)
        streams = named_outputs(here, self, names)
        split = Split(
            name=here.full_name,
            location=here.location,
            ports=(inputs.streams,),
            schema=inputs.schema,
            protect=protect,
            streams=streams,
            **(
                self._conditions(here, inputs, outputs, first, on, table, default)
                if isinstance(outputs, Mapping)
                else routing_table(here, inputs, names, first, on, table, default)
            ),
        )
        self._add(here, split)
        return {n: Stream(s, inputs.schema, self.root) for n, s in zip(names, streams, strict=True)}

    def _conditions(
        self,
        here: Here,
        inputs: Inputs,
        outputs: Mapping[str, str],
        first: bool,
        on: object,
        table: object,
        default: object,
    ) -> dict[str, Any]:
        if on is not None or table is not None or default is not None:
            raise here.error(
                "outputs= has conditions, and on=, table= or default= is given too",
                "Give outputs= as names to route by a table",
            )
        scope = Scope.of(inputs.schema)
        with here:
            conditions = tuple(parse_condition(c, scope, self._functions) for c in outputs.values())
        return {"conditions": conditions, "first": first}

    def union(self, name: str, *streams: Stream, protect: Policy | None = None) -> Stream:
        """Add a union: the tuples of several streams of one schema as one stream, in the order they arrive."""
        here = Here("Union", name, self, streams)
        inputs = here.port(streams)
        return self._add(
            here,
            Union(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
            ),
        )

    def punctor(
        self, name: str, stream: Port, *, where: str, place: Place = "after", protect: Policy | None = None
    ) -> Stream:
        """Add a punctor: it puts a punctuation before or after each tuple that ``where`` is true for."""
        here = Here("Punctor", name, self, stream)
        inputs = here.port(stream)
        if place not in get_args(Place):
            raise here.error(f"place= is {place!r}", f"It is one of {', '.join(get_args(Place))}")
        with here:
            condition = parse_condition(where, Scope.of(inputs.schema), self._functions)
        return self._add(
            here,
            Punctor(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                where=condition,
                place=place,
            ),
        )

    def lookup(
        self,
        name: str,
        stream: Port,
        *,
        table: Files | Rows | pa.Table | str | Path,
        by: str | Sequence[str] | Mapping[str, str],
        select: str = "*",
        missing: Missing = "null",
        protect: Policy | None = None,
    ) -> Stream:
        """Add a lookup: each tuple gets the row of a table that has the same key, of which there is at most one.

        ``table`` is a path, ``rr.files(...)`` or an Arrow table; changed files are read again before the next batch.
        ``by`` names the key's columns, or maps the stream's to the table's. Expressions call the stream by its name
        (``stream`` if the port has several) and the table by the lookup's. A tuple without a row gets nulls, or is
        left out with ``missing="drop"``.
        """
        here = Here("Lookup", name, self, stream)
        inputs = here.port(stream)
        connector, its_schema = lookup_table(here, table)
        pairs = lookup_key(here, by, inputs.schema, its_schema)
        if missing not in get_args(Missing):
            raise here.error(f"missing= is {missing!r}", f"It is one of {', '.join(get_args(Missing))}")
        several = (stream,) if isinstance(stream, Stream) else tuple(stream)
        label = several[0].label if len(several) == 1 else "stream"
        if label == name:
            raise here.error(
                "its stream has the same name", "Give the lookup another, to tell its columns apart"
            )
        scope = Scope.qualified(
            {label: inputs.schema, name: its_schema},
            shared=frozenset(mine for mine, its in pairs if mine == its),
        )
        with here:
            chosen = parse_select(select, scope, self._functions)
        return self._add(
            here,
            Lookup(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=schema_of(chosen),
                protect=protect,
                table=connector,
                table_schema=its_schema,
                by=pairs,
                names=(label, name),
                select=chosen,
                missing=missing,
            ),
        )


def named_outputs(here: Here, application: Builder, names: Iterable[str]) -> tuple[str, ...]:
    """Check the names an operator gives to its output streams, and return them in full."""
    found: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise here.error(
                f"an output's name is {name!r}", "Names are letters, digits and '_', starting with a letter"
            )
        full = here.full_name.removesuffix(here.name) + name
        taken = application.taken(full)
        if taken is not None:
            raise here.error(
                f"its output's name '{name}' is taken by {taken.kind} at {taken.location}",
                "Streams and operators share their names: give each its own",
            )
        if full == here.full_name or full in found:
            what = "the operator's own" if full == here.full_name else "another output's"
            raise here.error(f"its output's name '{name}' is {what}", "Give each its own")
        found[full] = None
    if not found:
        raise here.error("it has no outputs", "Name at least one in outputs=")
    return tuple(found)
