"""Where rows come from and where they go makes no difference to what they are."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from tests.runtime.harness import Feed, bargain_twice, lines_of, page_folder, read_parts, wait_until, whole

import riprap as rr
from riprap.adapters.json_lines import write_json
from riprap.adapters.parsing import parse_file
from riprap.apps.bargain import bargain
from riprap.apps.market import FEED_SCHEMA
from riprap.state.pages import page_root

WRITERS = {"parquet": pq.write_table, "csv": pa.csv.write_csv, "json": write_json}


@pytest.mark.parametrize("format", ["csv", "json", "memory"])
def test_every_format_gives_the_same(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path, format: str
) -> None:
    for number, start in enumerate(range(0, feed.table.num_rows, 9_000)):
        if format != "memory":
            WRITERS[format](feed.table.slice(start, 9_000), tmp_path / f"{number}.{format}")
    source = (
        rr.rows(feed.table) if format == "memory" else rr.files(tmp_path / f"*.{format}", schema=FEED_SCHEMA)
    )
    with bargain(source, rr.memory()).run(spark=spark, runs=runs, batch_rows=7_919) as run:
        run.wait()
        assert run.table("Sink").equals(feed.bargains)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("+4;2020-01-01 00:00:00;x\n0x1F;2020-01-01;y\n-7;2020-01-01T00:00;N\n", {"sep": ";", "nullValue": "N"}),
        ("1,2020-01-01T02:00:00+02:00,'a,b'\n#,no,row\n2,,x\n", {"quote": "'", "escape": "'", "comment": "#"}),
        ('1,2020-01-01T00:00:00Z,"a\\"b\\\\c\\d"\n2,,"e\nf"\n', {"escape": "\\", "multiLine": True}),
        ("1,2020-01-01T00:00:00.123456,\u00e9\n", {"encoding": "ISO-8859-1"}),
    ],
)  # fmt: skip
def test_csv_is_read_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, text: str, options: dict[str, Any]
) -> None:
    """With Spark's own reader as the oracle: the rows it takes, of records that are right or of a wrong type."""
    path, schema = tmp_path / "f.csv", "n int, t timestamp, s string"
    path.write_bytes(text.encode(options.get("encoding", "utf-8")))
    expected = spark.read.csv(str(path), schema=schema, header=False, mode="DROPMALFORMED", **options)
    source = rr.files(path, schema=schema, header=False, **options)
    pieces = parse_file(path, "csv", source.schema, max_record_bytes=1 << 20, notation=source.notation)
    found = [row for piece in pieces for row in piece.table.to_pylist()]
    assert found == expected.toArrow().cast(source.schema).to_pylist()
    assert found


