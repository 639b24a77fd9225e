"""The shared Spark session, set so that it evaluates an expression just where SQL says it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "1",
        # An expression that occurs twice in a query is otherwise evaluated once, ahead of any condition.
        "spark.sql.subexpressionElimination.enabled": "false",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)
