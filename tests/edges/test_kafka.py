"""Kafka by Spark's connector: every message counts once, in order, and what cannot be read is put aside."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.edges.sink_rigs import messages_in, numbers
from tests.runtime.harness import Programs, lines_of, on_record, only_run, wait_until
from tests.services.kafka import Kafka
from tests.services.ports import free_port

import riprap as rr
from riprap.adapters.bad_records import read_quarantine
from riprap.graph.connectors import FromKafka, SinkConnector
from riprap.runtime import kafka as runtime
from riprap.runtime.kafka import KafkaTarget

SCHEMA = "n bigint, s string"
# Kafka's client gives up soon, and Spark does not ask three times.
IMPATIENT = {
    "kafka.default.api.timeout.ms": "1500",
    "kafka.request.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
}
BATCH = 300

Message = tuple[int, bytes | None]


@pytest.fixture
def send(spark: SparkSession, kafka: Kafka) -> Callable[[str, Sequence[Message]], None]:
    """Return a function that puts messages into partitions of a topic, in order."""

    def sent(topic: str, messages: Sequence[Message]) -> None:
        table = pa.table(
            {
                "partition": pa.array([p for p, _ in messages], pa.int32()),
                "value": pa.array([v for _, v in messages], pa.binary()),
            }
        )
        frame = spark.createDataFrame(table).coalesce(1)
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kafka.address)
        writer.option("topic", topic).save()

    return sent


def objects(first: int, end: int, partitions: int = 1) -> list[Message]:
    """Return numbered JSON messages, dealt out to partitions."""
    return [(n % partitions, json.dumps({"n": n, "s": f"ü{n}"}).encode()) for n in range(first, end)]


def reading(connector: FromKafka, *sinks: SinkConnector) -> rr.Application:
    app = rr.Application("reading")
    source = app.source("in", connector)
    for number, sink in enumerate(sinks or (rr.memory(),)):
        app.sink(f"out{number or ''}", source, sink)
    return app


def read(spark: SparkSession, connector: FromKafka, runs: Path, **options: Any) -> tuple[rr.Run, pa.Table]:
    with reading(connector).run(spark=spark, runs=runs, **{"batch_rows": BATCH, **options}) as run:
        assert run.wait(timeout=120), "the run did not end"
        return run, run.table("out")


def quarantined(run: rr.Run | Path) -> list[tuple[dict[str, Any], str]]:
    folder = run if isinstance(run, Path) else run.folder
    return [(line["position"], line["reason"]) for line in read_quarantine(folder / "quarantine" / "in")]


Send = Callable[[str, Sequence[Message]], None]


def test_messages_of_a_partition_stay_in_order(
    spark: SparkSession, kafka: Kafka, send: Send, runs: Path
) -> None:
    topic = kafka.topic(partitions=3)
    send(topic, objects(0, 1000, partitions=3))

    run, found = read(spark, rr.from_kafka(kafka.address, topic, schema=SCHEMA), runs)

    rows = found.to_pylist()
    for partition in range(3):
        mine = [row for row in rows if row["n"] % 3 == partition]
        assert mine == [{"n": n, "s": f"ü{n}"} for n in range(partition, 1000, 3)]
    assert run.progress().tuples_in == 1000
    batches = [line["rows"] for line in run._folder.read_metrics()]
    assert len(batches) >= 3
    assert max(batches) <= BATCH
    assert not (run.folder / "quarantine").exists()


@pytest.mark.parametrize(
    ("format", "schema", "values", "expected", "bad"),
    [
        (
            "json",
            SCHEMA,
            [
                b'{"n": 1, "s": "a"}',
                None,
                b"",
                b"{",
                b'{"n": "x"}',
                b'\n{"s": null,\n "n": 2, "more": 3} ',
                b"[1]",
                b"\xff",
            ],
            [{"n": 1, "s": "a"}, {"n": 2, "s": None}],
            [1, 2, 3, 4, 6, 7],
        ),
        (
            "csv",
            SCHEMA,
            [b"1,a", b'2,"b\n""c"""', b"3", None, b"x,y", b"", b"4,d\r\n", b"5,e\n6,f"],
            [{"n": 1, "s": "a"}, {"n": 2, "s": 'b\n"c"'}, {"n": 4, "s": "d"}],
            [2, 3, 4, 5, 7],
        ),
        (
            "text",
            None,
            ["any ü".encode(), b"", b"\xff\xfe", None, b"two\nlines"],
            [{"line": "any ü"}, {"line": ""}, {"line": "two\nlines"}],
            [2, 3],
        ),
    ],
)
def test_what_cannot_be_read_is_put_aside(
    spark: SparkSession,
    kafka: Kafka,
    send: Send,
    runs: Path,
    format: Any,
    schema: str | None,
    values: list[bytes | None],
    expected: list[dict[str, Any]],
    bad: list[int],
) -> None:
    topic = kafka.topic(partitions=2)
    send(topic, [(1, value) for value in values])

    connector = rr.from_kafka(kafka.address, topic, schema=schema, format=format)
    run, found = read(spark, connector, runs, batch_rows=3)

    assert found.to_pylist() == expected
    assert [place for place, _ in quarantined(run)] == [
        {"topic": topic, "partition": 1, "offset": offset} for offset in bad
    ]
    assert all(reason for _, reason in quarantined(run))
    assert run.progress().quarantined == len(bad)


