"""What computes the batches of a processing element: tasks that stay, or a query that reads Spark's sources."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Pulse(NamedTuple):
    """How an element stands: the newest batch handed over, whether another is under way, whether what is gone is being
    brought back, and how many batches have been computed again for that."""

    batch: int
    busy: bool
    restoring: bool
    again: int


class Stage(Protocol):
    """What computes an element's batches, one after the other."""

    @property
    def active(self) -> bool:
        """Whether batches go on."""

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""

    @property
    def restoring(self) -> bool:
        """Whether what is gone is still being brought back."""

    @property
    def again(self) -> int:
        """How many batches have been computed again so far."""

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, if anything did."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End between two batches."""

    def cut_off(self) -> None:
        """End in the middle of what there is, as a crash would."""

    def await_end(self, seconds: float) -> None:
        """Wait a while for the batches to end."""
