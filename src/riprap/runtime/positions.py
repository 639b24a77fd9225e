"""See to it that the positions of a source do not fall.

A batch is computed in the order of positions, so one that falls from one batch to the next would make results depend
on where batches end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from riprap.errors import RunError
from riprap.feeds.reading import read_rows
from riprap.feeds.segments import SegmentLog
from riprap.operators.source import Source


class Positions:
    """The positions of a source with a position column, looked at batch by batch, before each is planned."""

    def __init__(self, source: Source, log: SegmentLog) -> None:
        assert source.position is not None
        self._source, self._log, self._column = source, log, source.position
        self._seen: tuple[int, int] | None = None

    def check(self, start: int, end: int) -> None:
        """Look at rows [start, end), and at the one before them, which may have been looked at or not."""
        if end <= start:
            return
        before = [self._seen[1]] if self._seen is not None and self._seen[0] == start else []
        first = start - 1 if not before and self._is_there(start - 1) else start
        rows = read_rows(self._log.between(first, end), first, end, self._source, [self._column])
        positions, first = np.concatenate((np.array(before, np.int64), rows.position)), first - len(before)
        falls = np.flatnonzero(positions[1:] < positions[:-1]) + 1
        if len(falls):
            place = int(falls[0])
            (segment,) = self._log.between(first + place, first + place + 1)
            raise RunError(
                f"source '{self._source.name}' ({self._source.location}): its position column '{self._column}' falls "
                f"from {positions[place - 1]} to {positions[place]} at row {first + place}, in {segment.file}, so "
                "results would depend on the size of batches. Sort its input, or leave out position=, and tuples are "
                "counted as they come"
            )
        self._seen = end, int(positions[-1])

    def _is_there(self, row: int) -> bool:
        return row >= 0 and any(Path(s.path).exists() for s in self._log.between(row, row + 1))
