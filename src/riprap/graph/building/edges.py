"""Add sources, clocks and sinks."""

from __future__ import annotations

import pyarrow as pa

from riprap.expressions import check_type, type_name
from riprap.graph.building.builder import Builder
from riprap.graph.checks import Here, Port, has
from riprap.graph.connectors import FileSink, FromSpark, SinkConnector, SourceConnector
from riprap.graph.operators import Sink, Source
from riprap.graph.policies import Consistent, Policy
from riprap.graph.stream import Stream


class Edges(Builder):
    """Where tuples come in and go out."""

    def source(
        self,
        name: str,
        connector: SourceConnector,
        *,
        position: str | None = None,
        ordering: str | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a source.

        ``position`` names a column that says where in the source a tuple stands (ascending whole numbers);
        without it files and rows count their tuples, and a Spark DataFrame is taken to be unordered.
        ``ordering`` names a column by which tuples of several sources interleave; it must not fall within a source.
        """
        here = Here("Source", name, self)
        return self._add(_source(here, connector, position, ordering, protect))

    def clock(
        self,
        name: str,
        connector: SourceConnector,
        *,
        time: str,
        position: str | None = None,
        ordering: str | None = None,
    ) -> Stream:
        """Add a clock: a source whose tuples are ticks, each of which tells the time in column ``time``.

        Give it to operators as ``clock=``. Ticks reach every task, and replay as they were recorded.
        """
        here = Here("Clock", name, self)
        source = _source(here, connector, position, ordering, None, tick=time)
        kind = source.schema.field(time).type if time in source.schema.names else None
        if kind is None:
            raise here.error(f"time= names column '{time}', which does not exist", has(source.schema))
        if not pa.types.is_timestamp(kind):
            raise here.error(
                f"time= must name a timestamp, '{time}' is {type_name(kind)}", has(source.schema)
            )
        stream = self._add(source)
        return Stream(stream.name, stream.schema, self.root, ticks=True)

    def sink(
        self, name: str, stream: Port, connector: SinkConnector, *, protect: Policy | None = None
    ) -> None:
        """Add a sink."""
        here = Here("Sink", name, self, stream)
        inputs = here.port(stream)
        here.policy(protect, stateful=False)
        if isinstance(connector, FileSink):
            _check_format(here, connector, inputs.schema)
        self._add(
            Sink(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                connector=connector,
            )
        )


def _source(
    here: Here,
    connector: SourceConnector,
    position: str | None,
    ordering: str | None,
    protect: Policy | None,
    tick: str | None = None,
) -> Source:
    with here:
        schema = pa.schema([pa.field(f.name, check_type(f.type, f.name)) for f in connector.schema])
    for column, what in ((position, "position"), (ordering, "ordering")):
        if column is not None and column not in schema.names:
            raise here.error(f"{what}= names column '{column}', which does not exist", has(schema))
    if position is not None and not pa.types.is_signed_integer(schema.field(position).type):
        got = type_name(schema.field(position).type)
        raise here.error(f"position= must name a column of whole numbers, '{position}' is {got}", has(schema))
    if ordering is not None and not _orders(schema.field(ordering).type):
        got = type_name(schema.field(ordering).type)
        raise here.error(
            f"ordering= must name a column of whole numbers, dates or timestamps, '{ordering}' is {got}",
            has(schema),
        )
    if isinstance(protect, Consistent) and isinstance(connector, FromSpark) and position is None:
        raise here.error(
            "an unordered Spark source cannot be replayed, so it cannot start a consistent region",
            "Name its position= column",
        )
    here.policy(protect, stateful=False)
    return Source(
        name=here.full_name,
        location=here.location,
        ports=(),
        schema=schema,
        protect=protect,
        connector=connector,
        position=position,
        ordering=ordering,
        tick=tick,
    )


def _check_format(here: Here, connector: FileSink, schema: pa.Schema) -> None:
    """Refuse columns that a file format cannot hold."""
    cannot = {"json": pa.types.is_binary, "csv": pa.types.is_list}.get(connector.format)
    bad = [f for f in schema if cannot is not None and cannot(f.type)]
    if bad:
        kind = "binary" if pa.types.is_binary(bad[0].type) else "list"
        raise here.error(
            f"a {connector.format.upper()} file cannot hold the {kind} column '{bad[0].name}'",
            "Leave it out with a functor's select=",
        )


def _orders(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
