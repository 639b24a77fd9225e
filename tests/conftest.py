"""One embedded Spark session, and one server of each kind, for all tests that need one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from tests.runtime.harness import Programs
from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.server import Server, UnavailableError

from riprap.errors import RunError
from riprap.runtime.kafka_jars import connector_jars
from riprap.runtime.session import make_session
from riprap.state import windows
from riprap.state.leases import sweep
from riprap.state.pages import page_root

S = TypeVar("S", bound=Server)
# How long it takes to draw an example says how busy the machine is, and nothing of what is tested.
settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("busy")
# What tests compute in their own process has little state: it is to be in several pages all the same.
windows.SMALL_BYTES = 0
# Tests start dozens of JVMs that live for seconds: to compile for the long run is not worth it to them.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A failed task is tried once more. Failures that tests provoke would fill the screen, so Spark logs nothing.
    config = {"spark.log.level": "OFF"}
    # Without them the tests of Kafka are skipped, and say why.
    with contextlib.suppress(RunError):
        config["spark.jars"] = ",".join(str(jar) for jar in connector_jars())
    session = make_session("local[2,2]", config, elements=6)
    yield session
    session.stop()


def _started(make: Callable[[], S]) -> Iterator[S]:
    try:
        server = make()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Give a PostgreSQL server: ``postgres.database()`` is the URL of a fresh database."""
    yield from _started(Postgres)


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """Give a Redis server: ``redis.url``, and ``redis.prefix()`` for the names of streams."""
    yield from _started(Redis)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Give a Kafka broker: ``kafka.address``, and ``kafka.topic()`` for a fresh topic."""
    try:
        connector_jars()
    except RunError as reason:
        pytest.skip(str(reason))
    yield from _started(Kafka)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """Give a folder for runs; whatever pages its runs leave are swept after the test."""
    folder = tmp_path / "runs"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    sweep(page_root())


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    started = Programs()
    yield started
    started.end()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give a browser without a window, driven by Selenium."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = program
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync", "disable-quic"),
        *("disable-background-networking", "disable-component-update", "window-size=1200,1600"),
        f"user-data-dir={tmp_path_factory.mktemp('browser')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = Chrome(options=options, service=Service(driver))
    yield running
    running.quit()
