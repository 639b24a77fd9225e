"""What a batch pays for its channel as more segments are kept, as in a consistent region with a long period.

    python benchmarks/kept_segments.py [--kept 10 100 1000 10000]

Segments of one row are kept; then batches come, are read, and the oldest are acknowledged and removed. Medians in ms.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from riprap.channels import ChannelReader, ChannelWriter

BATCHES = 21
STEPS = ("append", "frontier", "next", "count", "read", "acknowledge", "trim")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kept", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    print(f"{'kept':>8}" + "".join(f"{step:>13}" for step in (*STEPS, "but append")))
    for kept in parser.parse_args().kept:
        with tempfile.TemporaryDirectory() as folder:
            medians = measure(Path(folder) / "channel", kept)
        shown = [*medians, sum(medians[1:])]
        print(f"{kept:>8,}" + "".join(f"{each:>13.2f}" for each in shown))


def measure(folder: Path, kept: int) -> list[float]:
    """Return what each step of a batch takes, with so many segments before it."""
    schema = pa.schema([("n", pa.int64())])
    writer = ChannelWriter(folder, stream="s", schema=schema, tags=1, key=None, buckets=1, readers=["r"])
    reader = ChannelReader(folder, "r")

    def append(number: int) -> None:
        row = pa.record_batch({"n": pa.array([number]), "$0": pa.array([number])})
        writer.append(number, row, None, frontier=number, sources={})

    def read(number: int) -> None:
        assert reader.read(number - 1, number, ["n"])[0].column("n").to_pylist() == [number]

    steps: list[Callable[[int], object]] = [
        append,
        lambda number: reader.frontier,
        lambda number: reader.next(number - 1, 100),
        lambda number: reader.count(number - 1, number),
        read,
        lambda number: reader.acknowledge(number - kept),
        lambda number: writer.trim(),
    ]
    for number in range(kept):
        append(number)
    times: list[list[float]] = [[] for _ in steps]
    for number in range(kept, kept + BATCHES):
        for taken, step in zip(times, steps, strict=True):
            began = time.perf_counter()
            step(number)
            taken.append(1e3 * (time.perf_counter() - began))
    return [statistics.median(taken) for taken in times]


if __name__ == "__main__":
    main()
