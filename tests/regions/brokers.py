"""What the fault matrix reads from Kafka, and the messages it reads."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.regions.making import Made, Streams, rows_of
from tests.services.kafka import Kafka
from tests.services.server import fresh_name

import riprap as rr

BROKERS_BATCH = 100


def fill_topic(spark: SparkSession, broker: Kafka) -> str:
    """Put the rows of a source into a topic, each as a message, and return what names of topics begin with."""
    prefix = f"{fresh_name()}_"
    rows = rows_of().select(["seq", "k", "v"]).to_pylist()
    values = pa.table(
        {"value": [json.dumps(row) for row in rows], "partition": pa.array([0] * len(rows), pa.int32())}
    )
    writer = spark.createDataFrame(values).coalesce(1).write.format("kafka")
    writer.option("kafka.bootstrap.servers", broker.address).option("topic", f"{prefix}messages").save()
    return prefix


def kafka(made: Made) -> Streams:
    """Read what was put into a topic; Spark finds out which messages come next."""
    app, place = made.app, made.place
    connector = rr.from_kafka(
        place.kafka or "nowhere:1", f"{place.prefix}messages", schema="seq bigint, k string, v bigint"
    )
    read = app.source("messages", connector, protect=made.start)
    sums = app.aggregate(
        "sums", made.trapped("trap", read), by="k", window=rr.sliding(tuples=3),
        select="sum(v) as total, last(seq) as seq",
    )  # fmt: skip
    return {"sums": sums}