def test_files_are_picked_up_as_they_appear(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "arriving"
    folder.mkdir()
    app = bargain(rr.files(folder, format="parquet", schema=FEED_SCHEMA), rr.memory())
    with app.run(spark=spark, runs=runs, batch_rows=5_000, trigger="100ms") as run:
        for number, start in enumerate(range(0, feed.table.num_rows, 9_000)):
            part = feed.table.slice(start, 9_000)
            pq.write_table(part, folder / "_half-written.parquet")
            os.rename(folder / "_half-written.parquet", folder / f"{number}.parquet")
            wait_until(lambda end=start + part.num_rows: run.progress().tuples_in >= end or not run.running)
        assert run.running, "a run with a trigger goes on until it is stopped"
        assert not run.wait(timeout=0.2)
        run.stop()
        assert run.table("Sink").equals(feed.bargains)


def test_a_rate_paces_the_feed_and_the_run_ends_by_itself(
    spark: SparkSession, feed: Feed, runs: Path
) -> None:
    app = bargain(rr.rows(feed.table.slice(0, 20_000), rate=10_000), rr.memory())
    with app.run(spark=spark, runs=runs) as run:
        assert run.wait(timeout=120)
        began = json.loads(
            (run.folder / "elements" / "bargain" / "sources" / "Source" / "pace.json").read_text()
        )["start"]
        metrics = lines_of(run.folder / "metrics.jsonl")
        # No row is read before it is due: the last one is so two seconds after the first.
        assert metrics[-1]["time"] - began >= 1.99
        for line in metrics:
            read = sum(m["rows"] for m in metrics if m["batch"] <= line["batch"])
            assert read <= (line["time"] - began) * 10_000 + 1
        assert len(metrics) > 1
        assert run.progress().tuples_in == 20_000
        assert run.table("Sink").equals(feed.bargains_between(0, 20_000))


@pytest.mark.parametrize("rate", [None, 1_000])
def test_an_empty_source_ends_at_once(spark: SparkSession, runs: Path, rate: float | None) -> None:
    app = bargain(rr.rows(FEED_SCHEMA.empty_table(), rate=rate), rr.memory())
    with app.run(spark=spark, runs=runs) as run:
        assert run.wait(timeout=120)
        assert run.table("Sink").num_rows == 0
        assert run.dataframe("Sink").count() == 0
        assert run.progress().tuples_in == 0


def two_sources(trades: pa.Table, quotes: pa.Table) -> rr.Application:
    """Describe Bargain Discovery over trades and quotes from two sources, interleaved by ``seq``."""
    app = rr.Application("two_sources")
    trade = app.source("trades", rr.rows(trades), ordering="seq")
    quote = app.source("quotes", rr.rows(quotes), ordering="seq")
    sums = app.aggregate(
        "sums", trade, by="ticker", window=rr.sliding(tuples=5),
        select="sum(price * size) as notional, sum(size) as volume",
    )  # fmt: skip
    vwap = app.functor("vwap", sums, select="ticker, notional / volume as vwap")
    found = app.join(
        "found", vwap, quote, by="ticker", windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)),
        where="vwap.vwap > quotes.price",
        select="seq, ticker, vwap, price, quotes.size as size, (vwap - price) * quotes.size as gain",
    )  # fmt: skip
    app.sink("out", found, rr.memory())
    return app


@pytest.mark.parametrize("batch_rows", [3_000, 100_000])
def test_sources_interleave_by_their_ordering_column(
    spark: SparkSession, feed: Feed, runs: Path, batch_rows: int
) -> None:
    kinds = feed.table["kind"].to_pylist()
    trades, quotes = (feed.table.filter(pa.array([k == kind for k in kinds])) for kind in ("trade", "quote"))
    with two_sources(trades, quotes).run(spark=spark, runs=runs, batch_rows=batch_rows) as run:
        run.wait()
        found = run.table("out")
    assert found.equals(feed.bargains)


def test_an_unordered_spark_source_loses_nothing(spark: SparkSession, runs: Path) -> None:
    def rate(session: SparkSession) -> DataFrame:
        stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1_000).load()
        return stream.select((col("value") % 7).alias("k"), col("value"))

    app = rr.Application("unordered")
    source = app.source("rate", rr.from_spark(rate, schema="k bigint, value bigint"))
    app.sink("out", app.functor("double", source, select="value, value * 2 as twice"), rr.memory())
    counts = app.aggregate(
        "counts", source, by="k", window=rr.sliding(tuples=1_000_000), select="count(*) as n"
    )
    app.sink("counts_out", counts, rr.memory())
    with app.run(spark=spark, runs=runs, trigger="100ms") as run:
        wait_until(lambda: run.progress().batches >= 3 or not run.running)
        run.stop()
        doubled = run.table("out").to_pydict()
        counted = run.table("counts_out").to_pylist()
    rows = len(doubled["value"])
    assert rows >= 3_000
    assert sorted(doubled["value"]) == list(range(rows))
    assert doubled["twice"] == [2 * v for v in doubled["value"]]
    seen = Counter(v % 7 for v in range(rows))
    assert {k: max(c["n"] for c in counted if c["k"] == k) for k in range(7)} == seen


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda spark: spark.range(10), "not streaming: make it from spark.readStream"),
        (lambda spark: 7, "returned int, not a DataFrame"),
        (lambda spark: spark.readStream.format("rate").load(), "lacks 'id' of its schema="),
    ],
)
def test_what_spark_cannot_stream_is_refused(
    spark: SparkSession, runs: Path, build: Any, problem: str
) -> None:
    app = rr.Application("refused")
    source = app.source("numbers", rr.from_spark(build, schema="id bigint"))
    app.sink("out", source, rr.memory())
    with pytest.raises(rr.RunError, match=problem) as caught:
        app.run(spark=spark, runs=runs)
    assert "source 'numbers'" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert not list(page_root().glob("refused-*")), "a run that did not start leaves no pages"


