"""Add sources, clocks and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from riprap.expressions import holding, type_name
from riprap.graph import connectors
from riprap.graph.building.builder import Builder
from riprap.graph.checks import Here, Port, has
from riprap.graph.connectors import (
    FileSink,
    SinkConnector,
    SourceConnector,
    ToKafka,
    files,
    sink_of,
)
from riprap.graph.connectors.checks import has_bytes
from riprap.graph.connectors.promise import SINK_WORDS, SOURCE_WORDS, Promise, Word
from riprap.graph.operators import Operator, Sink, Source
from riprap.graph.stream import Stream
from riprap.protection import Policy


class Edges(Builder):
    """Where tuples come in and go out."""

    def source(
        self,
        name: str,
        connector: SourceConnector | str | Path,
        *,
        position: str | None = None,
        ordering: str | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a source: ``rr.files(...)`` or another connector, or the path of files that need no ``schema=``.

        ``position`` names a column that says where in the source a tuple stands (ascending whole numbers);
        without it files and rows count their tuples, and a Spark DataFrame is taken to be unordered.
        ``ordering`` names a column by which tuples of several sources interleave; it must not fall within a source.
        """
        here = Here("Source", name, self)
        return self._add(here, _source(here, connector, position, ordering, protect))

    def clock(
        self,
        name: str,
        connector: SourceConnector | str | Path,
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
        stream = self._add(here, source)
        return Stream(stream.name, stream.schema, self.root, ticks=True)

    def sink(
        self,
        name: str,
        stream: Port,
        connector: SinkConnector | str | Path,
        *,
        protect: Policy | None = None,
    ) -> None:
        """Add a sink: ``rr.parquet(...)`` or another connector, or the path of a folder for files.

        A path's ending says the format, .parquet, .csv or .json; one without an ending gets Parquet files.
        """
        here = Here("Sink", name, self, stream)
        inputs = here.port(stream)
        with here:
            connector = sink_of(connector) if isinstance(connector, str | Path) else connector
        if not isinstance(connector, SinkConnector):
            raise here.error(
                f"it writes to {_brief(connector)}", "Give it rr.parquet(...) or another sink, or a path"
            )
        _check_own(here, connector, SINK_WORDS)
        _check_folder(here, connector, self._operators.values())
        _check_columns(here, connector, inputs.schema)
        self._add(
            here,
            Sink(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                connector=connector,
            ),
        )


def _source(
    here: Here,
    connector: SourceConnector | str | Path,
    position: str | None,
    ordering: str | None,
    protect: Policy | None,
    tick: str | None = None,
) -> Source:
    with here:
        connector = files(connector) if isinstance(connector, str | Path) else connector
    if not isinstance(connector, SourceConnector):
        raise here.error(
            f"it reads {_brief(connector)}",
            "Give it rr.files(...) or another source, a path of files, or rr.rows(...) of a table in memory",
        )
    _check_own(here, connector, SOURCE_WORDS)
    with here:
        schema = pa.schema([pa.field(f.name, holding(f.type, f.name)) for f in connector.schema])
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


def _check_own(here: Here, connector: SourceConnector | SinkConnector, words: Mapping[Word, str]) -> None:
    """Refuse a connector of the user's own that says of itself what cannot be."""
    name = type(connector).__name__
    if not isinstance(connector.PROMISE, Promise):
        raise here.error(f"{name}.PROMISE is {connector.PROMISE!r}", "It is an rr.Promise(...)")
    if connector.PROMISE.word not in words:
        raise here.error(f"{name}.PROMISE is '{connector.PROMISE.word}'", f"It is one of {', '.join(words)}")
    if isinstance(connector, connectors.Source) and not isinstance(connector.schema, pa.Schema):
        raise here.error(f"{name}.schema is {_brief(connector.schema)}", "It is a pyarrow.Schema")
    if isinstance(connector, connectors.Source | connectors.Sink):
        with here:
            _ = connector.patience


def _check_folder(here: Here, connector: SinkConnector, operators: Iterable[Operator]) -> None:
    """Refuse a folder that another sink writes to: they would replace each other's files."""
    if not isinstance(connector, FileSink):
        return
    for other in operators:
        if not isinstance(other, Sink) or not isinstance(other.connector, FileSink):
            continue
        if other.connector.folder == connector.folder:
            spelled = (
                "" if other.connector.path == connector.path else f", there spelled {other.connector.path}"
            )
            raise here.error(
                f"sink '{other.name}' ({other.location}) writes to the folder {connector.path} already{spelled}",
                "Give each sink its own",
            )


def _brief(value: object) -> str:
    """Show what was given by mistake, which may be a whole table."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_columns(here: Here, connector: SinkConnector, schema: pa.Schema) -> None:
    """Refuse columns that the sink cannot hold."""
    if isinstance(connector, ToKafka) and connector.key is not None and connector.key not in schema.names:
        raise here.error(
            f"to_kafka(key=...) names column '{connector.key}', which does not exist", has(schema)
        )
    bad = [f for f in schema if not connector.holds(f.type)]
    if bad:
        kind = next((name for name, has_it in _KINDS if has_it(bad[0].type)), type_name(bad[0].type))
        what = f"a {connector.format.upper()} file" if isinstance(connector, FileSink) else str(connector)
        raise here.error(
            f"{what} cannot hold the {kind} column '{bad[0].name}'",
            "Leave it out with a functor's select=",
        )


_KINDS = (("binary", has_bytes), ("list", pa.types.is_list))


def _orders(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
