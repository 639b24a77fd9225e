"""Kafka, by Spark's own connector: topics as streams of rows, and batches as messages."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from riprap.adapters.bad_records import kept
from riprap.adapters.decoding import decode_messages
from riprap.adapters.json_lines import json_lines, plain_text
from riprap.adapters.retrying import Retry, Tell
from riprap.errors import ConnectionLost, RiprapError, RunError
from riprap.feeds.quarantine import set_aside
from riprap.graph.connectors import BadRecord, FromKafka, Target, ToKafka
from riprap.graph.graph import Graph
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.runtime.kafka_jars import connector_jars
from riprap.stage.arrival import ReadRows

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
# A partition's messages come one after the other; offsets stay below this for any topic there is.
_OFFSET_BITS = 44
_PROBE_SECONDS = 1.0
# How long Kafka's client looks for a broker, and Riprap before it.
_TIMEOUT, _TIMEOUT_MS = "kafka.default.api.timeout.ms", 60_000
_KAFKA_ERROR = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+): (.*)")
# Errors of the producer that waiting may mend. It has tried again by itself where it could.
_PASSING = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "NotLeaderOrFollowerException",
    "LeaderNotAvailableException",
    "NotEnoughReplicasException",
    "NotEnoughReplicasAfterAppendException",
    "KafkaStorageException",
    "CoordinatorNotAvailableException",
)
# A try that takes longer is given up, and made again: how often and how long is for Riprap to say, and to show.
_PRODUCER = {
    "kafka.max.block.ms": "10000",
    "kafka.delivery.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
}


def session_config(graph: Graph, config: Mapping[str, str] = _NOTHING) -> dict[str, str]:
    """Add to a session's settings what an application's connectors need; fetches jars if need be."""
    if not kafka_operators(graph):
        return dict(config)
    jars = [str(jar) for jar in connector_jars()]
    return {**config, "spark.jars": ",".join(filter(None, (config.get("spark.jars"), *jars)))}


def kafka_operators(graph: Graph) -> list[Source | Sink]:
    """List the operators that talk to Kafka."""
    edges: list[Source | Sink] = [*graph.of_kind(Source), *graph.of_kind(Sink)]
    return [edge for edge in edges if isinstance(edge.connector, FromKafka | ToKafka)]


def check_connector(session: SparkSession, graph: Graph) -> None:
    """Refuse a session without the connector before anything starts."""
    users = kafka_operators(graph)
    if not users:
        return
    try:
        session._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_PROVIDER)  # type: ignore[union-attr]
    except Py4JJavaError as error:
        raise RunError(
            f"{users[0]}: this Spark session has no Kafka connector. Let Riprap make the session, which fetches it, or "
            "start yours with spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:<version>"
        ) from error


def messages_of(session: SparkSession, connector: FromKafka, batch_rows: int) -> DataFrame:
    """Return a topic's messages as they come: value, partition, offset."""
    stream = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", connector.servers)
        .option("subscribe", connector.topic)
        .option("startingOffsets", connector.start)
        .option("maxOffsetsPerTrigger", batch_rows)
        # Kafka's client tries again by itself until its timeout; Spark would have it do all that three times.
        .option("fetchOffset.numRetries", "1")
        .options(**connector.options)
    )
    return stream.load().select("value", "partition", "offset")


def decode(
    connector: FromKafka, messages: pa.Table, columns: Sequence[str]
) -> tuple[ReadRows, list[BadRecord]]:
    """Turn messages into tuples, numbered by partition and offset, and those that cannot be read."""
    values = messages.column("value").combine_chunks()
    partition, offset = (messages.column(name).to_numpy() for name in ("partition", "offset"))
    decoded = decode_messages(
        values,
        connector.format,
        connector.schema,
        limit=connector.max_record_bytes,
        notation=connector.notation,
    )
    bad = [
        BadRecord(
            position={"topic": connector.topic, "partition": int(partition[i]), "offset": int(offset[i])},
            reason=reason,
            record=kept(values[i].as_py() or b"", connector.max_record_bytes),
            size=len(values[i].as_py() or b""),
        )
        for i, reason in decoded.bad
    ]
    place = (partition[decoded.good].astype(np.int64) << _OFFSET_BITS) | offset[decoded.good]
    return ReadRows({c: _one(decoded.table.column(c)) for c in columns}, place), bad


def set_messages_aside(source: Source, folder: Path, bad: Sequence[BadRecord]) -> None:
    """Put bad messages of a task into the quarantine, or stop, as the source says.

    The file is named after the place of the first. A task that is repeated reads the same messages, though it may be
    another of the batch's tasks then, and replaces the file it left.
    """
    if not bad:
        return
    first = bad[0].position
    set_aside(source, folder, int(first["partition"]) << _OFFSET_BITS | int(first["offset"]), bad)


