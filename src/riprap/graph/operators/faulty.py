"""The operator that a fault is woven in with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from riprap.graph.faults import Corruption, Duplication, Fault
from riprap.graph.operators.base import Copies, Needed, PassesOn, Traits, passed_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty(PassesOn):
    """Passes tuples on, but for what a fault does to some."""

    TRAITS: ClassVar[Traits] = Traits(does="does to tuples what a fault would")

    fault: Fault

    @property
    def depth(self) -> int:
        return 1 if self.fault.moves or isinstance(self.fault.model, Duplication) else 0

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed),)

    def copies(self) -> Copies:
        changed = self.fault.model.columns if isinstance(self.fault.model, Corruption) else ()
        return {name: frozenset({(0, name)}) for name in self.schema.names if name not in changed}

    def summary(self) -> str:
        return self.fault.describe()
