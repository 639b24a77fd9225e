"""Where tuples go out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

from riprap.expressions import type_name
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams, has
from riprap.graph.connectors import FileSink, Memory, SinkConnector, ToKafka, sink_of
from riprap.graph.connectors.checks import has_bytes
from riprap.graph.connectors.promise import SINK_WORDS, Word
from riprap.graph.operator import Needed, Operator, Traits
from riprap.kernels.given import Given, Result
from riprap.operators.source import brief, check_own
from riprap.protection import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Operator):
    """Takes tuples out."""

    TRAITS: ClassVar[Traits] = Traits(does="takes tuples out", punctuation="ends here")

    connector: SinkConnector

    @property
    def promise(self) -> Word:
        return self.connector.PROMISE.word

    @property
    def outputs(self) -> tuple[str, ...]:
        return ()

    def run(self, given: Given) -> Result:
        return Result(outputs=given.inputs)

    def bare(self) -> Self:
        return replace(self, connector=Memory())

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (frozenset(self.schema.names),)

    def summary(self) -> str:
        return str(self.connector)


def sink(
    app: Builder,
    name: str,
    stream: Streams,
    connector: SinkConnector | str | Path,
    *,
    protect: Policy | None = None,
) -> None:
    """Add a sink: ``rr.parquet(...)`` or another connector, or the path of a folder for files.

    A path's ending says the format, .parquet, .csv or .json; one without an ending gets Parquet files.

    >>> app = rr.Application("demo")
    >>> app.sink("out", app.source("lines", rr.rows([], "line string")), rr.csv("lines"))
    """
    here = Here("Sink", name, app, stream)
    inputs = here.port(stream)
    with here:
        connector = sink_of(connector) if isinstance(connector, str | Path) else connector
    if not isinstance(connector, SinkConnector):
        raise here.error(
            f"it writes to {brief(connector)}", "Give it rr.parquet(...) or another sink, or a path"
        )
    check_own(here, connector, SINK_WORDS)
    _check_folder(here, connector, app.operators)
    _check_columns(here, connector, inputs.schema)
    here.add(
        Sink(
            **here.basics(inputs, protect=protect),
            schema=inputs.schema,
            connector=connector,
        ),
    )


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
