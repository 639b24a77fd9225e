"""How far an element's sinks and channels have had their batches for certain: a small file beside the ledger.

``handed``, one line of fixed length that is written over once a batch has been handed over:

    riprap-handed/1 0000000012          or -000000001: none has been

A process that dies in between leaves it behind the ledger by a few batches, which are then handed over again. It is not
forced to disk: after a power cut it may be older, or empty, and then what is newer counts as not handed over.
"""

from __future__ import annotations

import os
from pathlib import Path

from riprap.errors import FormatError

FORMAT = "riprap-handed/1"
NAME = "handed"


class Delivery:
    """The mark of one element. Reading makes nothing; the first :meth:`note` makes the file."""

    def __init__(self, home: Path) -> None:
        self._path = home / NAME
        self._file: int | None = None
        self.batch = self._read()

    def note(self, batch: int) -> None:
        """Write down that a batch has been handed over."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._file, f"{FORMAT} {batch:010d}\n".encode(), 0)
        self.batch = batch

    def take_back(self, batch: int) -> None:
        """Write down that batches beyond one have not been handed over after all."""
        if batch < self.batch:
            self.note(batch)
            # Records beyond it go next, and a mark that outlived them would say that they are lost.
            os.fsync(self._file)  # type: ignore[arg-type]

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> int:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return -1
        if not text.strip("\0"):
            # A power cut: nobody knows.
            return -1
        kind, _, batch = text.strip().partition(" ")
        if kind != FORMAT or not batch.removeprefix("-").isdecimal():
            raise FormatError(
                f"{self._path} is not of format {FORMAT}. Remove it: the newest batch is then handed over again"
            )
        return int(batch)
