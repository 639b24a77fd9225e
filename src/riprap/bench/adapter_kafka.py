"""Kafka: Spark's connector alone in a plain query, against the same connector in Riprap."""

from __future__ import annotations

from collections.abc import Iterator

from riprap.bench.adapter_cases import Case, server


def kafka_source(rows: int) -> Iterator[Case]:
    """Yield a topic read by Spark."""
    server("RIPRAP_BENCH_KAFKA", "Kafka")
    return iter(())


def kafka_sink(rows: int) -> Iterator[Case]:
    """Yield a topic written by Spark."""
    server("RIPRAP_BENCH_KAFKA", "Kafka")
    return iter(())
