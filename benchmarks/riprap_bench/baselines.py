"""Bargain Discovery without Riprap, three ways: on plain Spark by key and by bucket, and a bare loop.

All three are written as well as their approach allows. The Spark ones leave to Catalyst what it does best
(columns, the test for trades) and keep flat or binary state, since `applyInPandasWithState` fails on arrays.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from riprap_bench.kernel import WINDOW, Windows

OUTPUT = "seq bigint, ticker string, vwap double, price double, size bigint, gain double"
READ = ["seq", "ticker", "kind", "price", "size"]
# Rows a batch and the moment it was complete, oldest batch first.
Completions = list[tuple[int, float]]

_KEY_STATE = ", ".join([f"n{i} double" for i in range(WINDOW)] + [f"v{i} bigint" for i in range(WINDOW)])
_BUCKET_STATE = "windows binary"


def by_key(events: DataFrame) -> DataFrame:
    """(b) Call Python once a ticker and batch, as the documentation of `applyInPandasWithState` suggests."""
    return events.groupBy("ticker").applyInPandasWithState(
        _one_ticker, OUTPUT, _KEY_STATE, "append", "NoTimeout"
    )


def _one_ticker(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    frame = _in_order(frames)
    trade = frame["trade"].to_numpy()
    price, size = frame["price"].to_numpy(), frame["size"].to_numpy()
    held = state.get if state.exists else (0.0,) * WINDOW + (0,) * WINDOW
    notional = np.concatenate([np.array(held[:WINDOW]), price[trade] * size[trade]])
    volume = np.concatenate([np.array(held[WINDOW:]), size[trade]])
    if trade.any():
        state.update((*notional[-WINDOW:].tolist(), *volume[-WINDOW:].tolist()))
    # Window i ends with the i-th trade of the batch; window 0 is what the state held.
    shares = np.lib.stride_tricks.sliding_window_view(volume, WINDOW).sum(axis=1)
    total = np.lib.stride_tricks.sliding_window_view(notional, WINDOW).sum(axis=1)
    average = np.divide(total, shares, out=np.full(len(total), np.nan), where=shares > 0)
    met = average[np.cumsum(trade)]
    rows = np.flatnonzero(~trade & (met > price))
    if len(rows):
        yield _bargains(frame["seq"].to_numpy(), key[0], price, size, rows, met[rows])


def by_bucket(events: DataFrame, *, buckets: int, partitions: int) -> DataFrame:
    """(c) Call Python once a bucket of tickers and batch, with a compiled kernel and state in one binary column.

    The bucket's numbers are chosen so that Spark's hash spreads the buckets evenly over the partitions, an
    expert's last step.
    """
    numbers = even_numbers(events.sparkSession, max(buckets, partitions))
    bucket = f.element_at(
        f.array(*(f.lit(n) for n in numbers)), f.pmod(f.hash("ticker"), f.lit(len(numbers))) + f.lit(1)
    )
    return (
        events.withColumn("bucket", bucket)
        .groupBy("bucket")
        .applyInPandasWithState(_one_bucket, OUTPUT, _BUCKET_STATE, "append", "NoTimeout")
    )


def even_numbers(spark: SparkSession, partitions: int) -> list[int]:
    """Find, for each partition, the smallest number that Spark's hash sends there."""
    number = f.col("id").cast("int")
    placed = spark.range(32 * partitions).select(number, f.pmod(f.hash(number), f.lit(partitions)))
    smallest: dict[int, int] = {}
    for value, partition in placed.collect():
        smallest[partition] = min(value, smallest.get(partition, value))
    return [smallest[partition] for partition in range(partitions)]


def _one_bucket(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    frame = _in_order(frames)
    slots: dict[str, int]
    slots, windows = pickle.loads(state.get[0]) if state.exists else ({}, Windows.empty())
    codes, tickers = pd.factorize(frame["ticker"])
    slot = np.array([slots.setdefault(t, len(slots)) for t in tickers], np.int64)[codes]
    windows.grow(len(slots))
    price, size = frame["price"].to_numpy(), frame["size"].to_numpy()
    rows, average = windows.find(slot, frame["trade"].to_numpy(), price, size)
    state.update((pickle.dumps((slots, windows), pickle.HIGHEST_PROTOCOL),))
    if len(rows):
        ticker = frame["ticker"].to_numpy()[rows]
        yield _bargains(frame["seq"].to_numpy(), ticker, price, size, rows, average)


def _in_order(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    parts = list(frames)
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    return frame if frame["seq"].is_monotonic_increasing else frame.sort_values("seq", ignore_index=True)


def _bargains(seq: Any, ticker: Any, price: Any, size: Any, rows: Any, average: Any) -> pd.DataFrame:
    price, size = price[rows], size[rows]
    gain = (average - price) * size
    return pd.DataFrame(
        {"seq": seq[rows], "ticker": ticker, "vwap": average, "price": price, "size": size, "gain": gain}
    )


def run_on_spark(
    spark: SparkSession,
    make: Callable[[DataFrame], DataFrame],
    files: Sequence[Path],
    *,
    out: Path,
    checkpoint: Path,
    rows: Sequence[int],
) -> Completions:
    """Run a baseline, a file a batch, into Spark's own Parquet sink; return when batches completed."""
    (folder,) = {file.parent for file in files}
    stream = spark.readStream.schema(spark.read.parquet(str(files[0])).schema)
    names = ",".join(file.name for file in files)
    stream = stream.option("maxFilesPerTrigger", 1).option("pathGlobFilter", f"{{{names}}}")
    events = stream.parquet(str(folder)).select(
        "seq", "ticker", (f.col("kind") == "trade").alias("trade"), "price", "size"
    )
    writer = make(events).writeStream.format("parquet").option("path", str(out))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows > 0]
    if len(progress) != len(files):
        raise AssertionError(f"{len(files)} files made {len(progress)} batches; one each was asked for")
    ends = [pd.Timestamp(p.timestamp).timestamp() + p.durationMs["triggerExecution"] / 1000 for p in progress]
    return list(zip(rows, ends, strict=True))


def run_bare(files: Sequence[Path], *, out: Path) -> Completions:
    """(d) Read the files, run the kernel over each, write a file each: what no Spark at all would take."""
    out.mkdir(parents=True)
    slots: dict[str, int] = {}
    windows = Windows.empty()
    completions = []
    for number, path in enumerate(files):
        with pq.ParquetFile(path, read_dictionary=["ticker", "kind"]) as file:
            table = file.read(READ).unify_dictionaries().combine_chunks()
        ticker = table.column("ticker").chunk(0)
        place = [slots.setdefault(t, len(slots)) for t in ticker.dictionary.to_pylist()]
        windows.grow(len(slots))
        slot = np.array(place, np.int64)[ticker.indices.to_numpy()]
        trade = pc.equal(table.column("kind"), "trade").to_numpy()
        price, size = table.column("price").to_numpy(), table.column("size").to_numpy()
        rows, average = windows.find(slot, trade, price, size)
        _write_bargains(out / f"part-{number:05d}.parquet", table, rows, average)
        completions.append((table.num_rows, time.time()))
    return completions


def _write_bargains(path: Path, table: pa.Table, rows: Any, average: Any) -> None:
    kept = table.select(["seq", "ticker", "price", "size"]).take(pa.array(rows))
    price, size = kept.column("price").to_numpy(), kept.column("size").to_numpy()
    columns = {
        "seq": kept.column("seq"),
        "ticker": kept.column("ticker").cast(pa.string()),
        "vwap": average,
        "price": price,
        "size": size,
        "gain": (average - price) * size,
    }
    pq.write_table(pa.table(columns), path)
