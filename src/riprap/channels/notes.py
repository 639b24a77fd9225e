"""What a reader of a channel has noted: how far it is done, and what it leaves out.

``readers/<reader>.json`` in the channel's folder, replaced whole:

    {"format": "riprap-channel-reader/1", "acknowledged": 12,
     "skipped": [{"after": 3, "upto": 9, "lost": 41820}]}       null: nothing acknowledged; from the beginning

What is skipped is on record so that a batch that is read again leaves out the same rows. A power cut may take the
newest notes, or leave the file empty, which is as if there were none: what is not acknowledged stays in the log, and
whoever passes over what came meanwhile does so anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from riprap.channels.folder import make_private
from riprap.channels.segment import BEGIN
from riprap.state.durable_files import checking, fields_of, load_json, save_json

FORMAT = "riprap-channel-reader/1"
# Who compares the logs of replicas notes by this name how far that is; no element can have it.
COMPARED = "~compared"
_FOLDER = "readers"
_REMEDY = "Put it back from a copy; or remove it: then the channel keeps what the reader has had, until its next batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Rows a reader will never read: ``after`` < frontier value <= ``upto``, so many tuples."""

    after: int | None
    upto: int
    lost: int

    def spans(self, after: int | None, upto: int) -> bool:
        """Say whether it is just this range."""
        return (self.after, self.upto) == (after, upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """The notes of one reader."""

    acknowledged: int | None = None
    skipped: tuple[Skip, ...] = ()

    @classmethod
    def find(cls, folder: Path, reader: str) -> Notes:
        """Read a reader's notes; one that never wrote any has none."""
        path = _path(folder, reader)
        if path.exists() and not path.stat().st_size:
            return cls()
        data = load_json(path, FORMAT, {"acknowledged": int | None, "skipped": list}, remedy=_REMEDY)
        if data is None:
            return cls()
        with checking(path, _REMEDY):
            skipped = tuple(Skip(**skip) for skip in data["skipped"])
        return cls(acknowledged=data["acknowledged"], skipped=skipped)

    def save(self, folder: Path, reader: str) -> None:
        """Replace a reader's notes. They are not synced: the channel may keep more for it, and never less."""
        path = _path(folder, reader)
        make_private(folder)
        make_private(path.parent)
        save_json(path, {"format": FORMAT, **fields_of(self)}, synced=False)

    def skipping(self, after: int | None, upto: int, count: Callable[[], int]) -> Notes:
        """Note what is skipped; what is noted already is not counted again."""
        if upto <= (BEGIN if after is None else after) or any(s.spans(after, upto) for s in self.skipped):
            return self
        skip = Skip(after=None if after is None else int(after), upto=int(upto), lost=count())
        return replace(self, skipped=(*self.skipped, skip))

    def lost_between(self, after: int | None, upto: int) -> int:
        """Return how many tuples were lost when just this range was skipped, 0 if it never was."""
        return next((skip.lost for skip in self.skipped if skip.spans(after, upto)), 0)

    def wanted(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return (low, high] without what is skipped, as ranges in rising order.

        >>> Notes(skipped=(Skip(after=3, upto=9, lost=0),)).wanted(0, 12)
        [(0, 3), (9, 12)]
        """
        ranges = []
        for start, end in sorted((BEGIN if s.after is None else s.after, s.upto) for s in self.skipped):
            if low < min(start, high):
                ranges.append((low, min(start, high)))
            low = max(low, end)
        return [*ranges, (low, high)] if low < high else ranges


def withdraw(folder: Path, reader: str, frontier: int) -> None:
    """Take back that a reader is done with what comes after a frontier."""
    notes = Notes.find(folder, reader)
    if notes.acknowledged is not None and notes.acknowledged > frontier:
        replace(notes, acknowledged=int(frontier)).save(folder, reader)


def _path(folder: Path, reader: str) -> Path:
    return folder / _FOLDER / f"{quote(reader, safe='')}.json"
