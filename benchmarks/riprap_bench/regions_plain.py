"""Word count, log watch and VWAP on plain Structured Streaming with its checkpoints, as a good user writes them.

Word count and log watch are Spark's own expressions and aggregates; an average over the newest trades, put out at every
trade, takes a function with state. Each batch is a file, written by ``foreachBatch`` under its number where a result
changes, and by Spark's file sink where it does not.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from riprap.apps.made_log import YEAR
from riprap_bench.checkpoint_feeds import Feed
from riprap_bench.regions_plan import Name
from riprap_bench.trial import SETTINGS

Completions = list[tuple[int, float, float]]
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
    trades = events.where("kind = 'trade' and price > 0 and size > 0").select(
        "seq", f.unix_micros("time").alias("time"), "ticker", "price", "size"
    )
    return trades.groupBy("ticker").applyInPandasWithState(
        _one_ticker, _AVERAGES, "held binary", "append", "NoTimeout"
    )


def _one_ticker(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    new = pd.concat(frames, ignore_index=True).sort_values("seq", ignore_index=True)
    seq = new["seq"].to_numpy()
    arrays = [new[name].to_numpy() for name in ("time", "price", "size")]
    held = pickle.loads(state.get[0]) if state.exists else [array[:0] for array in arrays]
    time, price, size = (np.concatenate(pair) for pair in zip(held, arrays, strict=True))
    time = np.maximum.accumulate(time)
    ends = np.arange(len(held[0]), len(time)) + 1
    starts = np.searchsorted(time, time[ends - 1] - _WINDOW, side="right")
    notional, volume = np.cumsum(np.append(0.0, price * size)), np.cumsum(np.append(0, size))
    shares = volume[ends] - volume[starts]
    state.update((pickle.dumps([array[starts[-1] :] for array in (time, price, size)]),))
    windows = [price[a:b] for a, b in zip(starts, ends, strict=True)]
    yield pd.DataFrame(
        {
            "seq": seq,
            "ticker": key[0],
            "price": price[ends - 1],
            "vwap": (notional[ends] - notional[starts]) / shares,
            "low": [window.min() for window in windows],
            "high": [window.max() for window in windows],
            "volume": shares,
            "trades": ends - starts,
        }
    )


def run_plain(spark: SparkSession, name: Name, feed: Feed, folder: Path) -> Completions:
    """Run a job, a file a batch; return how many rows each batch had, when it was complete, and how long it took."""
    query = start_plain(spark, name, feed.files[0].parent, folder, feed.files, available_now=True)
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows > 0]
    if len(progress) != len(feed.files):
        raise AssertionError(f"{len(feed.files)} files made {len(progress)} batches; one each was asked for")
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in progress]
    ends = [pd.Timestamp(p.timestamp).timestamp() + s for p, s in zip(progress, seconds, strict=True)]
    return [(p.numInputRows, end, s) for p, end, s in zip(progress, ends, seconds, strict=True)]


def start_plain(
    spark: SparkSession,
    name: Name,
    source: Path,
    folder: Path,
    files: Sequence[Path],
    *,
    available_now: bool,
) -> Any:
    """Start a job over the files of a folder, with its results and its checkpoint in another."""
    make, text, mode = _JOBS[name]
    # Spark keeps what it tells of so many batches.
    spark.conf.set("spark.sql.shuffle.partitions", SETTINGS["spark.sql.shuffle.partitions"])
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(len(files) + 10))
    for number, file in enumerate(files):
        # Spark takes files in order of their age, to the millisecond; names mean nothing to it.
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    stream = spark.readStream.option("maxFilesPerTrigger", 1)
    names = ",".join(file.name for file in files)
    stream = stream.option("pathGlobFilter", f"{{{names}}}")
    rows = stream.text(str(source)) if text else _parquet(spark, stream, source, files[0])
    made = make(rows)
    writer = made.writeStream.outputMode(mode).option("checkpointLocation", str(folder / "checkpoint"))
    out = folder / "out"
    if mode == "update":
        writer = writer.foreachBatch(lambda frame, batch: _put(frame, out / f"batch={batch}"))
    else:
        writer = writer.format("parquet").option("path", str(out))
    trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    return writer.trigger(**trigger).start()


def _parquet(spark: SparkSession, stream: Any, source: Path, first: Path) -> DataFrame:
    frame: DataFrame = stream.schema(spark.read.parquet(str(first)).schema).parquet(str(source))
    return frame


def _put(frame: DataFrame, path: Path) -> None:
    # A batch that is computed again overwrites what it left.
    frame.write.mode("overwrite").parquet(str(path))


_JOBS: Mapping[Name, tuple[Callable[[DataFrame], DataFrame], bool, str]] = {
    "wordcount-files": (count_words, True, "update"),
    "logwatch": (find_attacks, True, "append"),
    "vwap": (keep_averages, False, "append"),
}


def differs(name: Name, ours: Path, plain: Path) -> str | None:
    """Say how the answers of Riprap and of plain Spark differ, if they do, in what can be compared.

    Of words it is the totals. Averages agree within rounding, as Spark's are made of running sums. Attacks that
    are not over when the log ends have no watermark behind them.
    """
    left, right = pq.read_table(ours), pq.read_table(plain)
    if name == "wordcount-files":
        totals = [t.group_by("word").aggregate([("n", "max")]).sort_by("word") for t in (left, right)]
        return None if totals[0].equals(totals[1].cast(totals[0].schema)) else "other totals of words"
    if name == "vwap":
        left, right = left.sort_by("seq"), right.sort_by("seq")
        for column in ("seq", "ticker", "low", "high", "volume", "trades"):
            if left.column(column).to_pylist() != right.column(column).to_pylist():
                return f"another {column}"
        a, b = (table.column("vwap").to_numpy() for table in (left, right))
        return None if np.allclose(a, b, rtol=1e-9, atol=0) else "other averages"
    end = max(_attacks(left), key=lambda attack: attack[2])[2] - timedelta(hours=1)
    over = [[attack for attack in _attacks(table) if attack[2] < end] for table in (left, right)]
    return None if over[0] == over[1] else "other attacks"


def _attacks(table: pa.Table) -> list[tuple[Any, ...]]:
    """List hosts, first and last moments and attempts, in UTC whichever way that was written."""
    plain = pa.timestamp("us")
    columns = [table.column("host"), *(table.column(name).cast(plain) for name in ("first", "last"))]
    return sorted(zip(*(c.to_pylist() for c in (*columns, table.column("attempts"))), strict=True))
