"""Replications as Spark tasks, for models that take longer than one machine should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from riprap.model.arrays import ReplicationResult
from riprap.model.prediction import Replications, Spread, run_chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Chunks of a job: few enough to see progress, enough for all cores of a small cluster.
_AT_ONCE = 64


def on_spark(session: SparkSession) -> Spread:
    """Return what has Spark run chunks of replications. The numbers are those of a run without it."""

    def spread(chunks: Sequence[Replications]) -> Iterator[list[ReplicationResult]]:
        context = session.sparkContext
        for first in range(0, len(chunks), _AT_ONCE):
            some = chunks[first : first + _AT_ONCE]
            yield from context.parallelize(some, len(some)).map(run_chunk).collect()

    return spread