@pytest.mark.parametrize("rows_read", [0, 1])
def test_a_callback_that_looks_at_little_loses_nothing(
    spark: SparkSession, feed: Feed, runs: Path, rows_read: int
) -> None:
    looked_at: dict[int, int] = {}

    def look(batch: int, table: pa.Table) -> None:
        looked_at[batch] = table.slice(0, rows_read).num_rows

    app = bargain_twice(feed.folder, rr.callback(look), rr.memory())
    with app.run(spark=spark, runs=runs, batch_rows=7_919) as run:
        run.wait()
        assert looked_at == dict.fromkeys(range(4), rows_read)
        assert run.table("Second").equals(feed.bargains)
        with pytest.raises(rr.RunError, match="sink 'Sink' hands its rows to a function"):
            run.table("Sink")


def test_a_callback_that_raises_stops_the_run(spark: SparkSession, feed: Feed, runs: Path) -> None:
    def refuse(batch: int, table: pa.Table) -> None:
        if batch == 1:
            raise KeyError("no more")

    app = rr.Application("refusing")
    source = app.source("numbers", rr.rows(feed.table))
    app.sink("out", source, rr.callback(refuse))
    location = app.graph()["out"].location
    run = app.run(spark=spark, runs=runs, batch_rows=1_000)
    with pytest.raises(rr.OperatorError) as caught, run:
        run.wait()
    assert (
        str(caught.value).splitlines()[0]
        == f"Sink 'out' ({__file__}:{location.line}) failed on batch 1: KeyError: 'no more'"
    )
    failed = [e for e in lines_of(run.folder / "events.jsonl") if e["event"] == "failed"]
    assert [(e["error"], e["message"]) for e in failed] == [("OperatorError", str(caught.value))]


def test_to_spark_gets_data_frames_and_memory_keeps_rows(spark: SparkSession, feed: Feed, runs: Path) -> None:
    batches: dict[int, list[Any]] = {}

    def take(frame: DataFrame, batch: int) -> None:
        batches[batch] = [row.asDict() for row in frame.orderBy("seq").collect()]

    app = bargain_twice(feed.folder, rr.to_spark(take), rr.memory())
    with app.run(spark=spark, runs=runs, batch_rows=7_919) as run:
        run.wait()
        assert run.table("Second").equals(feed.bargains)
        frame = run.dataframe("Second")
        assert isinstance(frame, DataFrame)
        assert [row.asDict() for row in frame.orderBy("seq").collect()] == feed.bargains.to_pylist()
    assert [row for batch in sorted(batches) for row in batches[batch]] == feed.bargains.to_pylist()


