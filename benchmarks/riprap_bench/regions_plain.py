"""Word count, log watch and VWAP on plain Structured Streaming with its checkpoints, as an expert writes them.

python -m riprap_bench.regions_plain FOLDER          what to run is in FOLDER/job.json

Word count and log watch are Spark's own expressions and aggregates. An average over the newest trades, put out at every
trade, takes a function with state: it is called once for each of as many buckets of tickers as there are cores, with a
compiled loop, and state in one binary column. A call a ticker, as documentation has it, is some ten times slower. A
batch is written under its number, so that one that is computed again takes the place of what it left.

A job has a process and a session of its own, set up for it: as many shuffle partitions as cores, state in RocksDB with
changelogs or in the store in memory, whichever is tried.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from riprap.apps.made_log import YEAR
from riprap.state.durable_files import save_json
from riprap_bench.baselines import even_numbers
from riprap_bench.regions_plan import Name
from riprap_bench.trial import CORES, MASTER, SETTINGS

Store = Literal["rocksdb", "memory"]
# Rows of a batch, the moment it was complete, and how many seconds it took.
Completions = list[tuple[int, float, float]]
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORES: Mapping[Store, Mapping[str, str]] = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": _PROVIDER,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    },
    "memory": {},
}
# Made when a job's session is there and its query about to start.
STARTED = "started"
# What came of it, in the end.
BATCHES = "batches.json"
# Its first batch has so long.
FIRST_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_WINDOW = 300_000_000  # microseconds: five minutes
_AVERAGES = (
    "seq bigint, ticker string, price double, vwap double, low double, high double, "
    "volume bigint, trades bigint"
)
_SSHD = r"sshd\[\d+\]: Failed password for .* from (\S+) port \d+ ssh2$"


def count_words(lines: DataFrame) -> DataFrame:
    """Say of every word that has come up how often it has so far."""
    plain = f.translate(f.lower("value"), "\N{RIGHT SINGLE QUOTATION MARK}", "'")
    words = lines.select(f.explode(f.split(plain, r"[^\p{L}\p{M}\p{N}']+")).alias("word"))
    trimmed = words.select(f.btrim("word", f.lit("'")).alias("word")).where("word != ''")
    return trimmed.groupBy("word").agg(f.count("*").alias("n"))


def find_attacks(lines: DataFrame) -> DataFrame:
    """Put out hosts that fail to log in five times with no pause of ten minutes, once they are quiet."""
    stamp = f.concat(f.lit(f"{YEAR} "), f.regexp_replace(f.substring("value", 1, 15), " +", " "))
    failed = lines.select(
        f.to_timestamp(stamp, "yyyy MMM d HH:mm:ss").alias("time"),
        f.regexp_extract("value", _SSHD, 1).alias("host"),
    ).where("host != ''")
    session = failed.withWatermark("time", "10 minutes").groupBy(
        "host", f.session_window("time", "10 minutes")
    )
    return (
        session.agg(f.min("time").alias("first"), f.max("time").alias("last"), f.count("*").alias("attempts"))
        .where("attempts >= 5")
        .select("host", "first", "last", "attempts")
    )


def keep_averages(events: DataFrame) -> DataFrame:
    """Put out the average price of each trade's ticker over the newest five minutes."""
    numbers = even_numbers(events.sparkSession, CORES)
    bucket = f.element_at(
        f.array(*map(f.lit, numbers)), f.pmod(f.hash("ticker"), f.lit(len(numbers))) + f.lit(1)
    )
    trades = events.where("kind = 'trade' and price > 0 and size > 0").select(
        "seq", f.unix_micros("time").alias("time"), "ticker", "price", "size", bucket.alias("bucket")
    )
    return trades.groupBy("bucket").applyInPandasWithState(
        _one_bucket, _AVERAGES, "held binary", "append", "NoTimeout"
    )


