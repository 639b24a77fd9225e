"""What a batch pays for being safe from a power cut: the same writes with and without syncing, taking turns.

    python benchmarks/syncing.py [--folder ON_THE_DISK_TO_MEASURE] [--json]

A batch writes its ledger record; with a channel, a segment; with a file sink that does not gather, a Parquet file. Each
is written with ``os.fsync`` as it is and with one that does nothing. What was written is read back and compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.channels import ChannelReader, ChannelWriter
from riprap.state.durable_files import put_in_place
from riprap.state.ledger import BatchRecord, Ledger, Manifest, Output

ROUNDS = 40
SIZES = (1_000, 10_000, 100_000, 500_000)
Write = Callable[[Path, int, pa.RecordBatch], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", default=".")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures = [measure(Path(folder), "record", 0, write_record)]
        for rows in SIZES:
            figures.append(measure(Path(folder), "segment", rows, segment_writer(Path(folder), rows)))
            figures.append(measure(Path(folder), "file", rows, write_file))
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{'what':<10}{'rows':>9}{'without, ms':>14}{'with, ms':>12}{'more, ms':>11}   quartiles of 'more'")
    for f in figures:
        low, high = f["quartiles"]
        times = f"{f['without']:>14.2f}{f['with']:>12.2f}{f['more']:>11.2f}"
        print(f"{f['what']:<10}{f['rows']:>9,}{times}   {low:.2f} to {high:.2f}")


def measure(folder: Path, what: str, rows: int, write: Write) -> dict[str, object]:
    """Write neighbours in turn, one synced and one not; return medians in milliseconds, and of the differences."""
    batch = pa.record_batch(
        {"n": np.arange(rows), "x": np.random.default_rng(7).random(rows), "$0": np.arange(rows)}
    )
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * ROUNDS):
        synced = number % 2 == 0
        with mock.patch("os.fsync", os.fsync if synced else lambda descriptor: None):
            began = time.perf_counter()
            write(folder, number, batch)
            times[synced].append(1e3 * (time.perf_counter() - began))
    more = [a - b for a, b in zip(times[True], times[False], strict=True)]
    low, _, high = statistics.quantiles(more, n=4)
    return {
        "what": what,
        "rows": rows,
        "without": statistics.median(times[False]),
        "with": statistics.median(times[True]),
        "more": statistics.median(more),
        "quartiles": (low, high),
    }


def write_record(folder: Path, number: int, batch: pa.RecordBatch) -> None:
    """Write a ledger record of four tasks with two slots of three pages each, and read it back."""
    pages = {f"operator{i}/0": tuple(f"0000-{number:010d}-0.{i}.{p}" for p in range(3)) for i in range(2)}
    record = BatchRecord(
        epoch=0,
        batch=number,
        sources={"source": (number, number + 1)},
        manifests=tuple(Manifest((2 * t, 2 * t + 2), pages) for t in range(4)),
        outputs={"sink": tuple(Output(f"page{t}", 5) for t in range(4))},
    )
    ledger = Ledger(str(folder / "ledger"))
    (folder / "ledger").mkdir(exist_ok=True)
    ledger.write(record)
    assert ledger.get(number) == record


def segment_writer(folder: Path, rows: int) -> Write:
    """Return what writes a segment to a channel, and looks for it."""
    writer = ChannelWriter(
        folder / f"channel-{rows}",
        stream="s",
        schema=pa.schema([("n", pa.int64()), ("x", pa.float64())]),
        tags=1,
        key=None,
        buckets=1,
        readers=["r"],
    )
    reader = ChannelReader(folder / f"channel-{rows}", "r")

    def write(folder: Path, number: int, batch: pa.RecordBatch) -> None:
        tagged = batch.set_column(2, "$0", pa.array(np.arange(rows) + number * rows))
        writer.append(number, tagged, None, frontier=(number + 1) * rows - 1, sources={})
        reader.acknowledge((number + 1) * rows - 1)
        assert reader.frontier == (number + 1) * rows - 1
        writer.trim()

    return write


def write_file(folder: Path, number: int, batch: pa.RecordBatch) -> None:
    """Write a Parquet file as a sink does, and count its rows."""
    temporary, path = folder / f"_part-{number}.parquet", folder / f"part-{number}.parquet"
    pq.write_table(pa.Table.from_batches([batch]), temporary, use_dictionary=False)
    put_in_place(temporary, path)
    assert pq.read_metadata(path).num_rows == batch.num_rows
    path.unlink()


if __name__ == "__main__":
    main()
