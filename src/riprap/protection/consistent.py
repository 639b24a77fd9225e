"""Consistent regions: an operator, and all it reaches, whose results count exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from riprap.durations import Duration, seconds
from riprap.protection.policy import Aftermath, OperatorOutage, Policy, Protectable, Protection, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistent(Policy):
    """Make the operator, and all it reaches, a region whose results count exactly once."""

    CARRIED_OUT: ClassVar[bool] = False

    period: float

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        if operator.ports or operator.unrepeatable is None:
            return None
        why_not, remedy = operator.unrepeatable
        return f"it cannot start a consistent region: {why_not}", remedy

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        # What it had not finished is sent to it again.
        return Aftermath(misses=False, holds="kept")

    def modelled(self, operator: Protectable, graph: Surroundings) -> Mapping[str, Protection]:
        region = (operator.name, *graph.reached_from(operator.name))
        return dict.fromkeys(region, Protection(restore="whole", kept=True, every=self.period))

    def describe(self) -> str:
        return f"begins a consistent region, saved every {self.period:g} s"


def consistent(*, period: Duration) -> Consistent:
    """Describe a consistent region that starts at an operator.

    >>> rr.consistent(period="2s")
    Consistent(period=2.0)
    """
    return Consistent(period=seconds("consistent(period=...)", period))
