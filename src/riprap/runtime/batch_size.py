"""How many rows the next batch may have, where nobody says: as many as are computed in a fraction of a second.

A batch takes what is waiting. So batches are small while the application keeps up; when it is behind, they are as large
as this allows, which makes it quicker, and no larger, so that results do not come in long gaps.
"""

from __future__ import annotations

from riprap.graph.options import MOST_ROWS

TARGET_SECONDS = 0.25
_LEAST_ROWS = 1_000
_FIRST_ROWS = 100_000
# Of what a batch took so much counts: one may be slow, or quick, for a reason that is gone with it.
_WEIGHT = 0.3


class BatchSize:
    """Learns from each batch how large the next may be.

    >>> size = BatchSize()
    >>> for _ in range(20):
    ...     size.learn(rows=size.rows, seconds=size.rows / 1_000_000)
    >>> 230_000 < size.rows < 260_000
    True
    """

    def __init__(self) -> None:
        self._seconds_a_row: float | None = None

    @property
    def rows(self) -> int:
        """How many rows the next batch may have."""
        if self._seconds_a_row is None:
            return _FIRST_ROWS
        return int(min(MOST_ROWS, max(_LEAST_ROWS, TARGET_SECONDS / self._seconds_a_row)))

    def learn(self, *, rows: int, seconds: float) -> None:
        """Take a batch into account; a small one says more of what every batch costs than of how rows add to it."""
        if rows < self.rows // 2 or seconds <= 0:
            return
        # Averaged as times, not speeds: when rows become slow, the next batch is small already.
        before = seconds / rows if self._seconds_a_row is None else self._seconds_a_row
        self._seconds_a_row = _WEIGHT * seconds / rows + (1 - _WEIGHT) * before