def test_a_message_that_is_too_large(spark: SparkSession, kafka: Kafka, send: Send, runs: Path) -> None:
    topic = kafka.topic()
    send(topic, [(0, b'{"n": 1}'), (0, b'{"s": "%s"}' % (b"x" * 5000)), (0, b'{"n": 2}')])

    connector = rr.from_kafka(kafka.address, topic, schema=SCHEMA, max_record_bytes=1000)
    run, found = read(spark, connector, runs)

    assert found.column("n").to_pylist() == [1, 2]
    ((place, reason),) = quarantined(run)
    assert place["offset"] == 1
    assert "max_record_bytes=" in reason


def test_a_bad_message_fails_the_run_if_told_so(
    spark: SparkSession, kafka: Kafka, send: Send, runs: Path
) -> None:
    topic = kafka.topic()
    send(topic, [*objects(0, 5), (0, b"{"), *objects(5, 10)])

    connector = rr.from_kafka(kafka.address, topic, schema=SCHEMA, on_bad_record="fail")
    with pytest.raises(rr.RunError) as caught:
        read(spark, connector, runs, batch_rows=4)

    said = str(caught.value)
    assert "source 'in' (" in said
    assert "test_kafka.py:" in said
    assert f"at topic {topic}, partition 0, offset 5, not JSON" in said
    assert "on_bad_record='quarantine'" in said


def test_a_topic_without_messages(spark: SparkSession, kafka: Kafka, runs: Path) -> None:
    _, found = read(spark, rr.from_kafka(kafka.address, kafka.topic(), schema=SCHEMA), runs)

    assert found.num_rows == 0


def test_a_topic_that_does_not_exist(spark: SparkSession, kafka: Kafka, runs: Path) -> None:
    kafka.ensure_running()
    connector = rr.from_kafka(kafka.address, "nowhere", schema=SCHEMA, options=IMPATIENT)
    with pytest.raises(rr.RunError, match=r"operator 'in' .* Kafka topic nowhere"):
        read(spark, connector, runs)


def test_a_broker_that_is_not_there(spark: SparkSession, runs: Path) -> None:
    connector = rr.from_kafka(f"127.0.0.1:{free_port()}", "t", schema=SCHEMA, options=IMPATIENT)

    began = time.monotonic()
    with pytest.raises(
        rr.RunError, match=r"operator 'in' .* refused.*; kafka\.default\.api\.timeout\.ms in options="
    ):
        # Not once it runs: it has not started.
        reading(connector).run(spark=spark, runs=runs)

    assert time.monotonic() - began < 20, "it is to give up after 1.5 s"
    lost = [e for e in lines_of(only_run(runs) / "events.jsonl") if e["event"] == "connection lost"]
    assert lost
    assert "operator 'in'" in lost[0]["what"]
    assert "refused" in lost[0]["message"]


