"""The servers the other tests lean on: they start, answer, keep their data, and end with their session."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import adbc_driver_postgresql.dbapi as postgresql
import psutil
import pytest
import redis as redis_client
from tests.services import kafka_wire
from tests.services.kafka import Kafka
from tests.services.ports import free_port
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.server import Server

ROOT = Path(__file__).parents[2]


def take_down(server: Server, how: str) -> None:
    before = server.pid
    assert psutil.pid_exists(before)
    getattr(server, how)()
    assert not psutil.pid_exists(before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port))


def table_of(url: str) -> list[int]:
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM t ORDER BY n")
        return [n for (n,) in cursor.fetchall()]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_postgres_keeps_what_was_committed(postgres: Postgres, how: str) -> None:
    url = postgres.database()
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (n INT)")
        cursor.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        connection.commit()

    take_down(postgres, how)
    postgres.start()

    assert table_of(url) == list(range(1, 1001))


def test_postgres_ends_under_its_clients_and_is_killed_whole(postgres: Postgres) -> None:
    connection = postgresql.connect(postgres.database())
    family = psutil.Process(postgres.pid).children(recursive=True)
    assert family

    take_down(postgres, "kill")

    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    connection.close()


def test_a_server_left_down_is_up_for_the_next_test(postgres: Postgres) -> None:
    postgres.stop()

    with postgresql.connect(postgres.database()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_redis_keeps_what_it_answered(redis: Redis, how: str) -> None:
    stream = redis.prefix() + "prices"
    with redis_client.Redis.from_url(redis.url) as client:
        added = [client.xadd(stream, {"n": n}) for n in range(100)]

    take_down(redis, how)
    redis.start()

    with redis_client.Redis.from_url(redis.url) as client:
        assert client.xrange(stream) == [(at, {b"n": b"%d" % n}) for n, at in enumerate(added)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_kafka_keeps_its_topics(kafka: Kafka, how: str) -> None:
    topic = kafka.topic(partitions=2)

    take_down(kafka, how)
    kafka.start()

    with pytest.raises(kafka_wire.RefusedError) as refused:
        kafka_wire.create_topic(kafka.host, kafka.port, topic, 2)
    assert refused.value.code == kafka_wire.TOPIC_ALREADY_EXISTS


def test_kafka_can_be_reached_by_its_relay(kafka: Kafka) -> None:
    topic = kafka.topic()
    with kafka.relay() as relay:
        assert kafka_wire.is_led(relay.host, relay.port, topic)
        relay.refuse()
        with pytest.raises(ConnectionRefusedError):
            kafka_wire.is_led(relay.host, relay.port, topic)


def test_a_server_does_not_outlive_a_session_that_is_killed(redis: Redis) -> None:
    program = """if True:
        import signal
        from tests.services.redis import Redis
        server = Redis()
        server.start()
        print(server.pid, server.folder, flush=True)
        signal.pause()
    """
    session = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with session:
        assert session.stdout is not None
        pid, folder = session.stdout.readline().split()
        server = psutil.Process(int(pid))
        os.kill(session.pid, signal.SIGKILL)

    server.wait(timeout=30)
    shutil.rmtree(folder)


def test_ports_are_free_and_never_given_twice() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