def explained(error: RiprapError, graph: Graph) -> RiprapError:
    """Say which source it was where Kafka's client failed inside of Spark: it names neither."""
    sources = [s for s in graph.of_kind(Source) if isinstance(s.connector, FromKafka)]
    text = str(error)
    of_kafka = "org.apache.kafka" in text or "kafka010" in text
    if not sources or not of_kafka or any(str(operator) in text for operator in graph):
        return error
    named = " or ".join(f"{source}, {source.connector}" for source in sources)
    return RunError(
        f"{named}: {text}\nCheck that the broker runs, that the topic exists, and what options= says"
    )


def await_brokers(sources: Iterable[Source], tell: Tell) -> None:
    """Wait for the brokers of sources before a query starts: it would count as started, and fail minutes later."""
    for source in sources:
        connector = source.connector
        if isinstance(connector, FromKafka):
            patience = int(connector.options.get(_TIMEOUT, _TIMEOUT_MS)) / 1000
            retry = Retry(f"{source}, {connector}", patience, tell, option=f"{_TIMEOUT} in options=")
            retry.call(partial(_reach, connector.servers))


def _reach(servers: str, again: bool) -> None:
    unreachable = probe(servers)
    if unreachable is not None:
        raise ConnectionLost(unreachable)


class KafkaTarget(Target):
    """Writes a batch's rows as messages, in order, by one task."""

    def __init__(self, connector: ToKafka, session: SparkSession) -> None:
        self._connector = connector
        self._session = session

    def open(self, *, resume: bool) -> None:
        _reach(self._connector.servers, resume)

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        if not table.num_rows:
            return
        self.open(resume=True)
        frame = self._session.createDataFrame(self._messages(table)).coalesce(1)
        frame = frame.selectExpr(
            "*", f"array(named_struct('key', 'riprap-batch', 'value', cast('{batch}' as binary))) as headers"
        )
        writer = frame.write.format("kafka").options(**{**_PRODUCER, **self._connector.options})
        writer = writer.option("kafka.bootstrap.servers", self._connector.servers).option(
            "includeHeaders", True
        )
        try:
            writer.option("topic", self._connector.topic).save()
        except (PySparkException, Py4JJavaError) as error:
            reason = _KAFKA_ERROR.search(str(error))
            if reason is None:
                raise
            if reason[1] in _PASSING:
                raise ConnectionLost(f"{self._connector.servers}: {reason[2]}") from error
            raise RunError(f"Kafka topic {self._connector.topic}: {reason[1]}: {reason[2]}") from error

    def read(self) -> pa.Table:
        raise RunError(f"rows in {self._connector} cannot be told from those of others: read the topic")

    def _messages(self, table: pa.Table) -> pa.Table:
        whole = table.combine_chunks()
        lines = [json_lines(part) for part in whole.to_batches(max_chunksize=50_000)]
        # Without the line break: a message ends by itself.
        values = pa.compute.utf8_slice_codeunits(pa.chunked_array(lines), 0, -1)
        columns = {"value": values.cast(pa.string())}
        if self._connector.key is not None:
            columns["key"] = plain_text(_one(whole.column(self._connector.key))).cast(pa.string())
        return pa.table(columns)


class BrokerWatch:
    """Tells when none of a source's brokers can be reached: Spark's client tries again by itself, without a word."""

    def __init__(self, sources: Iterable[Source], tell: Tell, seconds: float = 5.0) -> None:
        self._servers: Mapping[str, str] = {
            str(s): s.connector.servers for s in sources if isinstance(s.connector, FromKafka)
        }
        self._tell = tell
        self._seconds = seconds
        self._over = threading.Event()
        if self._servers:
            threading.Thread(target=self._watch, name="watch brokers", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _watch(self) -> None:
        since: dict[str, tuple[float, int]] = {}
        while not self._over.wait(self._seconds):
            for source, servers in self._servers.items():
                unreachable, now = probe(servers), time.monotonic()
                began, tries = since.get(source, (now, 0))
                if unreachable is not None:
                    since[source] = (began, tries + 1)
                    self._tell(
                        "connection lost",
                        what=source,
                        message=unreachable,
                        tries=tries + 1,
                        wait=self._seconds,
                    )
                elif since.pop(source, None) is not None:
                    self._tell("connection back", what=source, after=round(now - began, 3), tries=tries)


def probe(servers: str) -> str | None:
    """Try to connect to any of the brokers; return what went wrong if none answers."""
    problem = f"'{servers}' names no broker"
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
            return None
        except (OSError, ValueError) as error:
            problem = f"{server.strip()}: {error}"
    return problem


def _one(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
