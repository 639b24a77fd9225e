"""Autonomous operators: those that stay outside of consistent regions, and what only they reach."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.protection.policy import Policy, Protectable


@dataclass(frozen=True, slots=True, kw_only=True)
class Autonomous(Policy):
    """Leave the operator, and what only it reaches, out of consistent regions."""

    def leaves(self, operator: Protectable) -> bool:
        return True

    def describe(self) -> str:
        return "outside of consistent regions, and what only it reaches"


def autonomous() -> Autonomous:
    """Describe an operator that no consistent region goes on to; without any region it says nothing.

    >>> rr.autonomous()
    Autonomous()
    """
    return Autonomous()
