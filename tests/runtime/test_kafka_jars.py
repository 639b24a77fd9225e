"""The connector's jars: fetched once, checked, and an error that helps where they cannot be had."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from riprap.cache import cache_folder
from riprap.errors import RunError
from riprap.runtime.kafka_jars import CONNECTOR, Jar, connector_jars, maven_repository


def jar_of(artifact: str, content: bytes) -> Jar:
    return Jar(
        group="org.example.kafka",
        artifact=artifact,
        version="1.2",
        sha256=hashlib.sha256(content).hexdigest(),
    )


ONE, TWO = b"first jar " * 10_000, b"second jar"
JARS = (jar_of("one", ONE), jar_of("two", TWO))


class Repository:
    """A Maven repository on loopback that remembers what it was asked for."""

    def __init__(self) -> None:
        self.files = {
            "/org/example/kafka/one/1.2/one-1.2.jar": ONE,
            "/org/example/kafka/two/1.2/two-1.2.jar": TWO,
        }
        self.asked: list[str] = []
        # Announced in place of the true length, so that an answer ends too soon.
        self.length: int | None = None
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.asked.append(self.path)
                content = repository.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(repository.length or len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def repository() -> Iterator[Repository]:
    serving = Repository()
    with serving.server:
        thread = threading.Thread(target=serving.server.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.server.shutdown()
        thread.join()


@pytest.fixture
def environ(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    # A proxy of the machine must not stand between us and loopback.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # The slash at the end does no harm.
    return {"RIPRAP_CACHE": str(tmp_path / "cache"), "RIPRAP_MAVEN": repository.url + "/"}


def left_in(environ: dict[str, str]) -> list[str]:
    return sorted(file.name for file in (Path(environ["RIPRAP_CACHE"]) / "jars").iterdir())


def test_jars_are_fetched_once(environ: dict[str, str], repository: Repository) -> None:
    fetched = connector_jars(environ, jars=JARS)

    assert [jar.read_bytes() for jar in fetched] == [ONE, TWO]
    assert connector_jars(environ, jars=JARS) == fetched
    assert repository.asked == list(repository.files)
    assert left_in(environ) == ["one-1.2.jar", "two-1.2.jar"]


def test_jars_put_there_by_hand_need_no_repository(environ: dict[str, str], repository: Repository) -> None:
    folder = Path(environ["RIPRAP_CACHE"]) / "jars"
    folder.mkdir(parents=True)
    (folder / "one-1.2.jar").write_bytes(ONE)
    (folder / "two-1.2.jar").write_bytes(TWO)

    assert connector_jars(environ, jars=JARS) == [folder / "one-1.2.jar", folder / "two-1.2.jar"]
    assert repository.asked == []


def test_a_wrong_checksum_is_refused(environ: dict[str, str], repository: Repository) -> None:
    repository.files["/org/example/kafka/two/1.2/two-1.2.jar"] = b"something else"

    with pytest.raises(
        RunError, match=r"two-1\.2\.jar cannot be had: .* has the SHA-256 .*, not " + JARS[1].sha256
    ):
        connector_jars(environ, jars=JARS)

    assert left_in(environ) == ["one-1.2.jar"]


def test_a_damaged_jar_is_fetched_again(environ: dict[str, str]) -> None:
    one, _ = connector_jars(environ, jars=JARS)
    one.write_bytes(ONE[:-1])

    connector_jars(environ, jars=JARS)

    assert one.read_bytes() == ONE


def test_an_answer_that_ends_too_soon_is_refused(environ: dict[str, str], repository: Repository) -> None:
    repository.files["/org/example/kafka/one/1.2/one-1.2.jar"] = ONE[:-1]
    repository.length = len(ONE)

    with pytest.raises(RunError, match=r"one-1\.2\.jar cannot be had"):
        connector_jars(environ, jars=JARS)

    assert left_in(environ) == []


def test_several_may_fetch_at_once(environ: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: connector_jars(environ, jars=JARS), range(8)))

    assert all([jar.read_bytes() for jar in answer] == [ONE, TWO] for answer in answers)
    assert left_in(environ) == ["one-1.2.jar", "two-1.2.jar"]


@pytest.mark.parametrize(
    ("maven", "reason"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("{repository}/nowhere", "404"),
        ("no-address", "unknown url type"),
        ("file:///nowhere", "No such file"),
    ],
)
def test_a_jar_that_cannot_be_had_says_what_to_do(
    environ: dict[str, str], repository: Repository, maven: str, reason: str
) -> None:
    environ["RIPRAP_MAVEN"] = maven.format(repository=repository.url)

    with pytest.raises(RunError, match=reason) as raised:
        connector_jars(environ, jars=JARS)

    said = str(raised.value)
    for help in [
        "one-1.2.jar",
        "two-1.2.jar",
        environ["RIPRAP_CACHE"],
        "RIPRAP_MAVEN",
        "spark.jars.packages",
    ]:
        assert help in said


def test_a_cache_that_cannot_be_written_is_named(environ: dict[str, str]) -> None:
    Path(environ["RIPRAP_CACHE"]).write_text("a file, not a folder")

    with pytest.raises(RunError, match=r"jars cannot be written: .*\n.*\n.*\n.*\n.*RIPRAP_CACHE"):
        connector_jars(environ, jars=JARS)


def test_a_folder_can_be_the_repository(environ: dict[str, str], tmp_path: Path) -> None:
    for jar, content in zip(JARS, (ONE, TWO), strict=True):
        file = tmp_path / "m2" / jar.path
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    environ["RIPRAP_MAVEN"] = (tmp_path / "m2").as_uri()

    assert [jar.read_bytes() for jar in connector_jars(environ, jars=JARS)] == [ONE, TWO]


def test_where_things_are_by_default() -> None:
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/riprap")
    assert maven_repository({}) == "https://repo1.maven.org/maven2"
    assert CONNECTOR[0].path == (
        "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar"
    )
