"""What goes in comes out, in order, exactly once: the same scenarios for every source, on Spark with real servers."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import (
    CsvRig,
    JsonRig,
    PostgresRig,
    RedisRig,
    ServerRig,
    SourceRig,
    TcpRig,
    TextRig,
    came_out,
    check_rows,
    copying,
    events,
    quarantined,
    run_to_end,
    run_until,
    wait_for,
)
from tests.runtime.harness import Programs, only_run, wait_until

import riprap as rr
from riprap.feeds import fetched_feed
from riprap.feeds.feed import Feed, open_feed
from riprap.operators.source import Source

COPY = Path(__file__).with_name("copy_sources.py")
FILES = ("csv", "json", "text")
SERVERS = ("postgres", "redis", "tcp")

Rigs = Callable[..., list[SourceRig]]


@pytest.fixture
def rigs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rigs]:
    """Return a function that makes rigs by their names."""
    made: list[SourceRig] = []
    of_files = {rig.name: rig for rig in (CsvRig, JsonRig, TextRig)}

    def make(name: str) -> SourceRig:
        if name == "postgres":
            return PostgresRig(request.getfixturevalue("postgres"))
        if name == "redis":
            return RedisRig(request.getfixturevalue("redis"))
        return TcpRig() if name == "tcp" else of_files[name](tmp_path / "in")

    def make_all(*names: str) -> list[SourceRig]:
        made.extend(new := [make(name) for name in names])
        return new

    yield make_all
    for rig in made:
        rig.close()


def server_rig(rigs: Rigs, name: str) -> ServerRig:
    (rig,) = rigs(name)
    assert isinstance(rig, ServerRig)
    return rig


@pytest.mark.parametrize("names", [("postgres",), ("redis",), ("tcp",), FILES], ids="-".join)
def test_a_run_that_was_left_is_taken_up(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    made = rigs(*names)
    for rig in made:
        rig.put(0, 500)
        rig.put(500, 1500)
    # What was sent by TCP and not read is lost; elsewhere the run is left in the middle.
    enough = 400 if all(rig.replays for rig in made) else 1500
    left = run_until(copying(made, tmp_path / "out"), spark, enough, leave=True, runs=runs, batch_rows=200)
    for rig in made:
        rig.unread()
        rig.put(1500, 1700)
        rig.over()

    run = run_to_end(copying(made, tmp_path / "out"), spark, folder=left.folder, batch_rows=300)

    for rig in made:
        check_rows(rig, tmp_path / "out", range(1700))
    assert [e["event"] for e in events(run)] == ["started", "interrupted", "resumed", "ended"]


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_killed_and_comes_back(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, name: str
) -> None:
    rig = server_rig(rigs, name)
    rig.put(0, 1000)
    app = copying([rig], tmp_path / "out")
    with app.run(spark=spark, trigger="50ms", runs=runs, batch_rows=100) as run:
        wait_for(run, 300 if rig.replays else 1000)
        rig.go_away()
        wait_for_event(run, "connection lost")
        rig.come_back()
        rig.put(1000, 1500)
        wait_for(run, 1500)

    check_rows(rig, tmp_path / "out", range(1500))
    check_came_back(run, rig)


@pytest.mark.parametrize("name", SERVERS)
def test_connections_that_are_dropped(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, name: str
) -> None:
    rig = server_rig(rigs, name)
    app = copying([rig], tmp_path / "out")
    with app.run(spark=spark, trigger="50ms", runs=runs, batch_rows=1000) as run:
        for part in range(1, 7):
            rig.put(100 * (part - 1), 100 * part)
            if part % 2 == 0:
                # A socket cannot be asked again for what was on its way.
                wait_for(run, 1 if rig.replays else 100 * part)
                rig.relay.drop()
        rig.put(600, 700)
        wait_for(run, 700)

    check_rows(rig, tmp_path / "out", range(700))


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_stays_away_fails_the_run_which_can_be_taken_up(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, name: str
) -> None:
    rig = server_rig(rigs, name)
    rig.put(0, 300)
    app = copying([rig], tmp_path / "out", retry_for="1s")
    run = app.run(spark=spark, trigger="50ms", runs=runs, batch_rows=100)
    wait_for(run, 300)
    rig.relay.refuse()
    with pytest.raises(rr.RunError) as caught, run:
        wait_for(run, 301)

    told = str(caught.value)
    assert re.match(rf"source '{name}' \(.*rigs\.py:\d+\), .*{rig.relay.address}.*: ", told), told
    assert re.search(
        r"Tried \d more times in 1 s\. Check that the server runs .* take the run up again", told
    )
    assert [e["message"] for e in events(run, "failed")] == [told]

    rig.unread()
    rig.relay.accept()
    rig.put(300, 400)
    rig.over()
    run_to_end(app, spark, folder=run.folder, batch_rows=100)
    check_rows(rig, tmp_path / "out", range(400))


def test_a_record_that_cannot_be_read_is_put_aside(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path
) -> None:
    made = rigs(*SERVERS, *FILES)
    for rig in made:
        rig.put(0, 100, bad=[0, 41, 99])
        rig.over()

    with copying(made, tmp_path / "out").run(spark=spark, runs=runs, batch_rows=30) as run:
        assert run.wait(timeout=120)
        assert run.progress().quarantined == 3 * len(made)

    for rig in made:
        check_rows(rig, tmp_path / "out", [n for n in range(100) if n not in (0, 41, 99)])
        found = quarantined(run, rig.name)
        for n, line in zip((0, 41, 99), found, strict=True):
            assert rig.position_of(n, n).items() <= line["position"].items()
            assert line["reason"]
        if rig.name in FILES:
            assert [line["position"]["record"] for line in found] == [1, 42, 100]


@pytest.mark.parametrize("name", [*SERVERS, "csv"])
def test_a_source_that_says_so_stops_at_a_bad_record_and_loses_nothing_before_it(
    spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, name: str
) -> None:
    (rig,) = rigs(name)
    rig.put(0, 50, bad=[40])
    run = copying([rig], tmp_path / "out", on_bad_record="fail").run(
        spark=spark, trigger="50ms", runs=runs, batch_rows=20
    )
    with pytest.raises(rr.RunError) as caught, run:
        wait_for(run, 50)

    told = str(caught.value)
    where = ", ".join(f"{key} {value}" for key, value in rig.position_of(40, 40).items())
    assert re.match(
        rf"source '{name}' \(.*rigs\.py:\d+\): at {re.escape(where)}, .+\. Correct it, or", told
    ), told
    assert run.progress().quarantined == 0
    rig.unread()
    rig.put(50, 60)
    rig.over()

    again = run_to_end(copying([rig], tmp_path / "out"), spark, folder=run.folder, batch_rows=20)

    good = [n for n in range(60) if n != 40 and (rig.replays or not 40 < n < 50)]
    check_rows(rig, tmp_path / "out", good)
    assert again.progress().quarantined == int(rig.replays)


def test_empty_sources_have_no_rows(spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path) -> None:
    # Of files there must be one.
    made = rigs(*SERVERS)
    for rig in made:
        rig.over()

    run = run_to_end(copying(made, tmp_path / "out"), spark, runs=runs)

    assert run.progress().tuples_in == 0
    for rig in made:
        check_rows(rig, tmp_path / "out", [])


def test_empty_sources_are_waited_for(spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path) -> None:
    made = rigs(*SERVERS, *FILES)
    with copying(made, tmp_path / "out").run(spark=spark, trigger="50ms", runs=runs) as run:
        assert not run.wait(timeout=1)
        for count, rig in enumerate(made, 1):
            rig.put(0, 10)
            wait_for(run, 10 * count)

    for rig in made:
        check_rows(rig, tmp_path / "out", range(10))


@pytest.mark.parametrize("name", [*SERVERS, *FILES])
def test_a_million_records(spark: SparkSession, rigs: Rigs, runs: Path, tmp_path: Path, name: str) -> None:
    count = 200_000 if name == "redis" else 1_000_000
    (rig,) = rigs(name)
    rig.put(0, count // 3)
    rig.put(count // 3, count)
    rig.over()

    run_to_end(copying([rig], tmp_path / "out"), spark, runs=runs, batch_rows=150_000)

    check_rows(rig, tmp_path / "out", range(count))


def test_a_driver_that_is_killed_is_taken_up(
    spark: SparkSession, rigs: Rigs, runs: Path, programs: Programs, tmp_path: Path
) -> None:
    made = rigs("postgres", "redis")
    options = {"batch_rows": 100, "parallelism": 2}
    for rig in made:
        rig.put(0, 1000)
    killed = {"sources": {rig.name: rig.described() for rig in made}, "out": str(tmp_path / "out")}
    program = programs.start(
        str(COPY),
        tmp_path / "work",
        {**killed, "options": {**options, "trigger": "50ms", "master": "local[1]", "runs": str(runs)}},
        crash_at="recorded:4",
    )
    programs.finish(program, code=-signal.SIGKILL)
    folder = only_run(runs)
    for rig in made:
        rig.put(1000, 1200)

    run_to_end(copying(made, tmp_path / "out"), spark, folder=folder, **options)
    run_to_end(copying(made, tmp_path / "unharmed"), spark, runs=runs, **options)

    for rig in made:
        check_rows(rig, tmp_path / "out", range(1200))
        assert came_out(rig, tmp_path / "out").equals(came_out(rig, tmp_path / "unharmed"))


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_nobody_fetches_while_a_process_of_an_earlier_driver_does(
    rigs: Rigs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rig,) = rigs("tcp")
    source = copying([rig], tmp_path / "out").graph()["tcp"]
    assert isinstance(source, Source)

    def open_again() -> Feed:
        return open_feed(source, tmp_path, tmp_path, finite=True, batch_rows=1, tell=lambda kind, **_: None)

    command = [sys.executable, "-c", HOLDER, str(tmp_path / "fetching.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as earlier:
        assert earlier.stdin is not None
        assert earlier.stdout is not None
        assert earlier.stdout.readline() == b"held\n"
        with monkeypatch.context() as impatient:
            impatient.setattr(fetched_feed, "_OTHERS_SECONDS", 0.1)
            with pytest.raises(rr.RunError, match=r"source 'tcp' \(.*\): another process still fetches into"):
                open_again()
        threading.Timer(0.2, earlier.kill).start()
        open_again()
        assert earlier.wait() == -signal.SIGKILL


def wait_for_event(run: rr.Run, kind: str) -> None:
    wait_until(lambda: events(run, kind), seconds=60)


def check_came_back(run: rr.Run, rig: ServerRig) -> None:
    """Check that the loss shows, and the return."""
    seen = events(run, "connection lost", "connection back")
    assert seen[0]["event"] == "connection lost"
    assert seen[-1]["event"] == "connection back"
    for event in seen:
        assert f"source '{rig.name}'" in event["what"]
        assert rig.relay.address in event["what"]
