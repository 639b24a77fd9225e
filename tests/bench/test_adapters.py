"""The benchmark of the adapters moves every row both ways, and says what it could not measure."""

from __future__ import annotations

import pytest
from tests.services.postgres import Postgres
from tests.services.redis import Redis

from riprap_bench import adapters

SERVERS = ("RIPRAP_BENCH_POSTGRES", "RIPRAP_BENCH_REDIS", "RIPRAP_BENCH_KAFKA")


def measured(result: dict[str, object]) -> set[tuple[str, str]]:
    lines = result["adapters"]
    assert isinstance(lines, list)
    for line in lines:
        assert line["ratio"] == pytest.approx(line["tuples_per_s"] / line["plain_tuples_per_s"], rel=0.01)
    return {(line["adapter"], line["kind"]) for line in lines}


def test_a_case_without_its_server_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    heard: list[str] = []

    result = adapters.measure_adapters(heard.append, rows=2_000, slow_rows=500, repetitions=1, quick=True)

    assert measured(result) == {
        *(("files, " + format, "source") for format in ("parquet", "csv", "json", "text")),
        *(("files, " + format, "sink") for format in ("parquet", "csv", "json")),
        ("folder scan, 20 files", "source"),
        ("TCP, JSON lines", "source"),
        ("TCP, JSON lines", "sink"),
        ("SQLite", "sink"),
    }
    assert set(result["missing"]) == {
        "PostgreSQL source", "PostgreSQL sink", "Redis source", "Redis sink", "Kafka"
    }  # fmt: skip
    assert "Not measured: Kafka (no Kafka: name one in RIPRAP_BENCH_KAFKA)." in adapters.table(result)
    assert any(line.startswith("SQLite, sink: ") for line in heard)


def test_servers_are_measured_too(postgres: Postgres, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIPRAP_BENCH_POSTGRES", postgres.database())
    monkeypatch.setenv("RIPRAP_BENCH_REDIS", redis.url)

    result = adapters.measure_adapters(
        lambda line: None, rows=2_000, slow_rows=500, repetitions=1, quick=True, kafka=False
    )

    assert {("PostgreSQL", "source"), ("PostgreSQL", "sink"), ("Redis stream", "source")} <= measured(result)
    assert not result["missing"]
