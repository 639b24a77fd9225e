"""Where tuples come in: sources, and clocks, which are sources of ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

from riprap.expressions import holding, type_name
from riprap.graph import connectors
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, has
from riprap.graph.connectors import Files, FromKafka, FromSpark, Rows, SinkConnector, SourceConnector, files
from riprap.graph.connectors.promise import SOURCE_WORDS, Promise, Word
from riprap.graph.operator import Needed, Operator, Traits
from riprap.graph.stream import Stream
from riprap.protection import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Operator):
    """Brings tuples in. ``tick`` makes it a clock: the column that holds the time of each tick."""

    TRAITS: ClassVar[Traits] = Traits(does="brings tuples in", punctuation="has no input")

    UNORDERED: ClassVar[Traits] = replace(TRAITS, why_not="a DataFrame without position= cannot be replayed")
    VARIANTS: ClassVar[Mapping[str, Traits]] = {"Source, unordered Spark": UNORDERED}

    connector: SourceConnector
    position: str | None
    ordering: str | None
    tick: str | None = None

    @property
    def traits(self) -> Traits:
        # What others read is kept before it is used, also where it cannot be asked for again.
        unordered = isinstance(self.connector, FromSpark) and self.position is None
        return self.UNORDERED if unordered else self.TRAITS

    @property
    def promise(self) -> Word | None:
        # Of a Spark DataFrame in no order nothing holds.
        return None if self.traits is self.UNORDERED else self.connector.PROMISE.word

    @property
    def marks(self) -> str:
        return "after each file" if isinstance(self.connector, Files) else ""

    @property
    def remedy(self) -> str:
        return "Name its position= column" if self.traits is self.UNORDERED else Operator.REMEDY

    def bare(self) -> Self:
        match self.connector:
            case Rows(schema=schema):
                return replace(self, connector=Rows(table=schema.empty_table()))
            case FromKafka():
                return replace(self, connector=replace(self.connector, options={}))
            case FromSpark():
                return replace(self, connector=replace(self.connector, build=str))
        return self

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return ()

    def summary(self) -> str:
        return str(self.connector)


def source(
    app: Builder,
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

    >>> app = rr.Application("demo")
    >>> print(app.source("sales", rr.rows([{"item": "tea", "price": 5}], "item string, price bigint")))
    stream 'sales' (item string, price bigint)
    """
    here = Here("Source", name, app)
    return here.add(_source(here, connector, position, ordering, protect))


def clock(
    app: Builder,
    name: str,
    connector: SourceConnector | str | Path,
    *,
    time: str,
    position: str | None = None,
    ordering: str | None = None,
) -> Stream:
    """Add a clock: a source whose tuples are ticks, each of which tells the time in column ``time``.

    Give it to operators as ``clock=``. Ticks reach every task, and replay as they were recorded.

    >>> app = rr.Application("demo")
    >>> clock = app.clock("clock", rr.ticks(every="1s"), time="time")
    >>> calls = app.source("calls", rr.rows([], "number string"))
    >>> print(app.delay("later", calls, time="5s", clock=clock))
    stream 'later' (number string)
    """
    here = Here("Clock", name, app)
    source = _source(here, connector, position, ordering, None, tick=time)
    kind = source.schema.field(time).type if time in source.schema.names else None
    if kind is None:
        raise here.error(f"time= names column '{time}', which does not exist", has(source.schema))
    if not pa.types.is_timestamp(kind):
        raise here.error(f"time= must name a timestamp, '{time}' is {type_name(kind)}", has(source.schema))
    stream = here.add(source)
    return Stream(stream.name, stream.schema, app.root, ticks=True)


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
            f"it reads {brief(connector)}",
            "Give it rr.files(...) or another source, a path of files, or rr.rows(...) of a table in memory",
        )
    check_own(here, connector, SOURCE_WORDS)
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
        **here.basics(protect=protect),
        schema=schema,
        connector=connector,
        position=position,
        ordering=ordering,
        tick=tick,
    )


def _orders(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def check_own(here: Here, connector: SourceConnector | SinkConnector, words: Mapping[Word, str]) -> None:
    """Refuse a connector of the user's own that says of itself what cannot be."""
    name = type(connector).__name__
    if not isinstance(connector.PROMISE, Promise):
        raise here.error(f"{name}.PROMISE is {connector.PROMISE!r}", "It is an rr.Promise(...)")
    if connector.PROMISE.word not in words:
        raise here.error(f"{name}.PROMISE is '{connector.PROMISE.word}'", f"It is one of {', '.join(words)}")
    if isinstance(connector, connectors.Source) and not isinstance(connector.schema, pa.Schema):
        raise here.error(f"{name}.schema is {brief(connector.schema)}", "It is a pyarrow.Schema")
    if isinstance(connector, connectors.Source | connectors.Sink):
        with here:
            _ = connector.patience


def brief(value: object) -> str:
    """Show what was given by mistake, which may be a whole table."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