def _one_bucket(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    new = pd.concat(frames, ignore_index=True).sort_values("seq", ignore_index=True)
    slots, held = pickle.loads(state.get[0]) if state.exists else ({}, None)
    codes, tickers = pd.factorize(new["ticker"])
    code = np.array([slots.setdefault(ticker, len(slots)) for ticker in tickers], np.int64)[codes]
    columns = [code, *(new[name].to_numpy() for name in ("time", "price", "size"))]
    before = len(held[0]) if held is not None else 0
    if held is not None:
        columns = [np.concatenate(pair) for pair in zip(held, columns, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    code, time, price, size = (column[order] for column in columns)
    averages, lows, highs, volumes, trades = _averages(code, time, price, size, _WINDOW)
    # What the window of a ticker's last trade holds is what its next one may need.
    ends = np.append(np.flatnonzero(np.diff(code)), len(code) - 1)
    last = ends[np.searchsorted(ends, np.arange(len(code)))]
    stays = np.arange(len(code)) > last - trades[last]
    state.update((pickle.dumps((slots, [c[stays] for c in (code, time, price, size)])),))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = place[before:]
    yield pd.DataFrame(
        {
            "seq": new["seq"],
            "ticker": new["ticker"],
            "price": new["price"],
            "vwap": averages[rows],
            "low": lows[rows],
            "high": highs[rows],
            "volume": volumes[rows],
            "trades": trades[rows],
        }
    )


@numba.njit(cache=True)
def _averages(code: Any, time: Any, price: Any, size: Any, window: int) -> Any:
    """Go through trades by ticker, and in it by age; times are made to rise. The least and the greatest prices of a
    window are at the heads of two queues."""
    many = len(code)
    averages, lows, highs = np.empty(many), np.empty(many), np.empty(many)
    volumes, trades = np.empty(many, np.int64), np.empty(many, np.int64)
    low, high = np.empty(many, np.int64), np.empty(many, np.int64)
    first = low_head = low_end = high_head = high_end = 0
    notional, volume = 0.0, 0
    for n in range(many):
        if n == 0 or code[n] != code[n - 1]:
            first, notional, volume = n, 0.0, 0
            low_head = low_end = high_head = high_end = 0
        elif time[n] < time[n - 1]:
            time[n] = time[n - 1]
        notional, volume = notional + price[n] * size[n], volume + size[n]
        while time[first] <= time[n] - window:
            notional, volume = notional - price[first] * size[first], volume - size[first]
            first += 1
        while low_end > low_head and price[low[low_end - 1]] >= price[n]:
            low_end -= 1
        low[low_end], low_end = n, low_end + 1
        while low[low_head] < first:
            low_head += 1
        while high_end > high_head and price[high[high_end - 1]] <= price[n]:
            high_end -= 1
        high[high_end], high_end = n, high_end + 1
        while high[high_head] < first:
            high_head += 1
        averages[n], lows[n], highs[n] = notional / volume, price[low[low_head]], price[high[high_head]]
        volumes[n], trades[n] = volume, n - first + 1
    return averages, lows, highs, volumes, trades


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainJob:
    """A job of plain Spark: over which files, so many a trigger; for how long at most, once its first batch is done.

    It ends when it has read them all, or ``seconds`` are over, or has no batch within ``FIRST_SECONDS``; without
    ``seconds``, never.
    """

    name: Name
    files: tuple[str, ...]
    files_a_trigger: int
    store: Store
    seconds: float | None = None

    def start(self, spark: SparkSession, folder: Path) -> Any:
        """Start the query, with its results and its checkpoint in a folder."""
        make, text, mode = _JOBS[self.name]
        # Spark keeps what it tells of so many batches.
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(len(self.files) + 10))
        for number, file in enumerate(self.files):
            # Spark takes files in order of their age, to the millisecond; names mean nothing to it.
            os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
        stream = spark.readStream.option("maxFilesPerTrigger", self.files_a_trigger)
        (source,) = {str(Path(file).parent) for file in self.files}
        stream = stream.option("pathGlobFilter", f"{{{','.join(Path(file).name for file in self.files)}}}")
        rows = stream.text(source) if text else _parquet(spark, stream, source, self.files[0])
        writer = (
            make(rows).writeStream.outputMode(mode).option("checkpointLocation", str(folder / "checkpoint"))
        )
        put = writer.foreachBatch(lambda frame, batch: _put(frame, folder / "out" / f"batch={batch}"))
        return put.trigger(processingTime="0 seconds").start()


def session_for(store: Store) -> SparkSession:
    """Start a session for a plain job. With the store in memory files are written without a fork for each, as Riprap's
    sessions do it; RocksDB does not work with that."""
    from riprap.runtime.session import make_session

    return make_session(MASTER, {**SETTINGS, **STORES[store]})


def _parquet(spark: SparkSession, stream: Any, source: str, first: str) -> DataFrame:
    frame: DataFrame = stream.schema(spark.read.parquet(first).schema).parquet(source)
    return frame


def _put(frame: DataFrame, path: Path) -> None:
    # A batch that is computed again overwrites what it left.
    frame.write.mode("overwrite").parquet(str(path))


_JOBS: Mapping[Name, tuple[Callable[[DataFrame], DataFrame], bool, str]] = {
    "wordcount-files": (count_words, True, "update"),
    "logwatch": (find_attacks, True, "append"),
    "vwap": (keep_averages, False, "append"),
}


def _run(job: PlainJob, folder: Path) -> Completions:
    """Run a job until it is over; return how many rows each batch had, when it was complete, and how long it took."""
    session = session_for(job.store)
    (folder / STARTED).touch()
    query = job.start(session, folder)
    if job.seconds is None:
        query.awaitTermination()
    assert job.seconds is not None
    found: list[Any] = []
    over = time.time() + FIRST_SECONDS
    while query.isActive and time.time() < over and job.files_a_trigger * len(found) < len(job.files):
        query.awaitTermination(_LOOK_SECONDS)
        found = [p for p in query.recentProgress if p.numInputRows > 0]
        over = _end(found[0]) + job.seconds if found else over
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return [(p.numInputRows, _end(p), p.durationMs["triggerExecution"] / 1000) for p in found]


def _end(progress: Any) -> float:
    began: float = pd.Timestamp(progress.timestamp).timestamp()
    return began + float(progress.durationMs["triggerExecution"]) / 1000


def main(folder: Path) -> None:
    """Run the job that is described in a folder; who started this process ends it, with what it still computes."""
    told = json.loads((folder / "job.json").read_text())
    batches = _run(PlainJob(**{**told, "files": tuple(told["files"])}), folder)
    save_json(folder / BATCHES, {"batches": batches})
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
