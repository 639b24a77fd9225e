"""Add functors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from riprap.expressions import Scope, Variables, parse_condition, parse_select, parse_variables
from riprap.graph.building.builder import Builder, schema_of
from riprap.graph.checks import Here, Port
from riprap.graph.operators import Functor
from riprap.graph.stream import Stream
from riprap.protection import Policy


class Functors(Builder):
    """Filter, project, compute."""

    def functor(
        self,
        name: str,
        stream: Port,
        *,
        where: str | None = None,
        select: str | None = None,
        variables: Mapping[str, str] | None = None,
        update: str | None = None,
        by: str | Sequence[str] = (),
        protect: Policy | None = None,
    ) -> Stream:
        """Add a filter (``where``), a projection or computed columns (``select``), or both.

        ``variables`` makes it remember: names with the value each starts from. Every tuple that comes in updates them
        (``update``: all new values are computed from the old ones), before ``where`` and ``select``, which may name
        them too. There is one set of variables for each key (``by``), or one in all.
        """
        here = Here("Functor", name, self, stream)
        inputs = here.port(stream)
        if where is None and select is None and variables is None:
            raise here.error("it does nothing", "Give it where=, select= or both")
        if (variables is None) != (update is None):
            raise here.error(
                "it has variables= without update=, or the other way round", "Give it both, or neither"
            )
        if by and variables is None:
            raise here.error(
                "it has a key, and nothing to keep by it", "Give it variables=, or leave out by="
            )
        keys = here.keys(by, inputs)
        kept: Variables | None = None
        schema = inputs.schema
        with here:
            if variables is not None and update is not None:
                kept = parse_variables(variables, update, Scope.of(inputs.schema), self._functions)
                schema = pa.schema([*inputs.schema, *kept.schema])
            scope = Scope.of(schema)
            condition = parse_condition(where, scope, self._functions) if where is not None else None
            chosen = parse_select(select if select is not None else "*", scope, self._functions)
        return self._add(
            here,
            Functor(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=schema_of(chosen),
                protect=protect,
                where=condition,
                select=chosen,
                by=keys,
                variables=kept,
            ),
        )
