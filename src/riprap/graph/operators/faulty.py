"""The operator that a fault is woven in with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from riprap.graph.faults import Fault
from riprap.graph.operators.base import Copies, Needed, PassesOn, Traits, passed_on

# What it is there for: a fault that is injected, or a lag by which streams interleave in another way.
Role = Literal["fault", "lag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty(PassesOn):
    """Passes tuples of a stream on to a target, but for what a fault, if there is one, does to some."""

    TRAITS: ClassVar[Traits] = Traits(does="does to tuples what a fault would")

    target: str
    stream: str
    role: Role = "fault"
    fault: Fault | None = None
    deep: bool = False

    @property
    def depth(self) -> int:
        # A place of its own, and the key.
        return 2 if self.deep else 0

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed),)

    def copies(self) -> Copies:
        # A key that is corrupted is still where it was: what is corrupted is the tuple, not the way it takes.
        return {name: frozenset({(0, name)}) for name in self.schema.names}

    def summary(self) -> str:
        return self.fault.describe() if self.fault is not None else "nothing yet"