KINDS = pa.table(
    {
        "n": pa.array([0, 1, None], pa.int64()),
        "text": pa.array(['a "quoted", line\n', "", None], pa.string()),
        "double": pa.array([0.1 + 0.2, -0.0, None], pa.float64()),
        "flag": pa.array([True, False, None], pa.bool_()),
        "day": pa.array([datetime.date(2005, 12, 27), datetime.date(1969, 12, 31), None], pa.date32()),
        "time": pa.array(
            [datetime.datetime(2005, 12, 27, 14, 30, 0, 123456, datetime.UTC), None, None],
            pa.timestamp("us", "UTC"),
        ),
        "money": pa.array([decimal.Decimal("12.50"), decimal.Decimal("-0.01"), None], pa.decimal128(9, 2)),
    }
)


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_files_read_back_equal(spark: SparkSession, runs: Path, tmp_path: Path, format: str) -> None:
    sink = {"parquet": rr.parquet, "csv": rr.csv, "json": rr.json}[format](tmp_path / "out")
    app = rr.Application("kinds")
    app.sink("out", app.source("in", rr.rows(KINDS)), sink)
    with app.run(spark=spark, runs=runs, batch_rows=2) as run:
        run.wait()
        assert run.table("out").equals(KINDS)
        assert run.dataframe("out").count() == 3
    # What one run wrote, another reads.
    again = rr.Application("again")
    # One of the texts has a line break.
    options = {"multiLine": True} if format == "csv" else {}
    files = rr.files(tmp_path / "out", schema=KINDS.schema, **options)
    again.sink("out", again.source("in", files), rr.memory())
    with again.run(spark=spark, runs=runs) as run:
        run.wait()
        found = run.table("out")
    assert found.drop(["text"]).equals(KINDS.drop(["text"]))


def test_a_parquet_sink_without_rows_is_an_empty_data_frame(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    app = bargain(rr.rows(FEED_SCHEMA.empty_table()), rr.parquet(tmp_path / "out"))
    with app.run(spark=spark, runs=runs) as run:
        run.wait()
        assert run.dataframe("Sink").columns == ["seq", "ticker", "vwap", "price", "size", "gain"]
        assert run.dataframe("Sink").count() == 0
        assert run.table("Sink").num_rows == 0


def test_a_reader_of_the_folder_sees_whole_batches_only(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path
) -> None:
    rows = 2_003
    folders = {name: tmp_path / name for name in ("rolled", "each")}
    app = bargain_twice(
        feed.folder, rr.parquet(folders["rolled"], roll_rows=400), rr.parquet(folders["each"], roll=0)
    )
    seen: dict[tuple[str, int, int], int] = {}
    wrong: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            for name, folder in folders.items():
                for path in folder.glob("part-*.parquet"):
                    first, last = (int(number) for number in path.stem.split("-")[1:])
                    found = pq.read_table(path)
                    expected = feed.bargains_between(first * rows, (last + 1) * rows)
                    if not found.equals(expected):
                        wrong.append(str(path))
                    seen[name, first, last] = found.num_rows

    watcher = threading.Thread(target=watch)
    with app.run(spark=spark, runs=runs, batch_rows=rows) as run:
        watcher.start()
        try:
            # The user's thread asks for rows while the query publishes.
            while not run.wait(timeout=0.05):
                so_far = run.table("Sink")
                assert so_far.equals(feed.bargains.slice(0, so_far.num_rows))
        finally:
            ended.set()
            watcher.join()
    assert not wrong
    assert len({first for name, first, _ in seen if name == "each"}) > 2, "it looked while the run was going"
    for folder in folders.values():
        assert whole(read_parts(folder)).equals(feed.bargains)


def test_an_output_folder_in_use_is_refused(
    spark: SparkSession, feed: Feed, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "part-0000000000-0000000000.parquet").write_bytes(b"an earlier run's")
    with pytest.raises(rr.RunError, match=r"holds 1 files of an earlier run.*overwrite=True"):
        bargain(feed.folder, rr.parquet(tmp_path)).run(spark=spark, runs=runs)
    with bargain(feed.folder, rr.parquet(tmp_path, overwrite=True)).run(spark=spark, runs=runs) as run:
        run.wait()
        assert run.table("Sink").equals(feed.bargains)
        assert page_folder(run.folder).exists()
