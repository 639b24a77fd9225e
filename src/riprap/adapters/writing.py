"""What a sink outside has to be able to do."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from riprap.adapters.casting import Cast
from riprap.errors import RunError

# Of SQL tables: the column that says which batch a row is of, and the table that says what its numbers mean. A number a
# row costs a fifth of what the run's name and the batch would.
BATCH, BATCHES = "riprap_batch", "riprap_batches"


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


def whole(found: Cast, connector: object) -> pa.Table:
    """Return rows that were read back, or say that some are not what was written."""
    if found.bad:
        index, reason = found.bad[0]
        raise RunError(f"{connector}: row {index} cannot be read back: {reason}. Somebody changed the table")
    return found.table
