"""The log as its one writer knows it: what was added, set aside and removed, without looking into the folder.

Looking takes time for each file, and readers look at every batch. Where much is kept, as in a consistent region with
long periods, all but the newest segments are set aside in a folder that only who is behind looks into.
"""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path
from threading import Lock

from riprap.channels.folder import OLDER, list_segments, make_private, scan
from riprap.channels.segment import SegmentName

# So many segments lie in the channel's folder itself.
NEWEST = 256
# What waits to be compared is kept as long as it is no more than this.
_UNCOMPARED_SEGMENTS = NEWEST
_UNCOMPARED_ROWS = 1_000_000


class LogIndex:
    """The segments that readers may see, oldest first; threads of the writer may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        near = set(scan(folder))
        whole = list_segments(folder)
        self._older = deque(name for name in whole if name not in near)
        self._newer = deque(name for name in whole if name in near)
        self._lock = Lock()

    @property
    def newest(self) -> SegmentName | None:
        """The newest segment, None if there is none."""
        return self._newer[-1] if self._newer else None

    def add(self, name: SegmentName) -> None:
        """Note a segment that was put into the folder, and set the oldest there aside if it is one too many."""
        with self._lock:
            self._newer.append(name)
            while len(self._newer) > NEWEST:
                self._set_aside(self._newer[0])
                self._older.append(self._newer.popleft())

    def trim(self, frontier: int, compared: int | None = None, *, wanted: int | None = None) -> int:
        """Remove what ends at a frontier or before, but never the newest; return how many.

        What lies beyond ``compared`` stays, unless that is too much by now; so do batches from ``wanted`` on, however
        many.
        """
        removed = 0
        with self._lock:
            # Oldest first, so that a reader who looks meanwhile finds no hole behind which there is something.
            for names, folder in ((self._older, self._folder / OLDER), (self._newer, self._folder)):
                while names and names[0].frontier <= frontier and names[0] is not self._newer[-1]:
                    if wanted is not None and names[0].batch >= wanted:
                        return removed
                    if compared is not None and names[0].frontier > compared and not self._is_long():
                        return removed
                    (folder / names.popleft().file).unlink(missing_ok=True)
                    removed += 1
        return removed

    def _is_long(self) -> bool:
        newest, oldest = self._newer[-1], (self._older or self._newer)[0]
        segments = len(self._older) + len(self._newer)
        return segments > _UNCOMPARED_SEGMENTS or newest.position - oldest.position > _UNCOMPARED_ROWS

    def _set_aside(self, name: SegmentName) -> None:
        if not self._older:
            make_private(self._folder / OLDER)
        # Readers that miss a file that somebody removed say so.
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name.file).rename(self._folder / OLDER / name.file)
