"""Fault-tolerance policies: what is written beside an operator as ``protect=``, each with all it means in one file.

Everybody else asks a policy through the methods of :class:`Policy`, and nobody for its type. One of yours is as good as
one of ours: derive from :class:`Policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from riprap.protection.autonomous import Autonomous, autonomous
from riprap.protection.checkpoint import Checkpoint, checkpoint
from riprap.protection.consistent import Consistent, consistent
from riprap.protection.eventual import Eventual, eventual
from riprap.protection.policy import (
    LOSSES,
    Aftermath,
    Losable,
    OperatorOutage,
    Policy,
    Protectable,
    Protection,
    RegionTerms,
    Saving,
    Settled,
    Surroundings,
    objection_to,
)
from riprap.protection.window_terms import WindowTerms

__all__ = [
    "LOSSES",
    "POLICIES",
    "Aftermath",
    "Autonomous",
    "Checkpoint",
    "Consistent",
    "Eventual",
    "Losable",
    "OperatorOutage",
    "Policy",
    "Protectable",
    "Protection",
    "RegionTerms",
    "Saving",
    "Settled",
    "Surroundings",
    "WindowTerms",
    "autonomous",
    "checkpoint",
    "consistent",
    "eventual",
    "objection_to",
]

# By the names that files say them with.
POLICIES: Mapping[str, Callable[..., Policy]] = {
    "checkpoint": checkpoint,
    "consistent": consistent,
    "eventual": eventual,
}
