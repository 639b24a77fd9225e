"""Independent, incremental checkpoints of one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.protection.policy import Policy, Protectable, Saving, lacks_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Policy):
    """Save the operator's state every so many seconds, keeping the newest versions.

    A group of at most ``group`` tuples of a window is saved, and can be lost, as one; by itself it is chosen by the
    size of tuples and the rate of each key.
    """

    every: float
    keep: int = 3
    group: int | Literal["auto"] = "auto"

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        return lacks_state("checkpoint", operator)

    def saving(self, operator: Protectable) -> Saving:
        return Saving(
            every=self.every, keep=self.keep, group=None if self.group == "auto" else int(self.group)
        )

    def keeps_input(self, operator: Protectable) -> bool:
        return operator.pairs

    def describe(self) -> str:
        return f"saved every {self.every:g} s, the newest {self.keep} kept"


def checkpoint(*, every: Duration, keep: int = 3, group: int | Literal["auto"] = "auto") -> Checkpoint:
    """Describe independent, incremental checkpoints of one operator.

    >>> rr.checkpoint(every="10s")
    Checkpoint(every=10.0, keep=3, group='auto')
    """
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
        raise GraphError(f"checkpoint(keep=...) takes a whole number of at least 1, got {keep!r}")
    if group != "auto" and (not isinstance(group, int) or isinstance(group, bool) or group < 1):
        raise GraphError(f"checkpoint(group=...) takes a number of tuples, or 'auto', got {group!r}")
    return Checkpoint(every=seconds("checkpoint(every=...)", every), keep=keep, group=group)
