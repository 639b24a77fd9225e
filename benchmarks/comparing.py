"""What it takes to compare the logs of two replicas: processor seconds a million rows and a gigabyte.

    python benchmarks/comparing.py

Batches of 100 to 100,000 rows of five columns (text, two numbers, a time, a flag) with two numbers of a tag, in 16
buckets; cut alike in both logs, or not. What is read is in the page cache, as it is when a log was just written.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from riprap.channels import ChannelWriter
from riprap.channels.comparison import LogComparison
from riprap.channels.replicas import newest_log

SCHEMA = pa.schema(
    [
        ("ticker", pa.string()),
        ("price", pa.float64()),
        ("size", pa.int64()),
        ("at", pa.timestamp("us")),
        ("open", pa.bool_()),
    ]
)


def rows_of(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    columns = [
        pa.array([f"T{n % 3000}" for n in numbers.tolist()]),
        pa.array(numbers / 7),
        pa.array(numbers),
        pa.array(numbers, pa.timestamp("us")),
        pa.array(numbers % 2 == 0),
        pa.array(numbers),
        pa.array(np.zeros(count, np.int64)),
    ]
    return pa.RecordBatch.from_arrays(columns, [*SCHEMA.names, "$0", "$1"])


def write(channel: Path, letter: str, rows: int, batch: int, first: int) -> None:
    writer = ChannelWriter(
        newest_log(channel, letter).folder,
        stream="quotes", schema=SCHEMA, tags=2, key=("ticker",), buckets=16, readers=["out"], notes=channel,
    )  # fmt: skip
    at = 0
    while at < rows:
        count = min(first if at == 0 else batch, rows - at)
        writer.append(
            writer.batch + 1,
            rows_of(at, count),
            None,
            frontier=at + count - 1,
            sources={"quotes": [at, at + count]},
        )
        at += count


def measure(rows: int, batch: int, *, alike: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for letter in "ab":
            write(Path(folder), letter, rows, batch, batch if alike or letter == "a" else batch // 3)
        comparison = LogComparison(Path(folder), "ab")
        began, looked, longest = time.process_time(), 0, 0.0
        while True:
            start = time.perf_counter()
            assert not comparison.look()
            longest = max(longest, time.perf_counter() - start)
            looked += 1
            if not comparison.behind:
                break
        seconds, counts = time.process_time() - began, comparison.counts
    assert counts.rows == 2 * rows
    print(
        f"batches of {batch:>7,}, cut {'alike' if alike else 'apart'}: {seconds / rows * 1e6:6.3f} s a million rows of "
        f"each log, {seconds / counts.bytes * 1e9:6.3f} s a GB read; {looked} looks, the longest {longest:.3f} s"
    )


if __name__ == "__main__":
    measure(1_000, 100, alike=False)
    for size in (100, 1_000, 10_000, 100_000):
        for same in (True, False):
            measure(20_000 if size == 100 else 200_000 if size == 1_000 else 1_000_000, size, alike=same)
