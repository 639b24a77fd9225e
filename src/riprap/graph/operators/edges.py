"""Where tuples come in and go out: sources and sinks, and the ends of channels between processing elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from riprap.graph.connectors import FromSpark, SinkConnector, SourceConnector
from riprap.graph.connectors.promise import Word
from riprap.graph.operators.base import Needed, Operator, PassesOn, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Operator):
    """Brings tuples in. ``tick`` makes it a clock: the column that holds the time of each tick."""

    TRAITS: ClassVar[Traits] = Traits(does="brings tuples in", punctuation="has no input")

    UNORDERED: ClassVar[Traits] = replace(TRAITS, why_not="a DataFrame without position= cannot be replayed")

    connector: SourceConnector
    position: str | None
    ordering: str | None
    tick: str | None = None

    @property
    def traits(self) -> Traits:
        if isinstance(self.connector, FromSpark) and self.position is None:
            return self.UNORDERED
        return replace(self.TRAITS, why_not=self.connector.PROMISE.why_not)

    @property
    def promise(self) -> Word | None:
        """What holds after a failure, in a word; nothing of a Spark DataFrame in no order."""
        return None if self.traits is self.UNORDERED else self.connector.PROMISE.word

    @property
    def remedy(self) -> str:
        return "Name its position= column" if self.traits is self.UNORDERED else Operator.REMEDY

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return ()

    def summary(self) -> str:
        return str(self.connector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Operator):
    """Takes tuples out."""

    TRAITS: ClassVar[Traits] = Traits(does="takes tuples out", punctuation="ends here")

    connector: SinkConnector

    @property
    def traits(self) -> Traits:
        return replace(self.TRAITS, why_not=self.connector.PROMISE.why_not)

    @property
    def promise(self) -> Word:
        """What holds after a failure, in a word."""
        return self.connector.PROMISE.word

    @property
    def outputs(self) -> tuple[str, ...]:
        return ()

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (frozenset(self.schema.names),)

    def summary(self) -> str:
        return str(self.connector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlet(Operator):
    """Reads a stream of another processing element; its name is the stream's."""

    TRAITS: ClassVar[Traits] = Traits(does="reads a channel")

    tick: str | None = None

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet(PassesOn):
    """Writes a stream to a channel; its name says which."""

    TRAITS: ClassVar[Traits] = Traits(does="writes a channel")

    @property
    def outputs(self) -> tuple[str, ...]:
        return ()

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (frozenset(self.schema.names),)
