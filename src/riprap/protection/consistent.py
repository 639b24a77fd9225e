"""Consistent regions: an operator, and all it reaches, whose results count exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from riprap.durations import Duration, seconds
from riprap.protection.policy import (
    Aftermath,
    Losable,
    OperatorOutage,
    Policy,
    Protectable,
    Protection,
    RegionTerms,
    Surroundings,
    Trigger,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistent(Policy):
    """Make the operator, and all it reaches, a region whose results count exactly once."""

    terms: RegionTerms

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        if operator.unrepeatable is None:
            return None
        why_not, remedy = operator.unrepeatable
        return f"it cannot start a consistent region: {why_not}", remedy

    def begins(self, operator: Protectable) -> RegionTerms:
        return self.terms

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        if outage.memory == "lost" and not self.terms.survives("host"):
            return Policy.after(self, operator, outage)
        # What it had not finished is sent to it again.
        return Aftermath(misses=False, holds="kept")

    def modelled(self, operator: Protectable, graph: Surroundings) -> Mapping[str, Protection]:
        every = self.terms.period or 0.0
        return dict.fromkeys(
            graph.reached_from(operator.name), Protection(restore="whole", kept=True, every=every)
        )

    def describe(self) -> str:
        return f"begins a consistent region, {self.terms}"


def consistent(
    *,
    trigger: Trigger = "periodic",
    period: Duration | None = None,
    drain_timeout: Duration = "180s",
    reset_timeout: Duration = "180s",
    max_consecutive_reset_attempts: int = 5,
    durable: Losable = "host",
) -> Consistent:
    """Describe a consistent region that starts at an operator.

    A cut of it is made every ``period``, or with ``trigger="operator"`` whenever that operator says so, as a folder
    scan does after each file. ``durable`` says what it survives the loss of: a "process", the memory of a "host", or
    the "power". A cut that takes longer than ``drain_timeout`` is told, and a recovery that takes longer than
    ``reset_timeout`` has failed; after so many attempts in a row the region halts, and waits for somebody.

    >>> print(rr.consistent(period="2s").describe())
    begins a consistent region, cut every 2 s, survives the loss of a host's memory
    """
    timed = trigger == "periodic" or period is not None
    return Consistent(
        terms=RegionTerms(
            trigger=trigger,
            period=seconds("consistent(period=...)", period) if timed else None,  # type: ignore[arg-type]
            drain_timeout=seconds("consistent(drain_timeout=...)", drain_timeout),
            reset_timeout=seconds("consistent(reset_timeout=...)", reset_timeout),
            max_consecutive_reset_attempts=max_consecutive_reset_attempts,
            durable=durable,
        )
    )
