"""Continuous eventual checkpointing: each open window saved by itself, in the operator's own output log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from riprap.errors import GraphError
from riprap.protection.policy import (
    Aftermath,
    OperatorOutage,
    Policy,
    Protectable,
    Protection,
    Surroundings,
    lacks_state,
)
from riprap.protection.window_terms import WindowTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Eventual(Policy):
    """Save each open window when it opens and now and then, in the operator's own output log."""

    terms: WindowTerms

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        return lacks_state("eventual", operator) or operator.undivided

    def records(self, operator: Protectable) -> WindowTerms | None:
        return self.terms

    def keeps_input(self, operator: Protectable) -> bool:
        return True

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        # What it had not finished is sent to it again.
        return Aftermath(misses=False, holds="kept")

    def modelled(self, operator: Protectable, graph: Surroundings) -> Mapping[str, Protection]:
        return {operator.name: Protection(restore="whole", kept=True)}

    def describe(self) -> str:
        return f"each open window recorded in its output log, {self.terms}"


def eventual(*, extent: int | None = None, replay: int | None = None, share: float | str = "5%") -> Eventual:
    """Describe continuous eventual checkpointing of an operator's open windows, which loses and doubles nothing.

    A window is recorded among the results when it opens; the one with the oldest record is recorded anew while more
    than ``extent`` entries of the log have to be read back after a loss, or more than ``replay`` tuples to be computed
    again, for at most a ``share`` of the time. Where neither is given, it is while that shortens what is read back by
    more than it adds.

    >>> print(rr.eventual(extent=200_000, replay=1_000_000).describe())
    each open window recorded in its output log, at most 200,000 entries to read back and 1,000,000 tuples to compute \
again, for 5% of the time
    """
    return Eventual(terms=WindowTerms(extent=extent, replay=replay, share=_share(share)))


def _share(given: float | str) -> float:
    try:
        if isinstance(given, str):
            number = float(given.strip().removesuffix("%")) / (100.0 if given.strip().endswith("%") else 1.0)
        else:
            number = float(given)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(given, bool) or not 0 < number <= 1:
        raise GraphError(f"eventual(share=...) takes a part of the time, such as '5%' or 0.05, got {given!r}")
    return number
