"""Input for the experiments with checkpoints: files of two streams mixed, of which each is read as one batch.

The first file fills the window of S1, so that what is measured after it is a window that slides. A tuple of S1 is two
integers and a text of 70 bytes, one of S2 an integer and a text of 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Kind = Literal["single", "per-key", "zipf"]

SEED = 20090401
TEXT_BYTES, WORD_BYTES = 70, 10
# A tuple of S2 meets window / 4096 others: 2 at the smallest window of the single-window join, 32 at the largest.
SINGLE_NUMBERS = 4096
KEYS, OTHER_KEYS = 50, 600
PER_KEY_WINDOW = 1024
ZIPF_FILL = 200_000

_PART = pa.schema(
    [
        ("seq", pa.int64()),
        ("whole", pa.int32()),
        ("side", pa.int32()),
        ("number", pa.int32()),
        ("other", pa.int32()),
        ("text", pa.string()),
        ("word", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Feed:
    """Files in the order of their batches; how many tuples each has, and how many of them enter the window."""

    files: tuple[Path, ...]
    rows: tuple[int, ...]
    entering: tuple[int, ...]

    def first(self, batches: int) -> Feed:
        """Return the first so many batches."""
        return Feed(self.files[:batches], self.rows[:batches], self.entering[:batches])


@dataclass(frozen=True)
class Maker:
    """Makes the tuples of an experiment, the same ones for one seed."""

    kind: Kind
    window: int
    seed: int = SEED

    @property
    def fill(self) -> int:
        """How many tuples of S1 come first."""
        match self.kind:
            case "single":
                return self.window
            case "per-key":
                return 2 * KEYS * self.window
            case "zipf":
                return ZIPF_FILL * self.window // PER_KEY_WINDOW

    @cached_property
    def _odds(self) -> npt.NDArray[np.float64]:
        weights = 1.0 / np.arange(1, OTHER_KEYS + 1)
        odds: npt.NDArray[np.float64] = weights / weights.sum()
        return odds

    def part(self, number: int, start: int, rows: int, *, mixed: bool) -> pa.Table:
        """Make the tuples of file ``number``; where they are ``mixed``, every other one is of S2."""
        random = np.random.default_rng([self.seed, self.window, number])
        side = (
            random.permutation(np.arange(rows, dtype=np.int32) % 2 + 1) if mixed else np.ones(rows, np.int32)
        )
        first = side == 1
        match self.kind:
            case "single":
                numbers = random.integers(0, SINGLE_NUMBERS, rows)
            case "per-key":
                numbers = np.where(
                    first, random.integers(0, KEYS, rows), random.integers(0, OTHER_KEYS, rows)
                )
            case "zipf":
                ranked = random.choice(OTHER_KEYS, rows, p=self._odds)
                numbers = np.where(first, ranked, random.integers(0, OTHER_KEYS, rows))
        columns = [
            np.arange(start, start + rows),
            np.zeros(rows, np.int32),
            side,
            numbers.astype(np.int32),
            random.integers(0, 1 << 31, rows, np.int32),
            letters(random, rows, TEXT_BYTES, first),
            letters(random, rows, WORD_BYTES, ~first),
        ]
        return pa.table([pa.array(c) if isinstance(c, np.ndarray) else c for c in columns], schema=_PART)

    def write(self, folder: Path, *, batches: int, batch_rows: int) -> Feed:
        """Write the file that fills the window and so many of so many tuples."""
        folder.mkdir(parents=True)
        sizes = [self.fill, *[batch_rows] * batches]
        files, entering, start = [], [], 0
        for number, rows in enumerate(sizes):
            table = self.part(number, start, rows, mixed=number > 0)
            files.append(folder / f"{number:05d}.parquet")
            pq.write_table(table, files[-1], compression="none")
            entering.append(int((table.column("side").to_numpy() == 1).sum()))
            start += rows
        return Feed(tuple(files), tuple(sizes), tuple(entering))

    def tuple_bytes(self) -> float:
        """Return the bytes of a tuple of S1 in Arrow's layout."""
        rows = 1000
        table = self.part(0, 0, rows, mixed=False).select(["number", "other", "text"])
        return float(table.nbytes) / rows


def letters(random: np.random.Generator, rows: int, width: int, where: npt.NDArray[np.bool_]) -> pa.Array:
    """Return texts of random letters, empty where they are not wanted."""
    many = int(where.sum())
    data = random.integers(97, 123, many * width, np.uint8)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(where * width, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
