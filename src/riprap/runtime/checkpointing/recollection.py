"""The windows of an operator, found in its output log by reading that backwards (`riprap.state.footprints`).

A segment that is damaged, and all after it, is left out: then the state is that of the batch before. What says how many
windows were open is in the footer of each segment; one without records, as its name says, is not opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from riprap.adapters.retrying import Tell
from riprap.channels.folder import OLDER, list_segments
from riprap.channels.segment import CONTROL, SegmentFile, SegmentName
from riprap.errors import ChannelError, FormatError
from riprap.state.footprints import CLOSED, ReadBack, kinds_in, numbers_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Recollection:
    """What a log says of the open windows at the end of a ``batch``.

    ``base`` is the oldest batch of their records, from which on batches are computed again; ``page`` has the windows,
    None if there are none. ``clock`` is the time of the operator's clock at the end of ``base``. ``damaged`` is whether
    newer segments were left out.
    """

    batch: int
    base: int
    page: pa.RecordBatch | None = None
    clock: int | None = None
    damaged: bool = False
    live: Mapping[int, int] = field(default_factory=dict)


def recollect(log: Path, *, upto: int, after: int, tell: Tell, operator: str) -> Recollection:
    """Find the windows that were open at the end of a batch; records of batches up to ``after`` do not count."""
    listed = [name for name in list_segments(log) if after < name.batch <= upto]
    damaged = False
    while listed:
        try:
            return _read_back(log, listed, damaged=damaged)
        except _DamagedSegmentError as error:
            message = f"{error}. Its windows, and those of newer segments, are computed again"
            tell("warning", operator=operator, message=message)
            damaged = True
            listed = [name for name in listed if name.batch < error.batch]
    reached = after if damaged or upto <= after else upto
    return Recollection(batch=reached, base=reached, damaged=damaged)


def sizes_of(log: Path, *, after: int, upto: int) -> dict[int, tuple[int, int]]:
    """Return the entries, and the tuples read, of each batch in a log between two."""
    sizes = {}
    for name in list_segments(log):
        if not after < name.batch <= upto:
            continue
        try:
            windows = _open(log, name).footer.windows or {}
        except (ChannelError, FormatError):
            windows = {}
        sizes[name.batch] = (name.rows + (name.records or 0), int(windows.get("read", 0)))
    return sizes


class _DamagedSegmentError(Exception):
    def __init__(self, batch: int, problem: Exception) -> None:
        super().__init__(str(problem))
        self.batch = batch


def _read_back(log: Path, listed: Sequence[SegmentName], *, damaged: bool) -> Recollection:
    newest = listed[-1]
    found = ReadBack(_footer(log, newest)["open"])
    for name in reversed(listed):
        if found.complete:
            break
        if name.records:
            for control in _controls(log, name):
                found.add(name.batch, control)
    try:
        oldest, page = found.recollect()
    except ChannelError as error:
        what = (
            f"the log in {log} does not have the windows that were open after batch {newest.batch}: {error}"
        )
        raise _DamagedSegmentError(newest.batch, ChannelError(what)) from error
    base = newest.batch if oldest is None else oldest
    clock = _footer(log, next(name for name in listed if name.batch == base)).get("clock")
    live: dict[int, int] = {}
    if page is not None:
        opened = numbers_in(page, "batch")[kinds_in(page) != CLOSED]
        live = {int(b): int(n) for b, n in zip(*np.unique(opened, return_counts=True), strict=True)}
    return Recollection(batch=newest.batch, base=base, page=page, clock=clock, damaged=damaged, live=live)


def _footer(log: Path, name: SegmentName) -> Mapping[str, int]:
    try:
        windows = _open(log, name).footer.windows
    except (ChannelError, FormatError) as error:
        raise _DamagedSegmentError(name.batch, error) from error
    if windows is None or "open" not in windows:
        raise _DamagedSegmentError(
            name.batch, ChannelError(f"segment {name.file} does not say how many windows are open")
        )
    return windows


def _controls(log: Path, name: SegmentName) -> list[pa.RecordBatch]:
    try:
        file = _open(log, name)
        return [file.read(n) for n, block in enumerate(file.footer.blocks) if block.kind == CONTROL]
    except (ChannelError, FormatError) as error:
        raise _DamagedSegmentError(name.batch, error) from error


def _open(log: Path, name: SegmentName) -> SegmentFile:
    try:
        return SegmentFile(log, name)
    except FileNotFoundError:
        return SegmentFile(log / OLDER, name)
