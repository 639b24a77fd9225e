"""The rows of a source, found as they are asked for, and numbered.

Files, rows in memory and generated ones are looked at when a batch is chosen. What is fetched from a server is read by
a thread, ahead of the batches. Either way a row counts once its segment is written down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from riprap.adapters.retrying import Tell
from riprap.feeds.fetched_feed import FetchedFeed
from riprap.feeds.listed_feed import ListedFeed
from riprap.feeds.segments import SegmentLog
from riprap.graph import connectors
from riprap.operators.source import Source


class Feed(Protocol):
    """The numbered rows of a source."""

    log: SegmentLog

    def upto(self, start: int, rows: int) -> int:
        """Return where a batch that begins at a row may end; it has at most so many rows."""

    def find(self, end: int) -> None:
        """See to it that the rows before one are known: an earlier process saw them."""

    def ends_file(self, end: int) -> bool:
        """Say whether the rows before one end a file."""

    def release(self, offset: int) -> None:
        """Remove spooled rows before an offset: nobody will ask for them again."""

    @property
    def over(self) -> bool:
        """Whether all rows there are going to be are known: the input has ended, or its reading is to stop."""

    @property
    def ended(self) -> bool:
        """Whether the input has ended, which is written down and holds for whoever takes the run up."""

    def close(self) -> None:
        """Look for no more, and let go of what is held."""

    def fix(self) -> None:
        """Take no input into account that is not there now."""


def open_feed(
    source: Source,
    folder: Path,
    quarantine: Path,
    *,
    finite: bool,
    batch_rows: int,
    tell: Tell,
    by_file: bool = False,
) -> Feed:
    """Open the rows of a source; ``by_file``, no batch has rows of two files."""
    if isinstance(source.connector, connectors.Source):
        return FetchedFeed(source, folder, quarantine, finite=finite, batch_rows=batch_rows, tell=tell)
    return ListedFeed(source, folder, quarantine, finite=finite, by_file=by_file, tell=tell)
