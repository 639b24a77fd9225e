"""The ends of a channel between processing elements: what the compiler puts where a stream is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riprap.graph.operator import Needed, Operator, PassesOn, Traits


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
