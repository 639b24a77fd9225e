"""What Spark itself reads and writes: any DataFrame, and Kafka by Spark's own connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Unpack

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.connectors.checks import (
    MOST_RECORD_BYTES,
    RETRY_FOR,
    OnBadRecord,
    RecordFormat,
    brokers,
    named,
    schema_of,
    schema_of_records,
    text_holds,
    whole_number,
)
from riprap.graph.connectors.checks import (
    on_bad_record as check_on_bad_record,
)
from riprap.graph.connectors.notation import PLAIN, CsvOptions, Notation, notation_of
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Opened, SinkConnector, SinkOpening


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSpark:
    """Any streaming DataFrame, made from the Spark session when the application runs."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.from_spark(...)",
        does="reads any streaming DataFrame",
        after_failure="as Spark's own source; without position= there is no claim to exact replay",
    )

    build: Callable[[Any], Any]
    schema: pa.Schema

    def __str__(self) -> str:
        return f"Spark DataFrame from {getattr(self.build, '__name__', 'a function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromKafka:
    """A Kafka topic, read by Spark's connector; the messages' values are decoded."""

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.from_kafka(...)",
        does="reads the messages of a Kafka topic",
        after_failure="reads on from Spark's own offsets; messages of a partition stay in order",
    )

    servers: str
    topic: str
    format: RecordFormat
    schema: pa.Schema
    start: Literal["earliest", "latest"]
    options: Mapping[str, str] = field(repr=False)
    on_bad_record: OnBadRecord
    max_record_bytes: int
    notation: Notation = PLAIN

    def __str__(self) -> str:
        return f"Kafka topic {self.topic} at {self.servers}"


ReadBySpark = FromSpark | FromKafka


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSpark(SinkConnector):
    """A Python function called in the driver with each batch as a Spark DataFrame and its number."""

    PROMISE: ClassVar[Promise] = Promise(
        word="repeats",
        call="rr.to_spark(...)",
        does="calls a function with each batch as a DataFrame",
        after_failure="may see the newest batch again: it is told the batch's number",
        why_not="what was handed over cannot be taken back",
    )

    function: Callable[[Any, int], None]

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        return opening.by_calls(
            lambda batch, table: self.function(opening.session.createDataFrame(table), batch)
        )

    def __str__(self) -> str:
        return f"Spark sink {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToKafka(SinkConnector):
    """A Kafka topic, written by Spark's connector: a JSON object a message."""

    PROMISE: ClassVar[Promise] = Promise(
        word="repeats",
        call="rr.to_kafka(...)",
        does="writes each row as a JSON message of a Kafka topic",
        after_failure="may write the newest batch again: its messages have the batch's number in a header",
        why_not="Spark's connector writes without transactions",
    )

    servers: str
    topic: str
    key: str | None
    options: Mapping[str, str] = field(repr=False)
    retry_for: float

    def holds(self, kind: pa.DataType) -> bool:
        return text_holds("json", kind)

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        from riprap.runtime.kafka import KafkaTarget

        return opening.by_target(lambda schema, run: KafkaTarget(self, opening.session), self.retry_for)

    def __str__(self) -> str:
        return f"Kafka topic {self.topic} at {self.servers}"


def from_spark(build: Callable[[Any], Any], *, schema: str | pa.Schema) -> FromSpark:
    """Read any Spark streaming DataFrame: a function of the session, and the schema it will have.

    >>> def numbers(session):
    ...     return session.readStream.format("rate").load()
    >>> print(rr.from_spark(numbers, schema="timestamp timestamp, value bigint"))
    Spark DataFrame from numbers
    """
    if not callable(build):
        raise GraphError(f"from_spark(...) takes a function of the Spark session, got {build!r}")
    return FromSpark(build=build, schema=schema_of(schema))


def to_spark(function: Callable[[Any, int], None]) -> ToSpark:
    """Call ``function(dataframe, batch)``, as Spark's ``foreachBatch`` does, on the batch's materialised rows.

    >>> def keep(frame, batch):
    ...     frame.write.mode("append").saveAsTable("totals")
    >>> print(rr.to_spark(keep))
    Spark sink keep
    """
    if not callable(function):
        raise GraphError(f"to_spark(...) takes a function of (dataframe, batch), got {function!r}")
    return ToSpark(function=function)


def from_kafka(
    servers: str,
    topic: str,
    *,
    schema: str | pa.Schema | None = None,
    format: RecordFormat = "json",
    start: Literal["earliest", "latest"] = "earliest",
    options: Mapping[str, str] | None = None,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    **notation: Unpack[CsvOptions],
) -> FromKafka:
    """Read a Kafka topic: each message is a JSON object, a CSV record or a line of text.

    ``servers`` are the brokers, such as 'localhost:9092'. ``options`` go to Spark's connector as they are, such as
    ``{"kafka.security.protocol": "SASL_SSL"}``. ``notation`` says how CSV records are written: ``sep``, ``quote``,
    ``escape``, ``nullValue``, as for :func:`files`.

    >>> print(rr.from_kafka("localhost:9092", "sales", schema="id bigint, price double"))
    Kafka topic sales at localhost:9092
    """
    if start not in ("earliest", "latest"):
        raise GraphError(f"from_kafka(start=...) is 'earliest' or 'latest', got {start!r}")
    return FromKafka(
        servers=brokers("from_kafka(servers, ...)", servers),
        topic=named("from_kafka(..., topic)", topic),
        format=format,
        schema=schema_of_records("from_kafka", format, schema),
        start=start,
        options=dict(options or {}),
        on_bad_record=check_on_bad_record("from_kafka", on_bad_record),
        max_record_bytes=whole_number("from_kafka(max_record_bytes=...)", max_record_bytes),
        notation=notation_of("from_kafka", format, dict(notation), files=False),
    )


def to_kafka(
    servers: str,
    topic: str,
    *,
    key: str | None = None,
    options: Mapping[str, str] | None = None,
    retry_for: Duration = RETRY_FOR,
) -> ToKafka:
    """Write each row to a Kafka topic as a JSON message, with column ``key`` as the message's key.

    >>> print(rr.to_kafka("localhost:9092", "totals", key="item"))
    Kafka topic totals at localhost:9092
    """
    return ToKafka(
        servers=brokers("to_kafka(servers, ...)", servers),
        topic=named("to_kafka(..., topic)", topic),
        key=key,
        options=dict(options or {}),
        retry_for=seconds("to_kafka(retry_for=...)", retry_for),
    )
