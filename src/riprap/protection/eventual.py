"""Continuous eventual checkpointing of an operator's open windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from riprap.durations import Duration, seconds
from riprap.errors import ModelError
from riprap.protection.policy import (
    Aftermath,
    OperatorOutage,
    Policy,
    Protectable,
    Protection,
    Surroundings,
    lacks_state,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eventual(Policy):
    """Save each open window now and then, in the operator's own output log."""

    CARRIED_OUT: ClassVar[bool] = False

    every: float

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        return lacks_state("eventual", operator)

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        # What it had not finished is sent to it again.
        return Aftermath(misses=False, holds="kept")

    def modelled(self, operator: Protectable, graph: Surroundings) -> Mapping[str, Protection]:
        raise ModelError(
            f"operator '{operator.name}': there is no model of Eventual yet. Name a technique with --technique"
        )

    def describe(self) -> str:
        return f"each open window saved every {self.every:g} s"


def eventual(*, every: Duration) -> Eventual:
    """Describe continuous eventual checkpointing of an operator's open windows.

    >>> rr.eventual(every="100ms")
    Eventual(every=0.1)
    """
    return Eventual(every=seconds("eventual(every=...)", every))
