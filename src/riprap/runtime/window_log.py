"""An operator's output log as the record of its open windows: the driver's account of it, and what is due.

    log          | 40 | 41 | 42 | 43 | 44 | 45 |       a segment a batch, with results and records of windows
    live            7         90    1        4         windows whose newest record is there: 102 are open
    oldest         40                                  T: state is found in 40 to 45, and 41 to 45 are computed again
    extent          \\________ entries ________/       q, results and records; tuples read since 40 are u
    kept     K                                         what 39 would be found by: one damaged segment is survived

Windows are recorded anew, the oldest first, while more than the policy's bounds is to be read back, or computed again,
as far as a share of the time is enough. None of that has a part in what comes out: ``oldest`` and ``kept`` follow from
what is in the log, whatever was chosen.

The file ``windows.json`` beside the ledger says up to which batch records do not count, because the operator started
afresh after it: {"format": "riprap-windows/1", "after": 41}.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.adapters.retrying import Tell
from riprap.arrays import Ints
from riprap.protection import WindowTerms
from riprap.runtime.checkpointing.recollection import Recollection
from riprap.stage.recording import RecordOrder
from riprap.state.durable_files import load_json, save_json
from riprap.state.footprints import CLOSED, KINDS, OPEN, kinds_in, numbers_in

FORMAT = "riprap-windows/1"
_NAME = "windows.json"
# What is saved up of the share, at most, and what recording a window is taken to need until that is known.
_MOST_SAVED_SECONDS = 0.25
_FIRST_SECONDS = 2e-6
_ALL = 1 << 62


class WindowLog:
    """The windows of one element's operator. Batches are counted by one thread, and what is due is asked by another."""

    def __init__(
        self,
        terms: WindowTerms,
        home: Path,
        tell: Tell,
        *,
        operator: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms = terms
        self._home = home
        self._tell = tell
        self._operator = operator
        self._clock = clock
        self._lock = Lock()
        # By batch, oldest first: windows whose newest record is there; log entries and tuples read up to its end.
        self._live: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._oldest_at: dict[int, int] = {}
        self._batch = -1
        self._kept = -1
        self._saved_up = 0.0
        self._asked = clock()
        self._seconds_each = _FIRST_SECONDS
        self._renews = False
        self._renewed_by: int | None = None
        self._base = -1
        self._told = False
        self._written = dict.fromkeys(KINDS, 0)
        data = load_json(home / _NAME, FORMAT, {"after": int}, remedy="Put it back from a copy")
        self.after: int = -1 if data is None else data["after"]

    @property
    def open(self) -> int:
        """How many windows are open at the end of the newest batch in the log."""
        return sum(self._live.values())

    @property
    def oldest(self) -> int:
        """The oldest batch that has the newest record of an open window, or the newest batch where none is open."""
        return next(iter(self._live), self._batch)

    @property
    def kept(self) -> int:
        """The batch from which on records, log and input are kept: nobody asks for input up to it again."""
        return self._kept

    def begin_afresh(self, batch: int) -> None:
        """Let records up to a batch not count: the operator's state is empty after it."""
        save_json(self._home / _NAME, {"format": FORMAT, "after": batch})
        self.after = batch
        with self._lock:
            self._live.clear()

    def take_up(self, found: Recollection, sizes: Mapping[int, tuple[int, int]]) -> None:
        """Go on from what is in the log; ``sizes`` has entries, and tuples read, of each of its batches.

        Where some of it was damaged, all windows are recorded anew with the next batch.
        """
        with self._lock:
            self._live = dict(found.live)
            self._batch = max(sizes, default=found.batch)
            entries, read = 0, 0
            for batch in sorted(sizes):
                entries, read = entries + max(1, sizes[batch][0]), read + sizes[batch][1]
                self._entries[batch], self._read[batch] = entries, read
            self._renews = found.damaged
            # What went before the log begins was not wanted any more.
            self._kept = max(self._kept, min(sizes, default=0) or -1)
            self._base = self._oldest_at[found.batch] = found.base

    def count(self, batch: int, controls: Sequence[pa.RecordBatch], rows: int, read: int) -> int | None:
        """Count a batch that is going into the log; return how many windows are open then.

        After damage nobody knows until all are recorded anew.
        """
        with self._lock:
            if batch > self.after:
                self._count_windows(batch, controls)
            before = self._batch if self._batch in self._entries else None
            self._batch = batch
            records = sum(control.num_rows for control in controls)
            # A batch without any is a file all the same.
            self._entries[batch] = max(1, rows + records) + (
                self._entries[before] if before is not None else 0
            )
            self._read[batch] = read + (self._read[before] if before is not None else 0)
            return None if self._renews else self.open

    def noted(self, batch: int) -> None:
        """Take note that a batch is in the log for certain: what is older may go."""
        with self._lock:
            if self._renews:
                # What it would be found by, if the one that renews all were damaged.
                self._oldest_at[batch] = self._base
                return
            oldest = self._oldest_at[batch] = self.oldest
            self._kept = max(self._kept, self._oldest_at.get(oldest - 1, -1))
            for counted in (self._oldest_at, self._entries, self._read):
                while (first := next(iter(counted), self._kept)) < self._kept:
                    del counted[first]

    def _count_windows(self, batch: int, controls: Sequence[pa.RecordBatch]) -> None:
        added = 0
        for control in controls:
            kinds, before = kinds_in(control), numbers_in(control, "before")
            for number, kind in enumerate(KINDS):
                self._written[kind] += int(np.count_nonzero(kinds == number))
            for old, count in zip(*np.unique(before[kinds != OPEN], return_counts=True), strict=True):
                left = self._live.get(int(old), 0) - int(count)
                self._live[int(old)] = left
                if left <= 0:
                    del self._live[int(old)]
            added += int(np.count_nonzero(kinds != CLOSED))
        if self._renewed_by == batch:
            # Of what was damaged nothing is wanted any more.
            self._live.clear()
            self._renews, self._renewed_by = False, None
        if added:
            self._live[batch] = added

    def due(self, batch: int) -> RecordOrder:
        """Say which windows a new batch is to record, beside those that it must."""
        with self._lock:
            now = self._clock()
            self._saved_up = min(
                _MOST_SAVED_SECONDS, self._saved_up + self._terms.share * max(0.0, now - self._asked)
            )
            self._asked = now
            if self._renews:
                # One batch renews all; it may come again, and those after it are asked for before it is counted.
                self._renewed_by = batch if self._renewed_by is None else self._renewed_by
                return RecordOrder(upto=_ALL, most=_ALL) if batch == self._renewed_by else RecordOrder()
            if self._saved_up <= 0 or len(self._live) == 0:
                return RecordOrder()
            # One at least, however long the last took: what it takes beyond the share is saved up for afterwards.
            most = max(1, int(self._saved_up / self._seconds_each))
            upto = self._choose(most)
            return RecordOrder() if upto is None else RecordOrder(upto=upto, most=most)

    def learn(self, seconds: float, records: int, checks: int) -> None:
        """Take note of what it took to record so many windows, ``checks`` of which need not have been."""
        if checks:
            with self._lock:
                self._saved_up -= seconds * checks / records
                self._seconds_each += 0.3 * (seconds / records - self._seconds_each)

    def _choose(self, most: int) -> int | None:
        """Return up to which batch windows are to be recorded anew, None if there are none."""
        batches = np.fromiter(self._live, np.int64)
        # What is in the newest segment is as new as can be.
        batches = batches[batches < self._batch]
        if not len(batches):
            return None
        written = np.cumsum([self._live[int(b)] for b in batches])
        # Once those up to a batch are recorded anew, the oldest is the next one.
        following = np.append(batches[1:], self._batch)
        first = self._upto(self._entries, int(batches[0]) - 1)
        freed = np.array([self._upto(self._entries, int(b) - 1) - first for b in following])
        extent = self._upto(self._entries, self._batch) - first
        wanted = -1
        terms = self._terms
        if terms.extent is not None and extent > terms.extent:
            wanted = max(wanted, _enough(extent - freed + written <= terms.extent, freed - written))
            self._tell_unattainable(terms.extent)
        if terms.replay is not None:
            start = self._upto(self._read, int(batches[0]))
            again = self._upto(self._read, self._batch) - start
            spared = np.array([self._upto(self._read, int(b)) - start for b in following])
            if again > terms.replay:
                reached = np.flatnonzero(again - spared <= terms.replay)
                wanted = max(wanted, int(reached[0]) if len(reached) else len(batches) - 1)
        if terms.extent is None and terms.replay is None:
            wanted = _most_worth(freed - written)
        return int(batches[min(wanted, int(np.searchsorted(written, most)))]) if wanted >= 0 else None

    def _upto(self, counted: Mapping[int, int], batch: int) -> int:
        return counted.get(batch, 0)

    def _tell_unattainable(self, extent: int) -> None:
        if self.open > extent and not self._told:
            self._told = True
            self._tell(
                "warning",
                operator=self._operator,
                message=f"'{self._operator}' has {self.open:,} open windows, each with a record in its log, and is to "
                f"have no more than {extent:,} entries to read back (extent=): that cannot be. Windows are recorded "
                "as far as that shortens it; give extent= more, some twice the open windows",
            )

    @property
    def status(self) -> dict[str, Any]:
        """How it stands: for each line of metrics."""
        with self._lock:
            oldest = self.oldest
            return {
                "open": self.open,
                "oldest": oldest,
                "extent": self._upto(self._entries, self._batch) - self._upto(self._entries, oldest - 1),
                "replay": self._upto(self._read, self._batch) - self._upto(self._read, oldest),
                "records": dict(self._written),
            }


def _enough(reached: np.ndarray, gain: Ints) -> int:
    """Return the first place where a bound is kept; where it never is, that where most is gained, -1 if nothing is."""
    places = np.flatnonzero(reached & (gain > 0))
    return int(places[0]) if len(places) else _most_worth(gain)


def _most_worth(gain: Ints) -> int:
    best = int(np.argmax(gain))
    return best if gain[best] > 0 else -1
