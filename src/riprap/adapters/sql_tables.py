"""What sinks that write to SQL tables share: how batches are numbered, and what is read back."""

from __future__ import annotations

import pyarrow as pa

from riprap.adapters.casting import CastRows
from riprap.errors import RunError

# The column that says which batch a row is of, and the table that says what its numbers mean. A number a
# row costs a fifth of what the run's name and the batch would.
BATCH, BATCHES = "riprap_batch", "riprap_batches"


def whole(cast: CastRows, connector: object) -> pa.Table:
    """Return rows that were read back, or say that some are not what was written."""
    if cast.bad:
        index, reason = cast.bad[0]
        raise RunError(f"{connector}: row {index} cannot be read back: {reason}. Somebody changed the table")
    return cast.table
