"""A machine without the servers: tests are told why, and ``make services`` does not fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services import install, postgres, redis
from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.server import UnavailableError


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away the servers, the right to install them, and the network."""
    monkeypatch.setattr(postgres, "postgres_programs", lambda: None)
    monkeypatch.setattr(redis, "redis_program", lambda: None)
    monkeypatch.setattr(install, "postgres_programs", lambda: None)
    monkeypatch.setattr(install, "redis_program", lambda: None)
    monkeypatch.setattr(install.shutil, "which", lambda program: None)
    monkeypatch.setattr(install, "how_to_install", lambda: None)
    monkeypatch.setenv("RIPRAP_CACHE", str(tmp_path))
    monkeypatch.setenv("RIPRAP_MAVEN", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Postgres, "PostgreSQL is not installed: apt-get install postgresql"),
        (Redis, "Redis is not installed: apt-get install redis-server"),
        (Kafka, "the Kafka broker's jars cannot be fetched: .*refused"),
    ],
)
def test_a_missing_server_says_what_to_do(make: type[Postgres | Redis | Kafka], reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason):
        make()


@pytest.mark.usefixtures("bare_machine")
def test_installing_says_what_it_could_not_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    install.main()

    said = capsys.readouterr().out
    assert "apt-get install postgresql redis-server chromium chromium-driver" in said
    assert "the Kafka broker's jars cannot be fetched" in said
    assert "Kafka needs the jars of Spark's connector" in said
    assert not list(tmp_path.glob("kafka-broker-*"))


def test_nothing_is_installed_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "missing_packages", list)
    monkeypatch.setattr(install, "install", lambda packages: pytest.fail(f"installed {packages}"))
    monkeypatch.setattr(install, "broker_jars", Path)
    monkeypatch.setattr(install, "connector_jars", list)

    install.main()