def test_a_session_without_the_connector(
    spark: SparkSession, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_PROVIDER", "org.apache.spark.sql.kafka010.Nowhere")

    with pytest.raises(
        rr.RunError, match=r"operator 'in' .* has no Kafka connector\. Let Riprap make the session"
    ):
        reading(rr.from_kafka("localhost:9", "t", schema=SCHEMA)).run(spark=spark, runs=runs)
    assert not runs.exists()


def test_starting_at_the_newest_message(spark: SparkSession, kafka: Kafka, send: Send, runs: Path) -> None:
    topic = kafka.topic()
    send(topic, objects(0, 10))
    connector = rr.from_kafka(kafka.address, topic, schema=SCHEMA, start="latest")
    with reading(connector).run(spark=spark, runs=runs, trigger="100ms") as run:
        # The first batch tells that the place is known.
        wait_until(lambda: list(run.folder.glob("elements/*/spark/sources/0/0")))
        send(topic, objects(10, 20))
        wait_until(lambda: run.table("out").num_rows >= 10)
        assert run.table("out").column("n").to_pylist() == list(range(10, 20))


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def test_a_run_that_was_left_goes_on_where_it_was(
    spark: SparkSession, kafka: Kafka, send: Send, runs: Path, tmp_path: Path
) -> None:
    topic = kafka.topic(partitions=2)
    send(topic, objects(0, 700, partitions=2))
    app = reading(rr.from_kafka(kafka.address, topic, schema=SCHEMA), rr.json(tmp_path / "out", roll=0))
    with (
        contextlib.suppress(LeftError),
        app.run(spark=spark, runs=runs, batch_rows=BATCH, trigger="50ms") as run,
    ):
        wait_until(lambda: run.progress().tuples_in >= 700)
        raise LeftError
    send(topic, [*objects(700, 1000, partitions=2), (1, b"bad")])

    with app.run(spark=spark, folder=run.folder, batch_rows=BATCH, parallelism=1) as run:
        assert run.wait(timeout=120)
        found = run.table("out").column("n").to_pylist()

    assert sorted(found) == list(range(1000))
    for partition in range(2):
        assert [n for n in found if n % 2 == partition] == list(range(partition, 1000, 2))
    assert [place["offset"] for place, _ in quarantined(run)] == [500]


@pytest.mark.parametrize("step", [pytest.param("gathered", marks=pytest.mark.slow), "published"])
def test_a_killed_driver_changes_nothing(
    spark: SparkSession, kafka: Kafka, send: Send, programs: Programs, runs: Path, tmp_path: Path, step: str
) -> None:
    topic = kafka.topic(partitions=2)
    # Two that cannot be read, of which the second batch has one.
    messages = objects(0, 1500, partitions=2)
    messages[500] = messages[1300] = (0, b"bad")
    send(topic, messages)
    job = {"servers": kafka.address, "topic": topic, "out": str(tmp_path / "out"), "runs": str(runs)}
    program = programs.start(str(Path(__file__)), tmp_path / "work", job, crash_at=f"{step}:1")
    programs.finish(program, code=-signal.SIGKILL)
    assert on_record(only_run(runs)) == (0 if step == "gathered" else 1)

    with sums(kafka.address, topic, tmp_path / "out").run(
        spark=spark, folder=only_run(runs), batch_rows=BATCH, parallelism=2
    ) as run:
        assert run.wait(timeout=120)
        found = run.table("out")
    with sums(kafka.address, topic, tmp_path / "unharmed").run(
        spark=spark, runs=tmp_path / "others", batch_rows=BATCH
    ) as other:
        assert other.wait(timeout=120)
        assert found.num_rows == 1498
        assert found.equals(other.table("out"))
    assert sorted(quarantined(run), key=str) == sorted(quarantined(other), key=str)
    assert run.progress().quarantined == 2


def sums(servers: str, topic: str, out: Path) -> rr.Application:
    """Describe sums that go on from batch to batch."""
    app = rr.Application("sums")
    source = app.source("in", rr.from_kafka(servers, topic, schema=SCHEMA))
    keyed = app.functor("keyed", source, select="n % 7 as k, n")
    window = rr.sliding(tuples=50)
    app.sink(
        "out",
        app.aggregate("sums", keyed, by="k", window=window, select="max(n) as n, sum(n) as total"),
        rr.parquet(out, roll=0),
    )
    return app


def test_a_broker_that_is_killed_and_comes_back(
    spark: SparkSession, kafka: Kafka, send: Send, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.BrokerWatch.__init__, "__defaults__", (0.3,))
    topic = kafka.topic()
    send(topic, objects(0, 1500))
    threads: list[threading.Thread] = []

    def events() -> list[str]:
        return [e["event"] for e in lines_of(only_run(runs) / "events.jsonl")]

    def back() -> None:
        wait_until(lambda: "connection lost" in events())
        kafka.start()

    def fault(batch: int, table: pa.Table) -> None:
        if batch == 1:
            kafka.kill()
            threads.append(threading.Thread(target=back))
            threads[0].start()

    app = reading(rr.from_kafka(kafka.address, topic, schema=SCHEMA), rr.memory(), rr.callback(fault))
    try:
        with app.run(spark=spark, runs=runs, batch_rows=BATCH, trigger="50ms") as run:
            wait_until(lambda: not run.running or run.table("out").num_rows >= 1500, seconds=120)
            wait_until(lambda: "connection back" in events(), seconds=30)
            assert run.table("out").column("n").to_pylist() == list(range(1500))
    finally:
        for thread in threads:
            thread.join()
        kafka.ensure_running()


def test_dropped_connections(spark: SparkSession, kafka: Kafka, send: Send, runs: Path) -> None:
    topic = kafka.topic()
    send(topic, objects(0, 1500))
    with kafka.relay() as relay:
        app = reading(
            rr.from_kafka(relay.address, topic, schema=SCHEMA),
            rr.memory(),
            rr.callback(lambda batch, table: relay.drop()),
        )
        with app.run(spark=spark, runs=runs, batch_rows=BATCH) as run:
            assert run.wait(timeout=120)
            assert run.table("out").column("n").to_pylist() == list(range(1500))


def test_connections_dropped_while_a_batch_is_written(spark: SparkSession, kafka: Kafka) -> None:
    topic, rows = kafka.topic(), numbers(100_000)
    with kafka.relay() as relay:
        target = KafkaTarget(rr.to_kafka(relay.address, topic), spark)
        target.open(resume=False)
        over = threading.Event()

        def drop() -> None:
            while not over.wait(0.15):
                relay.drop()

        dropping = threading.Thread(target=drop)
        dropping.start()
        threading.Timer(1.5, over.set).start()
        target.write(0, rows, again=False)
        over.set()
        dropping.join()

    n = "cast(get_json_object(cast(value as string), '$.n') as bigint) as n"
    found = messages_in(spark, kafka.address, topic, n).column("n").to_pylist()
    assert sorted(set(found)) == list(range(100_000))


def test_keys_and_headers(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    rows = pa.table({"k": ["a", None, "b", "a"], "n": [1, 2, 3, 4]})
    KafkaTarget(rr.to_kafka(kafka.address, topic, key="k"), spark).write(7, rows, again=False)

    found = messages_in(
        spark, kafka.address, topic, "cast(key as string) as key", "cast(value as string) as value", "headers"
    ).to_pylist()
    assert sorted((f["key"] or "", f["value"]) for f in found) == [
        ("", '{"k":null,"n":2}'),
        ("a", '{"k":"a","n":1}'),
        ("a", '{"k":"a","n":4}'),
        ("b", '{"k":"b","n":3}'),
    ]
    assert len({f["partition"] for f in found if f["key"] == "a"}) == 1
    assert all(f["headers"] == [{"key": "riprap-batch", "value": b"7"}] for f in found)


def test_options_of_the_producer_can_be_given(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    connector = rr.to_kafka(
        kafka.address, topic, options={"kafka.max.block.ms": "5000", "kafka.linger.ms": "5"}
    )
    KafkaTarget(connector, spark).write(0, numbers(3), again=False)

    assert messages_in(spark, kafka.address, topic).num_rows == 3


def test_a_message_too_large_for_the_broker_is_told_at_once(
    spark: SparkSession, kafka: Kafka, runs: Path
) -> None:
    app = rr.Application("large")
    rows = pa.table({"s": ["x" * 3_000_000]})
    app.sink("out", app.source("in", rr.rows(rows)), rr.to_kafka(kafka.address, kafka.topic()))

    said = r"operator 'out' .*RecordTooLargeException: .*max.request.size"
    with pytest.raises(rr.RunError, match=said), app.run(spark=spark, runs=runs) as run:
        run.wait(timeout=60)


if __name__ == "__main__":
    import sys

    job = json.loads(Path(sys.argv[1]).read_text())
    with sums(job["servers"], job["topic"], Path(job["out"])).run(
        config={"spark.log.level": "OFF"}, master="local[1]", runs=job["runs"], batch_rows=BATCH, buckets=8
    ) as run:
        run.wait()
