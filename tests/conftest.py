"""One embedded Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from riprap.runtime.session import make_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A failed task is tried once more. Failures that tests provoke would fill the screen, so Spark logs nothing.
    session = make_session("local[2,2]", {"spark.log.level": "OFF"})
    yield session
    session.stop()
