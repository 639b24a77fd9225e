"""A Spark session for commands that look and do not run: what its JVM prints is shown only if it does not start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riprap.graph.graph import Graph


@contextlib.contextmanager
def spark_session(master: str | None, log: Path, graph: Graph) -> Iterator[SparkSession]:
    """Start a Spark session for an application, whose JVM writes to ``log``, and stop it in the end."""
    from riprap.runtime.kafka import session_config
    from riprap.runtime.session import make_session

    session = make_session(master, session_config(graph), log)
    try:
        yield session
    finally:
        session.stop()
