"""What sinks outside do with every type, and with connections that break in the middle of a batch; without Spark."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_client
from pyspark.sql import SparkSession
from tests.edges.sink_rigs import PostgresRig, RedisRig, SqliteRig, listening, numbers
from tests.runtime.harness import lines_of, only_run, wait_until
from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.relay import Relay

import riprap as rr
from riprap.adapters.decoding import decode_messages
from riprap.adapters.redis_streams import RedisFetcher
from riprap.adapters.tcp import TcpTarget
from riprap.errors import ConnectionLost, GraphError, RunError
from riprap.expressions import parse_schema
from riprap.graph.connectors import SinkConnector
from riprap.runtime.kafka import KafkaTarget

# test_sources and test_sinks have the same for every system.
pytestmark = pytest.mark.slow

SCHEMA = parse_schema(
    "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f4 float, f8 double, m decimal(38,10), w decimal(20,0), "
    "s string, d date, t timestamp, u timestamp_ntz, raw binary, l array<bigint>, ls array<string>"
)
LEAST: dict[str, Any] = {
    "b": False,
    "i1": -128,
    "i2": -(2**15),
    "i4": -(2**31),
    "i8": -(2**63),
    "f4": -3.4028234663852886e38,
    "f8": 5e-324,
    "m": Decimal("-9999999999999999999999999999.9999999999"),
    "w": Decimal(-(10**20) + 1),
    "s": "",
    "d": date(1, 1, 1),
    "t": datetime(1, 1, 1, tzinfo=UTC),
    "u": datetime(1, 1, 1),
    "raw": b"",
    "l": [],
    "ls": [],
}
GREATEST: dict[str, Any] = {
    "b": True,
    "i1": 127,
    "i2": 2**15 - 1,
    "i4": 2**31 - 1,
    "i8": 2**63 - 1,
    "f4": 0.10000000149011612,
    "f8": 1.7976931348623157e308,
    "m": Decimal("0.0000000001"),
    "w": Decimal(7),
    "s": "\"quoted\" 'text', \\ tab\t line\r\nbreak \u2028 ü 😀 \x7f\x01 {}[] \\N $1",
    "d": date(9999, 12, 31),
    "t": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "u": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "raw": bytes(range(256)),
    "l": [1, None, -(2**63)],
    "ls": ['a "b", {c}', None, "", "NULL", "\\"],
}
BEFORE_1970 = {
    "t": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "u": datetime(1900, 1, 1, 0, 0, 0, 1),
}
PLAIN = [LEAST, GREATEST, dict.fromkeys(SCHEMA.names), {**GREATEST, **BEFORE_1970, "f8": -0.0}]
ODD = [{**LEAST, "f8": odd, "f4": odd} for odd in (math.nan, math.inf, -math.inf)]


def table_of(rows: list[dict[str, Any]], *left_out: str) -> pa.Table:
    names = [name for name in SCHEMA.names if name not in left_out]
    return pa.Table.from_pylist(rows, SCHEMA).select(names)


def same(found: pa.Table, expected: pa.Table) -> None:
    """Compare tables as text, in which NaN is NaN and -0.0 is not 0.0."""
    assert found.schema == expected.schema
    assert [str(row) for row in found.to_pylist()] == [str(row) for row in expected.to_pylist()]


@contextlib.contextmanager
def opened(connector: Any, schema: pa.Schema, run: str = "r-1", *, resume: bool = False) -> Iterator[Any]:
    target = connector.target(schema, run)
    target.open(resume=resume)
    try:
        yield target
    finally:
        target.close()


def test_postgres_holds_every_type(postgres: Postgres) -> None:
    rows = table_of(PLAIN + ODD)
    rig = PostgresRig(postgres.database())
    with opened(rr.to_postgres(rig.url, 'my "table"'), rows.schema) as target:
        target.write(0, rows, again=False)
        target.write(1, rows.slice(1, 2), again=False)

        same(target.read(), pa.concat_tables([rows, rows.slice(1, 2)]))
    kinds = rig.ask(
        "select column_name, data_type from information_schema.columns where table_name = 'my \"table\"' "
        "order by ordinal_position"
    )
    assert dict(kinds) == {
        "b": "boolean",
        "i1": "smallint",
        "i2": "smallint",
        "i4": "integer",
        "i8": "bigint",
        "f4": "real",
        "f8": "double precision",
        "m": "numeric",
        "w": "numeric",
        "s": "text",
        "d": "date",
        "t": "timestamp with time zone",
        "u": "timestamp without time zone",
        "raw": "bytea",
        "l": "ARRAY",
        "ls": "ARRAY",
        "riprap_batch": "bigint",
    }


def test_sqlite_holds_every_type_but_lists(tmp_path: Path) -> None:
    rows = table_of([*PLAIN, {**GREATEST, "s": "zero\0byte"}], "l", "ls")
    with opened(rr.to_sqlite(tmp_path / "a.db", "out"), rows.schema) as target:
        target.write(0, rows, again=False)

        found = target.read()
    # SQLite does not tell -0.0 from 0.0.
    same(found, table_of([*PLAIN[:3], {**PLAIN[3], "f8": 0.0}, {**GREATEST, "s": "zero\0byte"}], "l", "ls"))
    stored = SqliteRig(tmp_path / "a.db").ask("select d, t, u, w, b, typeof(raw) from out limit 2")
    assert stored == [
        (
            "0001-01-01",
            "0001-01-01T00:00:00.000000Z",
            "0001-01-01T00:00:00.000000",
            str(LEAST["w"]),
            0,
            "blob",
        ),
        ("9999-12-31", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999", "7", 1, "blob"),
    ]


def test_redis_holds_every_type_but_lists(redis: Redis) -> None:
    rows = table_of([*PLAIN, *ODD, {**GREATEST, "s": "zero\0byte"}], "l", "ls")
    stream = redis.prefix() + "types"
    with opened(rr.to_redis(redis.url, stream), rows.schema) as target:
        target.write(0, rows, again=False)

    fetcher = RedisFetcher(rr.from_redis(redis.url, stream, schema=rows.schema), lambda kind, **details: None)
    fetched = [each for each in fetcher.fetch(None) if each is not None]
    fetcher.close()
    assert [each.bad for each in fetched] == [[]]
    same(pa.concat_tables([each.table for each in fetched]), rows)


def test_lines_of_json_hold_every_type_but_binary() -> None:
    rows = table_of([*PLAIN, {**GREATEST, "s": "zero\0byte"}], "raw")
    with listening() as listener:
        with opened(rr.to_tcp(*listener.spec()), rows.schema) as target:
            target.write(0, rows, again=False)
        wait_until(lambda: len(listener.lines()) == rows.num_rows)
        lines = pa.array(listener.lines(), pa.large_binary())

    decoded = decode_messages(lines, "json", rows.schema, limit=1 << 20)
    assert decoded.bad == []
    same(decoded.table, rows)


def through_kafka(spark: SparkSession, kafka: Kafka, rows: pa.Table, folder: Path) -> tuple[pa.Table, int]:
    """Write rows to a topic and read them; return also how many could not be read."""
    topic = kafka.topic()
    KafkaTarget(rr.to_kafka(kafka.address, topic), spark).write(0, rows, again=False)
    app = rr.Application("types")
    app.sink("out", app.source("in", rr.from_kafka(kafka.address, topic, schema=rows.schema)), rr.memory())
    with app.run(spark=spark, runs=folder) as run:
        assert run.wait(timeout=120)
        return run.table("out"), run.progress().quarantined


def test_kafka_holds_every_type_but_binary(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    rows = table_of([*PLAIN, {**GREATEST, "s": "zero\0byte"}], "raw")

    found, bad = through_kafka(spark, kafka, rows, tmp_path / "runs")

    same(found, rows)
    assert bad == 0


def test_json_brings_back_what_is_no_number(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    # NaN and infinities are written as strings, which our own reader takes for what they are.
    rows = table_of(ODD, "raw")

    found, bad = through_kafka(spark, kafka, rows, tmp_path / "runs")

    same(found, rows)
    assert bad == 0


def test_lines_of_csv_hold_every_type_but_lists() -> None:
    rows = table_of([*PLAIN[:2], *PLAIN[3:], *ODD], "raw", "l", "ls")
    with listening() as listener:
        with opened(rr.to_tcp(*listener.spec(), format="csv"), rows.schema) as target:
            target.write(0, rows, again=False)
        wait_until(lambda: bytes(listener.connections[0]).endswith(b"\n"))
        text = bytes(listener.connections[0])

    options = pa.csv.ConvertOptions(
        column_types=rows.schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    found = pa.csv.read_csv(
        pa.py_buffer(text),
        read_options=pa.csv.ReadOptions(column_names=rows.schema.names),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=options,
    )
    same(found, rows)


@pytest.mark.parametrize(
    ("connector", "schema", "said"),
    [
        (
            rr.to_sqlite("a.db", "t"),
            "l array<int>",
            r"SQLite table t in .*a\.db cannot hold the list column 'c'",
        ),
        (
            rr.to_redis("redis://h:1/0", "t"),
            "array<int>",
            "Redis stream t at .* cannot hold the list column 'c'",
        ),
        (rr.to_kafka("h:1", "t"), "binary", "Kafka topic t at h:1 cannot hold the binary column 'c'"),
        (rr.to_tcp("h", 1), "binary", "json lines to h:1 cannot hold the binary column 'c'"),
        (rr.to_tcp("h", 1, format="csv"), "array<int>", "csv lines to h:1 cannot hold the list column 'c'"),
    ],
)
def test_types_a_sink_cannot_hold_are_refused_when_the_application_is_built(
    connector: SinkConnector, schema: str, said: str
) -> None:
    app = rr.Application("types")
    kind = schema.removeprefix("l ")
    source = app.source("in", rr.rows(parse_schema(f"c {kind}").empty_table()))

    with pytest.raises(
        GraphError, match=rf"(?s)out.*test_targets\.py:\d+.*{said}.*Leave it out with a functor"
    ):
        app.sink("out", source, connector)


def test_a_key_that_is_no_column_is_refused() -> None:
    app = rr.Application("types")
    source = app.source("in", rr.rows(numbers(0)))
    with pytest.raises(GraphError, match="names column 'k', which does not exist"):
        app.sink("out", source, rr.to_kafka("h:1", "t", key="k"))


@pytest.mark.parametrize("moment", [1, 60_000, 250_000])
def test_postgres_dropped_in_the_middle_of_a_batch(postgres: Postgres, moment: int) -> None:
    rows = numbers(300_000)
    rig = PostgresRig(postgres.database())
    with Relay(postgres.host, postgres.port) as relay:
        url = rig.url.replace(postgres.address, relay.address)
        with opened(rr.to_postgres(url, "out"), rows.schema) as target:
            target.write(0, numbers(10, -10), again=False)
            over = threading.Event()

            def drop() -> None:
                # The server counts what it copies.
                while not over.is_set():
                    copied = rig.ask("select max(tuples_processed) from pg_stat_progress_copy")[0][0]
                    if copied is not None and copied >= moment:
                        relay.drop()
                        return

            dropping = threading.Thread(target=drop)
            dropping.start()
            try:
                target.write(1, rows, again=False)
            except ConnectionLost:
                # All or nothing: the answer to the commit may be what was lost.
                assert rig.ask("select count(*) from out where n >= 0") in ([(0,)], [(len(rows),)])
                target.write(1, rows, again=True)
            finally:
                over.set()
                dropping.join()

            expected = pa.concat_tables([numbers(10, -10), rows])
            assert target.read().equals(expected.cast(target.read().schema))
    assert rig.ask("select count(*), count(distinct n) from out") == [(300_010, 300_010)]


def test_postgres_waits_for_a_transaction_that_a_lost_connection_left(postgres: Postgres) -> None:
    rig = PostgresRig(postgres.database())
    connector = rr.to_postgres(rig.url, "out")
    with opened(connector, numbers(0).schema) as lost, opened(connector, numbers(0).schema) as target:
        with lost._transaction() as cursor:
            number = lost._number(cursor, 3)
            cursor.execute(f"insert into out values (1, 'x', 0.5, {number})")
            written = threading.Thread(target=target.write, args=(3, numbers(2)), kwargs={"again": True})
            written.start()
            wait_until(lambda: rig.ask("select count(*) from pg_locks where not granted") == [(1,)])
        written.join()

        assert target.read().column("n").to_pylist() == [0, 1]


@pytest.mark.parametrize("moment", [1, 20_000, 45_000])
def test_redis_dropped_in_the_middle_of_a_batch(redis: Redis, moment: int) -> None:
    rows = numbers(60_000)
    rig = RedisRig(redis.url, redis.prefix() + "out")
    with (
        Relay(redis.host, redis.port) as relay,
        redis_client.Redis.from_url(redis.url) as client,
        opened(
            rr.to_redis(redis.url.replace(redis.address, relay.address), rig.stream), rows.schema
        ) as target,
    ):
        over = threading.Event()

        def drop() -> None:
            while not over.is_set():
                if client.xlen(rig.stream) >= moment:
                    relay.drop()
                    return

        dropping = threading.Thread(target=drop)
        dropping.start()
        try:
            target.write(0, rows, again=False)
        except ConnectionLost:
            target.write(0, rows, again=True)
        finally:
            over.set()
            dropping.join()
        target.write(1, numbers(5, 60_000), again=False)
        target.write(1, numbers(5, 60_000), again=True)

    assert [n for _, n in rig.held()] == list(range(60_005))


def test_redis_carries_out_one_of_two_transactions_for_the_same_rows(redis: Redis) -> None:
    rows = numbers(3)
    rig = RedisRig(redis.url, redis.prefix() + "out")
    connector = rr.to_redis(redis.url, rig.stream)
    with opened(connector, rows.schema) as lost, opened(connector, rows.schema) as target:
        # A connection that was given up has looked how far it is; what it sends arrives after all.
        late = lost._client.connection_pool.get_connection()
        assert lost._written(late, 0) == 0
        target.write(0, rows, again=True)
        lost._add(late, rows, "0 3")
        late.disconnect()

    assert [n for _, n in rig.held()] == [0, 1, 2]


def test_tcp_reset_in_the_middle_of_a_batch() -> None:
    rows = numbers(200_000)
    with listening() as listener:
        listener.reset_after(1_000_000)
        target = TcpTarget(rr.to_tcp(*listener.spec()), rows.schema)
        target.open(resume=False)
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{listener.port}"):
            target.write(0, rows, again=False)
        target.write(0, rows, again=True)
        target.write(1, numbers(1, 200_000), again=False)
        target.close()
        wait_until(lambda: listener.lines()[-1:] and b"200000" in listener.lines()[-1][:20])

        first, second = (bytes(c) for c in listener.connections[:2])
    assert 0 < first.count(b"\n") < 200_000
    # What came before the loss is the beginning of what came again.
    assert second.startswith(first)
    assert second.count(b"\n") == 200_001


def test_a_locked_sqlite_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    def application(**options: Any) -> rr.Application:
        app = rr.Application("locked")
        source = app.source("in", rr.rows(numbers(10)))
        app.sink("out", source, rr.to_sqlite(path, "out", **options))
        return app

    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin exclusive")
        with pytest.raises(RunError, match=r"operator 'out' .*database is locked\. Tried .* retry_for="):
            application(retry_for="0.2s").run(spark=spark, runs=tmp_path / "first")
        release = threading.Timer(1.5, other.execute, ["rollback"])
        release.start()
        with application().run(spark=spark, runs=tmp_path / "second") as run:
            assert run.wait(timeout=120)
            assert run.table("out").num_rows == 10
        release.join()
    events = [e["event"] for e in lines_of(only_run(tmp_path / "second") / "events.jsonl")]
    assert "connection lost" in events
    assert "connection back" in events
