"""A Redis server that is stopped, hangs, or is full."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from tests.services.redis import Redis

from riprap.errors import StoreError
from riprap.state.stores import open_store, redis_store

MB = 1 << 20


def test_a_server_that_dies_and_comes_back(redis: Redis) -> None:
    store = open_store(f"{redis.url}?prefix={redis.prefix()}&chunk=100")
    store.put("Sums", {"a": b"1" * 1000})
    redis.kill()
    for use in (lambda: store.get("Sums", "a"), lambda: store.put("Sums", {"b": b"2"}), store.entries):
        begin = time.monotonic()
        with pytest.raises(
            StoreError, match=r"store redis://127.*Connection refused.*whether the server runs"
        ):
            use()
        assert time.monotonic() - begin < 5
    redis.start()
    assert store.get("Sums", "a").to_pybytes() == b"1" * 1000
    redis.restart()
    # The connection is of the time before, and nobody has noticed yet.
    store.put("Sums", {"b": b"2"})
    assert store.keys("Sums") == ["a", "b"]
    store.close()


def test_a_server_that_hangs(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_store, "_ANSWER_SECONDS", 0.5)
    store = open_store(f"{redis.url}?prefix={redis.prefix()}")
    store.put("Sums", {"a": b"1"})
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(StoreError, match="Timeout"):
            store.put("Sums", {"a": b"2", "b": bytes(8 * MB)})
        assert time.monotonic() - begin < 5
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    assert store.get("Sums", "a").to_pybytes() in (b"1", b"2")
    store.put("Sums", {"a": b"3"})
    assert store.get("Sums", "a").to_pybytes() == b"3"
    store.close()


def test_a_full_server(redis: Redis) -> None:
    import redis as client

    prefix = redis.prefix()
    server = client.Redis.from_url(redis.url)
    store = open_store(f"{redis.url}?prefix={prefix}&chunk={MB}")
    store.put("Sums", {"a": b"1"})
    used = server.info("memory")["used_memory"]
    server.config_set("maxmemory", used + 3 * MB)
    try:
        with pytest.raises(StoreError, match=r"maxmemory.*more memory"):
            store.put("Sums", {"a": b"2", "b": os.urandom(9 * MB)})
        assert store.keys("Sums") == ["a"]
        assert store.get("Sums", "a").to_pybytes() == b"1"
        # The chunks that fitted are gone again.
        assert len(server.keys(f"{prefix}:chunk:*")) == 1
    finally:
        server.config_set("maxmemory", 0)
    store.put("Sums", {"b": bytes(9 * MB)})
    assert store.get("Sums", "b").size == 9 * MB
    store.close()
    server.close()


def test_what_a_dead_writer_sent_goes_by_itself(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis as client

    prefix = redis.prefix()
    server = client.Redis.from_url(redis.url)
    store = redis_store.RedisStore("", "it", redis.url, prefix=prefix, chunk=10)
    store._send_chunks([f"{prefix}:chunk:Sums:a:s:0"], iter([memoryview(b"half")]))
    (name,) = server.keys(f"{prefix}:chunk:*")
    assert 0 < server.ttl(name) <= 24 * 3600
    store.put("Sums", {"a": b"whole"})
    assert sorted(server.ttl(name) for name in server.keys(f"{prefix}:chunk:*"))[0] == -1
    store.close()
    server.close()


def test_an_answer_that_is_lost_costs_no_value(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"{redis.url}?prefix={redis.prefix()}&chunk=100")
    store.put("Sums", {"a": b"1" * 1000})
    made = store._client.pipeline  # type: ignore[attr-defined]

    def deaf(transaction: bool) -> Any:
        pipe = made(transaction=transaction)
        send = pipe.execute

        def execute() -> Any:
            found = send()
            if transaction:
                raise TimeoutError("no answer")
            return found

        pipe.execute = execute
        return pipe

    monkeypatch.setattr(store._client, "pipeline", deaf)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="no answer"):
        store.put("Sums", {"a": b"2" * 1000})
    monkeypatch.undo()
    assert store.get("Sums", "a").to_pybytes() == b"2" * 1000
    store.close()


def test_a_wrong_password(redis: Redis) -> None:
    redis.ensure_running()
    store = open_store(redis.url.replace("//", "//me:secret@"))
    with pytest.raises(StoreError, match="user and password") as caught:
        store.keys("Sums")
    assert "secret@" not in str(caught.value)
    store.close()
