"""What is published comes out, once and in order, whatever happens to the driver, the server and the network."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_client
from pyspark.sql import SparkSession
from tests.edges.sink_rigs import (
    BATCH,
    BATCHES,
    KafkaRig,
    Listener,
    PostgresRig,
    RedisRig,
    Rig,
    SqliteRig,
    application,
    connectors,
    in_batches,
    listening,
    numbers,
)
from tests.runtime.harness import Programs, lines_of, only_run, wait_until
from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.relay import Relay

import riprap as rr
from riprap.graph.connectors import SinkConnector
from riprap.state.leases import sweep
from riprap.state.pages import page_root

STEPS = ["recorded", "published", "collected"]
DIES_IN = 2


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def run_through(spark: SparkSession, app: rr.Application, **options: Any) -> rr.Run:
    with app.run(spark=spark, **{"batch_rows": BATCH, **options}) as run:
        assert run.wait(timeout=120), "the run did not end"
    return run


def events_of(run: rr.Run | Path) -> list[str]:
    folder = run if isinstance(run, Path) else run.folder
    return [e["event"] for e in lines_of(folder / "events.jsonl")]


@pytest.fixture(scope="module")
def killed(
    programs: Programs,
    spark: SparkSession,
    postgres: Postgres,
    redis: Redis,
    kafka: Kafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[Path, dict[str, Rig]]]]:
    root = tmp_path_factory.mktemp("killed")
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[Path, dict[str, Rig]]] = {}
        started = []
        for step in STEPS:
            work = root / step
            work.mkdir()
            rigs: dict[str, Rig] = {
                "postgres": PostgresRig(postgres.database()),
                "sqlite": SqliteRig(work / "out.db"),
                "redis": RedisRig(redis.url, redis.prefix() + "out"),
                "kafka": KafkaRig(spark, kafka.address, kafka.topic()),
                "tcp": stack.enter_context(listening()),
            }
            job = {
                "rigs": {name: rig.spec() for name, rig in rigs.items()},
                "options": {"master": "local[1]", "runs": str(work / "runs")},
            }
            program = str(Path(__file__).with_name("sink_rigs.py"))
            started.append(programs.start(program, work, job, crash_at=f"{step}:{DIES_IN}"))
            found[step] = (work, rigs)
        for each in started:
            programs.finish(each, code=-signal.SIGKILL)
        yield found
    for step in STEPS:
        shutil.rmtree(root / step / "runs", ignore_errors=True)
    sweep(page_root())


@pytest.mark.parametrize("step", STEPS)
def test_every_sink_holds_what_a_run_without_faults_leaves(
    spark: SparkSession, killed: dict[str, tuple[Path, dict[str, Rig]]], step: str
) -> None:
    work, rigs = killed[step]
    folder = only_run(work / "runs")
    before = in_batches(range(DIES_IN if step == "recorded" else DIES_IN + 1))
    for name in ("postgres", "sqlite", "kafka"):
        assert rigs[name].held() == before

    run_through(
        spark,
        application(connectors({name: rig.spec() for name, rig in rigs.items()})),
        folder=folder,
    )

    assert events_of(folder) == ["started", "resumed", "ended"]
    whole = in_batches()
    for name in ("postgres", "sqlite"):
        assert sorted(rigs[name].held()) == whole
    assert [n for _, n in rigs["redis"].held()] == [n for _, n in whole]
    # What cannot be taken back comes again unless it is noted that all had it, in order, and says which batch it is of.
    again = before + in_batches(range(DIES_IN + (step == "collected"), BATCHES))
    assert rigs["kafka"].held() == again
    assert [n for _, n in rigs["tcp"].held()] == [n for _, n in again]


class Faulty:
    """A sink that is handed each batch before the others, and makes a fault once one of them comes."""

    def __init__(self, at: int, fault: Callable[[], None]) -> None:
        self._at, self._fault = at, fault

    def __call__(self, batch: int, table: pa.Table) -> None:
        if batch == self._at:
            self._fault()


def with_fault(fault: Callable[[], None], connector: SinkConnector, at: int = DIES_IN) -> rr.Application:
    return application({"fault": rr.callback(Faulty(at, fault)), "out": connector})


def once_it_came(found: Rig, fault: Callable[[], None]) -> Callable[[], None]:
    """Make a fault once a listener has the batches before it: what TCP has under way is lost with its connection."""

    def wait_and_make_it() -> None:
        if isinstance(found, Listener):
            wait_until(lambda: len(found.held()) >= DIES_IN * BATCH)
        fault()

    return wait_and_make_it


def lost(runs: Path) -> bool:
    (folder,) = runs.glob("*/latest")
    return "connection lost" in events_of(folder)


@contextlib.contextmanager
def killed_and_back(server: Postgres | Redis | Kafka, runs: Path) -> Iterator[Callable[[], None]]:
    """Give a fault: the server is killed, and starts again once the run has noticed."""
    threads: list[threading.Thread] = []

    def back() -> None:
        wait_until(lambda: lost(runs), seconds=60)
        server.start()

    def fault() -> None:
        server.kill()
        threads.append(threading.Thread(target=back))
        threads[0].start()

    try:
        yield fault
    finally:
        for thread in threads:
            thread.join()
        server.ensure_running()


def test_postgres_killed_and_started_again(spark: SparkSession, postgres: Postgres, runs: Path) -> None:
    rig = PostgresRig(postgres.database())
    with killed_and_back(postgres, runs) as fault:
        run = run_through(spark, with_fault(fault, rr.to_postgres(*rig.spec())), runs=runs)

    assert rig.held() == in_batches()
    assert events_of(run)[-2:] == ["connection back", "ended"]


def test_redis_killed_and_started_again(spark: SparkSession, redis: Redis, runs: Path) -> None:
    rig = RedisRig(redis.url, redis.prefix() + "out")
    with killed_and_back(redis, runs) as fault:
        run = run_through(spark, with_fault(fault, rr.to_redis(*rig.spec())), runs=runs)

    assert [n for _, n in rig.held()] == list(range(BATCH * BATCHES))
    assert events_of(run)[-2:] == ["connection back", "ended"]


def test_kafka_killed_and_started_again(spark: SparkSession, kafka: Kafka, runs: Path) -> None:
    rig = KafkaRig(spark, kafka.address, kafka.topic())
    with killed_and_back(kafka, runs) as fault:
        run = run_through(spark, with_fault(fault, rr.to_kafka(*rig.spec())), runs=runs)

    held = rig.held()
    assert sorted(set(held)) == in_batches()
    assert {batch for batch, n in held if held.count((batch, n)) > 1} <= {DIES_IN}
    assert events_of(run)[-2:] == ["connection back", "ended"]


@contextlib.contextmanager
def broken(
    rig: str, request: pytest.FixtureRequest, spark: SparkSession
) -> Iterator[tuple[Relay, Rig, list[Any]]]:
    """Give a relay, what lies behind it, and how a sink finds the relay."""
    if rig == "tcp":
        with listening() as listener, Relay("127.0.0.1", listener.port) as relay:
            yield relay, listener, [relay.host, relay.port]
        return
    server = request.getfixturevalue(rig)
    if rig == "kafka":
        with server.relay() as relay:
            topic = server.topic()
            yield relay, KafkaRig(spark, server.address, topic), [relay.address, topic]
        return
    with Relay(server.host, server.port) as relay:
        found = (
            PostgresRig(server.database())
            if rig == "postgres"
            else RedisRig(server.url, server.prefix() + "out")
        )
        url, *rest = found.spec()
        yield relay, found, [url.replace(server.address, relay.address), *rest]


@pytest.mark.parametrize("rig", ["postgres", "redis", "tcp", "kafka"])
def test_dropped_connections(
    spark: SparkSession, request: pytest.FixtureRequest, runs: Path, rig: str
) -> None:
    with broken(rig, request, spark) as (relay, found, spec):
        app = with_fault(once_it_came(found, relay.drop), connectors({rig: spec})[rig])
        run = run_through(spark, app, runs=runs)

    held = found.held()
    assert [n for _, n in held] == list(range(BATCH * BATCHES))
    # The clients of Redis and Kafka see it before they send anything, and connect again without a word.
    if rig in ("postgres", "tcp"):
        assert events_of(run) == ["started", "connection lost", "connection back", "ended"]


@pytest.mark.parametrize("rig", ["postgres", "redis", "tcp", "kafka"])
def test_a_server_that_stays_away(
    spark: SparkSession, request: pytest.FixtureRequest, runs: Path, rig: str
) -> None:
    with broken(rig, request, spark) as (relay, found, spec):
        sink = connectors({rig: spec}, retry_for="1s")[rig]
        with pytest.raises(rr.RunError) as caught:
            run_through(spark, with_fault(once_it_came(found, relay.refuse), sink), runs=runs)
        said = str(caught.value)
        assert re.match(r"operator 'out' \(.*sink_rigs\.py:\d+\), ", said)
        assert relay.address in said or f"port {relay.port} failed" in said
        assert re.search(
            r"Tried \d+ more times in \d s\. Check that the server runs .* take the run up again", said
        )
        assert "retry_for=" in said
        relay.accept()
        folder = only_run(runs)
        run_through(spark, with_fault(lambda: None, sink), folder=folder)

    assert [n for _, n in found.held()] == list(range(BATCH * BATCHES))
    events = events_of(folder)
    assert "connection lost" in events
    assert events[-4:] == ["failed", "interrupted", "resumed", "ended"]


@pytest.mark.parametrize("rig", ["postgres", "redis", "tcp", "kafka"])
def test_a_server_that_is_not_there_when_the_run_starts(
    spark: SparkSession, request: pytest.FixtureRequest, runs: Path, rig: str
) -> None:
    with broken(rig, request, spark) as (relay, found, spec):
        relay.refuse()
        with pytest.raises(rr.RunError, match=r"operator 'out' .* Check that the server runs"):
            application({"out": connectors({rig: spec}, retry_for="0.3s")[rig]}).run(spark=spark, runs=runs)
        refused = set(runs.glob("*/2*/events.jsonl"))

        def found_since(before: set[Path]) -> set[Path]:
            return set(runs.glob("*/2*/events.jsonl")) - before

        def come_back() -> None:
            wait_until(lambda: any("connection lost" in path.read_text() for path in found_since(refused)))
            relay.accept()

        back = threading.Thread(target=come_back)
        back.start()
        run = run_through(spark, application({"out": connectors({rig: spec})[rig]}), runs=runs)
        back.join()

    assert [n for _, n in found.held()] == list(range(BATCH * BATCHES))
    assert events_of(run)[-2:] == ["connection back", "ended"]


@pytest.fixture
def rigs(
    spark: SparkSession,
    postgres: Postgres,
    redis: Redis,
    kafka: Kafka,
    listener: Listener,
    tmp_path: Path,
) -> dict[str, Rig]:
    return {
        "postgres": PostgresRig(postgres.database()),
        "sqlite": SqliteRig(tmp_path / "out.db"),
        "redis": RedisRig(redis.url, redis.prefix() + "out"),
        "kafka": KafkaRig(spark, kafka.address, kafka.topic()),
        "tcp": listener,
    }


@pytest.mark.parametrize(
    ("where", "expected"),
    [("n < 0", []), (f"n >= {BATCH} and n < {BATCH + 3} or n = {3 * BATCH}", [1000, 1001, 1002, 3000])],
)
def test_batches_without_rows(
    spark: SparkSession, rigs: dict[str, Rig], runs: Path, where: str, expected: list[int]
) -> None:
    app = rr.Application("writing")
    some = app.functor("some", app.source("in", rr.rows(numbers(BATCH * BATCHES))), where=where)
    for name, connector in connectors({n: r.spec() for n, r in rigs.items()}).items():
        app.sink(name, some, connector)
    with app.run(spark=spark, batch_rows=BATCH, runs=runs) as run:
        assert run.wait(timeout=120)
        assert run.table("postgres").column("n").to_pylist() == expected
        assert run.table("sqlite").column("n").to_pylist() == expected

    for rig in rigs.values():
        assert [n for _, n in rig.held()] == expected


@pytest.mark.parametrize("rig", ["postgres", "sqlite"])
def test_a_million_rows(
    spark: SparkSession, request: pytest.FixtureRequest, runs: Path, tmp_path: Path, rig: str
) -> None:
    rows = numbers(1_000_000)
    spec = [tmp_path / "out.db"] if rig == "sqlite" else [request.getfixturevalue(rig).database()]
    app = application({"out": connectors({rig: [*spec, "out"]})[rig]}, rows)
    with app.run(spark=spark, batch_rows=300_000, runs=runs) as run:
        assert run.wait(timeout=120)
        assert run.table("out").equals(rows.cast(run.table("out").schema))


@pytest.mark.parametrize("rig", ["redis", "kafka"])
def test_many_rows(spark: SparkSession, request: pytest.FixtureRequest, runs: Path, rig: str) -> None:
    server = request.getfixturevalue(rig)
    found: Rig
    if rig == "redis":
        found = RedisRig(server.url, server.prefix() + "out")
    else:
        found = KafkaRig(spark, server.address, server.topic())
    app = application({"out": connectors({rig: found.spec()})[rig]}, numbers(200_000))

    run_through(spark, app, batch_rows=90_000, runs=runs)

    assert [n for _, n in found.held()] == list(range(200_000))


def tables(postgres: Postgres, folder: Path) -> dict[str, PostgresRig | SqliteRig]:
    return {"postgres": PostgresRig(postgres.database()), "sqlite": SqliteRig(folder / "out.db")}


def test_two_runs_into_one_table(spark: SparkSession, postgres: Postgres, runs: Path, tmp_path: Path) -> None:
    rigs = tables(postgres, tmp_path)
    sinks = connectors({name: rig.spec() for name, rig in rigs.items()})
    identities = []
    for first in (0, 10_000):
        rows = numbers(2 * BATCH, first)
        with application(sinks, rows).run(spark=spark, batch_rows=BATCH, runs=runs) as run:
            assert run.wait(timeout=120)
            for name in rigs:
                assert run.table(name).column("n").to_pylist() == rows.column("n").to_pylist()
        identities.append(f"writing-{run.folder.name}")
    for name, rig in rigs.items():
        assert rig.ask("select count(*) from out") == [(4 * BATCH,)]
        told_apart = rig.ask(
            "select b.run, min(t.n), max(t.n), count(*) from out t join riprap_batches b on b.id = t.riprap_batch "
            "where b.sink = 'out' group by b.run order by 2"
        )
        assert told_apart == [
            (f"{identities[0]}/{name}", 0, 2 * BATCH - 1, 2 * BATCH),
            (f"{identities[1]}/{name}", 10_000, 10_000 + 2 * BATCH - 1, 2 * BATCH),
        ]


def test_overwrite_replaces_other_runs_and_not_its_own(
    spark: SparkSession, postgres: Postgres, redis: Redis, runs: Path, tmp_path: Path
) -> None:
    rigs: dict[str, Rig] = {
        **tables(postgres, tmp_path),
        "redis": RedisRig(redis.url, redis.prefix() + "o"),
    }
    sinks = connectors({name: rig.spec() for name, rig in rigs.items()}, overwrite=True)
    run_through(spark, application(sinks, numbers(BATCH, 50_000)), runs=runs / "first")

    def stop() -> None:
        raise ValueError("enough")

    fault = rr.callback(Faulty(DIES_IN, stop))
    with pytest.raises(rr.OperatorError, match="enough"):
        run_through(spark, application({**sinks, "fault": fault}), runs=runs / "second")
    run_through(
        spark,
        application({**sinks, "fault": rr.callback(Faulty(-1, stop))}),
        folder=only_run(runs / "second"),
    )

    for rig in rigs.values():
        assert sorted(n for _, n in rig.held()) == list(range(BATCH * BATCHES))


def test_a_table_of_ones_own(spark: SparkSession, postgres: Postgres, runs: Path, tmp_path: Path) -> None:
    rigs = tables(postgres, tmp_path)
    make = 'create table "out" (riprap_batch bigint, x double precision, mine integer default 7, s text, n bigint)'
    rigs["postgres"].do(make)  # type: ignore[union-attr]
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute(make)

    run_through(spark, application(connectors({n: r.spec() for n, r in rigs.items()})), runs=runs)

    for rig in rigs.values():
        assert rig.held() == in_batches()
        assert rig.ask("select distinct mine from out") == [(7,)]


def test_a_table_without_the_columns(
    spark: SparkSession, postgres: Postgres, runs: Path, tmp_path: Path
) -> None:
    rigs = tables(postgres, tmp_path)
    rigs["postgres"].do("create table out (n bigint, y text)")  # type: ignore[union-attr]
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute("create table out (n bigint, y text)")
    for name, rig in rigs.items():
        with pytest.raises(rr.RunError) as caught:
            run_through(spark, application(connectors({name: rig.spec()})), runs=runs)
        said = str(caught.value)
        assert f"operator '{name}'" in said
        assert "has no column s, x, riprap_batch; it has n, y. Add what is missing, or name a table" in said


def test_values_that_do_not_fit_are_an_error_of_the_batch(
    spark: SparkSession, postgres: Postgres, runs: Path
) -> None:
    rig = PostgresRig(postgres.database())
    rig.do("create table out (n bigint check (n <> 2500), s text, x double precision, riprap_batch bigint)")
    with pytest.raises(rr.RunError, match=r"operator 'postgres' .*out_n_check"):
        run_through(spark, application(connectors({"postgres": rig.spec()})), runs=runs)

    assert rig.held() == in_batches(range(2))


def test_text_with_a_zero_byte(spark: SparkSession, postgres: Postgres, runs: Path, tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "s": ["a\0b"], "x": [0.5]})
    rigs = tables(postgres, tmp_path)
    with pytest.raises(rr.RunError, match=r"operator 'postgres' .*0x00"):
        run_through(spark, application(connectors({"postgres": rigs["postgres"].spec()}), rows), runs=runs)
    run_through(spark, application(connectors({"sqlite": rigs["sqlite"].spec()}), rows), runs=runs)
    assert rigs["sqlite"].ask("select s from out") == [("a\0b",)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda url: url.replace("postgres@", "nobody@"), 'role "nobody" does not exist'),
        (lambda url: url + "x", "does not exist"),
    ],
)
def test_a_mistake_in_the_address_is_told_at_once(
    spark: SparkSession, postgres: Postgres, runs: Path, change: Callable[[str], str], said: str
) -> None:
    url = change(postgres.database())
    with pytest.raises(rr.RunError, match=f"operator 'out' .*{said}"):
        run_through(spark, application({"out": rr.to_postgres(url, "out")}), runs=runs)


def test_a_schema_of_the_database(spark: SparkSession, postgres: Postgres, runs: Path) -> None:
    rig = PostgresRig(postgres.database())
    rig.do("create schema far")
    with application({"out": rr.to_postgres(rig.url, "far.out")}).run(
        spark=spark, batch_rows=BATCH, runs=runs
    ) as run:
        assert run.wait(timeout=120)
        assert run.table("out").column("n").to_pylist() == list(range(BATCH * BATCHES))
    assert rig.ask("select count(*) from far.out") == [(BATCH * BATCHES,)]


def test_a_key_that_is_no_stream(spark: SparkSession, redis: Redis, runs: Path) -> None:
    key = redis.prefix() + "text"
    with redis_client.Redis.from_url(redis.url) as client:
        client.set(key, "mine")
        with pytest.raises(rr.RunError, match=rf"operator 'out' .*Redis key {key} is a string, not a stream"):
            run_through(spark, application({"out": rr.to_redis(redis.url, key)}), runs=runs)
        assert client.get(key) == b"mine"


def test_a_key_that_becomes_something_else(spark: SparkSession, redis: Redis, runs: Path) -> None:
    key = redis.prefix() + "out"
    with redis_client.Redis.from_url(redis.url) as client:

        def replace() -> None:
            client.delete(key)
            client.set(key, "mine")

        with pytest.raises(rr.RunError, match=r"operator 'out' .*WRONGTYPE"):
            run_through(spark, with_fault(replace, rr.to_redis(redis.url, key)), runs=runs)


def test_rows_that_cannot_be_read_back_say_so(
    spark: SparkSession, redis: Redis, kafka: Kafka, listener: Listener, runs: Path
) -> None:
    sinks = {
        "redis": rr.to_redis(redis.url, redis.prefix() + "out"),
        "kafka": rr.to_kafka(kafka.address, kafka.topic()),
        "tcp": rr.to_tcp(*listener.spec()),
    }
    with application(sinks, numbers(3)).run(spark=spark, runs=runs) as run:
        run.wait()
        for name, reason in (
            ("redis", "read the stream"),
            ("kafka", "read the topic"),
            ("tcp", "cannot be read back"),
        ):
            with pytest.raises(rr.RunError, match=reason):
                run.table(name)


def test_lines_of_csv(spark: SparkSession, listener: Listener, runs: Path) -> None:
    rows = pa.table({"n": [1, None], "s": ['a "b", c', None]})
    run_through(spark, application({"out": rr.to_tcp(*listener.spec(), format="csv")}, rows), runs=runs)

    assert listener.lines() == [b'1,"a ""b"", c"', b","]
