"""What computes the batches of a processing element: tasks that stay, or a query that reads Spark's sources."""

from __future__ import annotations

from typing import Protocol


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
