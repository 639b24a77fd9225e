"""A writer killed at any moment, and readers meanwhile: every row is seen once, and the next writer carries on."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from riprap.channels import ChannelReader, ChannelWriter, log_index

ROWS = 20_000
SCHEMA = pa.schema([("name", pa.string()), ("size", pa.int64())])
NAMES = pa.array([f"n{n}" for n in range(100)])
PROGRAM = """
import sys
from pathlib import Path
from riprap.channels import log_index
from tests.channels.test_crash import contents, open_log

log_index.NEWEST = int(sys.argv[2])
writer = open_log(Path(sys.argv[1]))
while True:
    batch = writer.batch + 1
    writer.append(batch, contents(batch), None, frontier=batch, sources={"feed": [batch, batch + 1]})
    writer.trim()
"""


def open_log(folder: Path) -> ChannelWriter:
    return ChannelWriter(
        folder, stream="s", schema=SCHEMA, tags=2, key=("name",), buckets=4, readers=["fast", "slow"]
    )


def contents(batch: int) -> pa.RecordBatch:
    """Return the rows of a batch, the same in every process."""
    made = np.random.default_rng(batch)
    count = int(made.integers(0, ROWS))
    return pa.record_batch(
        {
            "name": NAMES.take(pa.array(made.integers(0, len(NAMES), count))),
            "size": made.integers(0, 10**9, count),
            "$0": np.full(count, batch),
            "$1": np.arange(count),
        }
    )


class Follower:
    """A reader that checks each batch it reads."""

    def __init__(self, folder: Path, name: str) -> None:
        self.reader = ChannelReader(folder, name)
        self.reached: int | None = None

    def step(self, rows: int) -> bool:
        upto = self.reader.next(self.reached, rows)
        if upto is None:
            return False
        first = 0 if self.reached is None else self.reached + 1
        found, _ = self.reader.read(self.reached, upto, SCHEMA.names)
        assert found.equals(pa.Table.from_batches([contents(batch) for batch in range(first, upto + 1)]))
        self.reader.acknowledge(upto)
        self.reached = upto
        return True


@pytest.mark.parametrize("newest", [1, log_index.NEWEST])
def test_a_writer_killed_again_and_again(tmp_path: Path, newest: int) -> None:
    folder, chance = tmp_path / "log", random.Random(7)
    fast, slow = Follower(folder, "fast"), Follower(folder, "slow")
    for kill in range(10):
        before = fast.reader.frontier
        program = [sys.executable, "-c", PROGRAM, str(folder), str(newest)]
        with subprocess.Popen(program, cwd=Path(__file__).parents[2]) as writer:
            try:
                # Once it appends, within a few appends' time; the first time perhaps before anything is whole.
                patience = time.monotonic() + 30
                while kill and fast.reader.frontier == before:
                    assert writer.poll() is None
                    assert time.monotonic() < patience, "the writer writes nothing"
                    time.sleep(0.001)
                deadline = time.monotonic() + chance.uniform(0, 0.1)
                while time.monotonic() < deadline:
                    fast.step(3 * ROWS)
            finally:
                writer.kill()
        slow.step(ROWS)

    last = open_log(folder)
    assert not list(folder.glob(".*"))
    batch = last.batch + 1
    last.append(batch, contents(batch), None, frontier=batch, sources={})
    last.finish()

    while fast.step(3 * ROWS) or slow.step(10 * ROWS):
        pass
    assert fast.reached == slow.reached == batch
    assert batch > 10
    assert last.trim() > 0
    assert len(list(folder.rglob("*.segment"))) == 1
