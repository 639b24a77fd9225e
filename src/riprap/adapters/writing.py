"""What a sink outside has to be able to do."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Target(Protocol):
    """Takes the batches of a sink, in order.

    It raises ``ConnectionLost`` when the system cannot be reached: whoever writes tries again.
    """

    def open(self, *, resume: bool) -> None:
        """Make ready. A run that is not taken up again may remove what earlier ones wrote, if the user said so."""

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        """Write a batch; ``again`` if all or some of it may have been written before."""

    def read(self) -> pa.Table:
        """Return the rows of this run, where they can be read back."""

    def close(self) -> None:
        """Let go of the connection."""
