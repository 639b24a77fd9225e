"""Bring streams of one schema together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riprap.graph.builder import Builder
from riprap.graph.checks import Here
from riprap.graph.operator import PassesOn, Traits
from riprap.graph.stream import Stream
from riprap.protection import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(PassesOn):
    """Brings streams of one schema together."""

    TRAITS: ClassVar[Traits] = Traits(does="brings streams together")

    def summary(self) -> str:
        return ", ".join(self.inputs)


def union(app: Builder, name: str, *streams: Stream, protect: Policy | None = None) -> Stream:
    """Add a union: the tuples of several streams of one schema as one stream, in the order they arrive.

    >>> app = rr.Application("demo")
    >>> north, south = (app.source(name, rr.rows([], "item string")) for name in ("north", "south"))
    >>> print(app.union("all", north, south))
    stream 'all' (item string)
    """
    here = Here("Union", name, app, streams)
    inputs = here.port(streams)
    return here.add(
        Union(
            **here.basics(inputs, protect=protect),
            schema=inputs.schema,
        ),
    )
