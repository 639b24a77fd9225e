"""Write the feeds the benchmark reads: the same events, cut into files of each batch size."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from riprap.apps.market import write_feed

ROW_GROUP = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFiles:
    """A feed on disk, a file a batch."""

    files: tuple[Path, ...]
    rows_per_file: int
    events: int

    def first(self, events: int) -> FeedFiles:
        """Return the beginning of the feed: as many whole files as hold ``events`` events, at least one."""
        if events >= self.events:
            return self
        count = max(1, events // self.rows_per_file)
        rows = self.rows[:count]
        return FeedFiles(files=self.files[:count], rows_per_file=self.rows_per_file, events=sum(rows))

    @property
    def rows(self) -> list[int]:
        """The events of each file."""
        starts = range(0, self.events, self.rows_per_file)
        return [min(self.rows_per_file, self.events - start) for start in starts]


def make_feed(folder: Path, events: int, *, rows_per_file: int, seed: int) -> FeedFiles:
    """Write a feed and return its files in order."""
    write_feed(folder, events, seed=seed, rows_per_file=rows_per_file, row_group=ROW_GROUP)
    files = tuple(sorted(folder.glob("part-*.parquet")))
    last = files[-1].stat().st_mtime
    for number, file in enumerate(files):
        # Spark takes files in order of their age, to the millisecond; names mean nothing to it.
        moment = last - (len(files) - number)
        os.utime(file, (moment, moment))
    return FeedFiles(files=files, rows_per_file=rows_per_file, events=events)
