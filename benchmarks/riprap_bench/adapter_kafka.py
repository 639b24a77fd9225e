"""Kafka: Spark's connector alone in a plain query, against the same connector in Riprap."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import riprap as rr
from riprap.runtime.kafka import KafkaTarget
from riprap.runtime.kafka_jars import connector_jars
from riprap.runtime.session import make_session
from riprap_bench.adapter_cases import SCHEMA, Case, in_batches, make_table, server

_BATCH_ROWS = 500_000
_PARTITIONS = 2


def kafka_cases(source_rows: int, sink_rows: int) -> Iterator[tuple[str, Case]]:
    """Yield a topic read, and a topic written, by Spark."""
    servers = server("RIPRAP_BENCH_KAFKA", "Kafka")
    session = make_session(
        "local[2]", {"spark.jars": ",".join(str(jar) for jar in connector_jars())}, elements=2
    )
    try:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        _fill(session, servers, topic, source_rows)
        yield (
            "source",
            Case(
                name="Kafka",
                library="Spark's connector, mapInArrow",
                rows=source_rows,
                bar=0.8,
                plain=partial(_plain_source, session, servers, topic),
                riprap=partial(_riprap_source, session, servers, topic),
            ),
        )
        table, sunk = make_table(sink_rows, seed=9), f"bench-{uuid.uuid4().hex[:8]}"
        yield (
            "sink",
            Case(
                name="Kafka",
                library="Spark's connector",
                rows=sink_rows,
                bar=0.8,
                plain=partial(_plain_sink, session, servers, table),
                riprap=partial(_riprap_sink, session, servers, sunk, table),
                check=_Counted(session, servers, sunk),
            ),
        )
    finally:
        session.stop()


def _fill(session: SparkSession, servers: str, topic: str, rows: int) -> None:
    line = (
        'concat(\'{"id":\', id, \',"ticker":"T\', id % 3000, \'","price":12.34,"size":\', id % 1000, \'}\')'
    )
    frame = session.range(0, rows, numPartitions=_PARTITIONS)
    frame = frame.selectExpr(f"{line} as value", f"cast(id % {_PARTITIONS} as string) as key")
    frame.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def _plain_source(session: SparkSession, servers: str, topic: str, folder: Path) -> int:
    stream = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    frame = stream.option("maxOffsetsPerTrigger", _BATCH_ROWS).load().select("value")
    # To Python, as the other client libraries bring their rows.
    writer = frame.mapInArrow(_count, "rows bigint").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / "plain")).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


def _riprap_source(session: SparkSession, servers: str, topic: str, folder: Path) -> int:
    app = rr.Application("bench")
    lines = app.source("lines", rr.from_kafka(servers, topic, format="text"))
    # As in the plain query, nothing is kept.
    app.sink("none", app.functor("empty", lines, where="length(line) < 0"), rr.memory())
    with app.run(spark=session, batch_rows=_BATCH_ROWS, runs=folder) as run:
        run.wait()
        return run.progress().tuples_in


def _plain_sink(session: SparkSession, servers: str, table: pa.Table, folder: Path) -> int:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    for batch in in_batches(table):
        frame: Any = session.createDataFrame(batch).coalesce(1).selectExpr("to_json(struct(*)) as value")
        frame.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    return int(table.num_rows)


def _riprap_sink(session: SparkSession, servers: str, topic: str, table: pa.Table, folder: Path) -> int:
    target = KafkaTarget(rr.to_kafka(servers, topic), session)
    for number, batch in enumerate(in_batches(table.cast(SCHEMA))):
        target.write(number, batch, again=False)
    return int(table.num_rows)


class _Counted:
    """Counts what came to a topic since the last time."""

    def __init__(self, session: SparkSession, servers: str, topic: str) -> None:
        reader = session.read.format("kafka").option("kafka.bootstrap.servers", servers)
        self._reader = reader.option("subscribe", topic)
        self._known = 0

    def __call__(self, folder: Path) -> int:
        before, self._known = self._known, self._reader.load().count()
        return self._known - before
