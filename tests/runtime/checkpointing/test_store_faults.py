"""A store that is full, read-only, away, slow or damaged while an application runs.

The application goes on with the right output, what could not be saved is shown, later checkpoints are saved again, and
from those the state comes back.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.calls import Plainly, draw_calls, on_disk
from tests.runtime.checkpointing.expectation import OPERATORS, SINKS, Expectation
from tests.runtime.checkpointing.leaving import (
    LeftError,
    events,
    lines_so_far,
    lose_host,
    manifests,
    newest_record,
    still_running,
)
from tests.runtime.harness import read_parts, wait_until, whole
from tests.services.redis import Redis
from tests.state.stores.kinds import store_url
from tests.state.stores.test_disks import disk, fill, remount  # noqa: F401

import riprap as rr
from riprap.runtime.agent import handle

PART, PARTS, SEED = 60, 12, 5
OPTIONS: dict[str, Any] = {"trigger": "50ms", "batch_rows": PART, "buckets": 4, "parallelism": 2}


class Application:
    """A run whose input the test hands out part by part, and whose checkpoints go to some store."""

    def __init__(self, spark: SparkSession, folder: Path, store: str | None) -> None:
        self._spark = spark
        self._store = store
        self._runs = folder / "runs"
        self._out = folder / "out"
        self._source = folder / "source"
        self._source.mkdir()
        self._calls = Plainly("k").table(draw_calls(PART * PARTS, SEED))
        self._parts = 0
        self.hand_out()
        self._app = on_disk(self._source, self._out, "100ms")
        self.run: rr.Run
        self.folder = Path()

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator[None]:
        """Run, or take up, the application, and leave it at the end of the block."""
        run = self._app.run(spark=self._spark, store=self._store, **OPTIONS, **options)
        self.run, self.folder = run, run.folder
        with contextlib.suppress(LeftError), run:
            yield
            raise LeftError

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        with self.running(runs=self._runs):
            yield

    @contextlib.contextmanager
    def taken_up(self) -> Iterator[None]:
        with self.running(folder=self.folder):
            yield

    def hand_out(self, parts: int = 1) -> None:
        """Give the source some more input."""
        for _ in range(parts):
            table = self._calls.slice(self._parts * PART, PART)
            half = self._source.parent / "half"
            pq.write_table(table, half)
            half.rename(self._source / f"{self._parts:02d}.parquet")
            self._parts += 1

    def go_on(self, parts: int = 1) -> None:
        """Hand out input, and wait until it is on record and put out."""
        self.hand_out(parts)
        self.catch_up()

    def catch_up(self) -> None:
        wait_until(lambda: self._check() and self._done() == self._parts * PART)
        batch = newest_record(self.folder, "calls").batch
        # Metrics are written last.
        wait_until(lambda: self._check() and any(m["batch"] == batch for m in self.metrics()))

    def metrics(self) -> list[dict[str, Any]]:
        return lines_so_far(self.folder / "metrics.jsonl")

    def saved(self) -> bool:
        """Say whether every operator is saved as of the last batch."""
        self._check()
        newest = newest_record(self.folder, "calls").batch
        found = (manifests(self.folder, operator, self._store)[:1] for operator in OPERATORS)
        return all([m.batch for m in versions] == [newest] for versions in found)

    def failures(self) -> dict[str, int]:
        """Count the checkpoints of each operator that failed."""
        failed = [e["operator"] for e in events(self.folder, "checkpoint failed")]
        return {operator: failed.count(operator) for operator in OPERATORS}

    def output_is_right(self, *, first_rows_of_plain: int | None = None) -> bool:
        """Compare all output with that of a run without faults."""
        plainly = Plainly("k")
        calls = draw_calls(PART * PARTS, SEED)[: self._parts * PART]
        expected = plainly.feed(calls, 0.0)
        for sink in SINKS:
            found = whole(read_parts(self._out / sink)).to_pylist()
            wanted: list[Any] = expected[sink]
            if sink == "plain_out" and first_rows_of_plain is not None:
                found, wanted = found[:first_rows_of_plain], wanted[:first_rows_of_plain]
            assert found == wanted, sink
        return True

    @property
    def rows(self) -> int:
        return self._parts * PART

    def _done(self) -> int:
        sources = newest_record(self.folder, "calls").sources
        return int(sources["source"][1]) if "source" in sources else 0

    def _check(self) -> bool:
        return still_running(self.run)


def break_and_mend(app: Application, fault: Callable[[], None], mend: Callable[[], None]) -> None:
    """Break the store while the application runs, see that it is shown, mend it, and wait for new checkpoints."""
    wait_until(app.saved)
    before = app.failures()
    fault()
    try:
        app.go_on(2)
        wait_until(lambda: all(app.failures()[o] > before[o] for o in OPERATORS))
        assert app.output_is_right()
    finally:
        mend()
    app.go_on()
    wait_until(app.saved)


def lose_the_host_and_go_on(app: Application) -> None:
    """Take the application up on another host: all was saved, so only what was not protected is lost."""
    before = app.rows
    lose_host(app.folder)
    with app.taken_up():
        app.go_on()
    restored = {e["operator"]: e for e in events(app.folder, "restored")}
    assert restored.keys() == set(OPERATORS)
    assert all(e["behind"] == e["stale"] == e["damaged"] == 0 for e in restored.values())
    assert app.output_is_right(first_rows_of_plain=before)


def failed_in_metrics(folder: Path) -> Mapping[str, int]:
    """Return how many checkpoints failed by the newest metrics."""
    last = lines_so_far(folder / "metrics.jsonl")[-1]
    return {operator: last["checkpoints"][operator]["failed"] for operator in OPERATORS}


pytestmark = pytest.mark.usefixtures("runs")


def test_a_disk_that_is_full_and_then_read_only(
    spark: SparkSession,
    disk: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    app = Application(spark, tmp_path, str(disk / "store"))
    with app.started():
        app.catch_up()
        break_and_mend(app, lambda: fill(disk), (disk / "filler").unlink)
        assert "Free some space" in events(app.folder, "checkpoint failed")[-1]["message"]
        break_and_mend(app, lambda: remount(disk, "ro"), lambda: remount(disk, "rw"))
        assert "Read-only file system" in events(app.folder, "checkpoint failed")[-1]["message"]
        assert failed_in_metrics(app.folder) == app.failures()
    lose_the_host_and_go_on(app)


def test_a_redis_server_that_dies_and_comes_back(spark: SparkSession, redis: Redis, tmp_path: Path) -> None:
    app = Application(spark, tmp_path, f"{redis.url}?prefix={redis.prefix()}")
    with app.started():
        app.catch_up()
        break_and_mend(app, redis.kill, redis.start)
        assert "whether the server runs" in events(app.folder, "checkpoint failed")[-1]["message"]
    lose_the_host_and_go_on(app)


def test_a_store_of_the_users_own_that_is_away_and_comes_back(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent of this test's own: that of other tests does not find the user's module.
    monkeypatch.setattr(handle, "_HIRED", [])
    app = Application(spark, tmp_path, store_url("own", request, tmp_path))
    folder, away = tmp_path / "own", tmp_path / "away"
    with app.started():
        app.catch_up()
        break_and_mend(app, lambda: shutil.move(folder, away), lambda: shutil.move(away, folder))
        assert "unable to open database file" in events(app.folder, "checkpoint failed")[-1]["message"]
    lose_the_host_and_go_on(app)
    handle._HIRED[0].stop()


def test_a_slow_store_holds_nobody_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever saves stands still, between a value and its manifest, while batches go on."""
    marker = tmp_path / "stopped"
    for name, value in {"AT": "checkpoint-between:1", "ONCE": str(marker), "BY": "SIGSTOP"}.items():
        monkeypatch.setenv(f"RIPRAP_CRASH_{name}", value)
    # An agent of this test's own: that of other tests has their environment.
    monkeypatch.setattr(handle, "_HIRED", [])
    app = Application(spark, tmp_path, None)
    with app.started():
        wait_until(lambda: marker.exists() and marker.read_text())
        batch = newest_record(app.folder, "calls").batch
        for _ in range(3):
            app.go_on()
        assert newest_record(app.folder, "calls").batch >= batch + 3
        assert not app.saved()
        os.kill(int(marker.read_text()), signal.SIGCONT)
        app.go_on()
        wait_until(app.saved)
        assert events(app.folder, "checkpoint late")
        assert not events(app.folder, "checkpoint failed")
    assert app.output_is_right()
    lose_the_host_and_go_on(app)
    handle._HIRED[0].stop()


@pytest.mark.parametrize("how", ["flipped", "cut short"])
def test_damaged_files_are_never_taken_for_state(spark: SparkSession, tmp_path: Path, how: str) -> None:
    luck = random.Random(SEED)
    app = Application(spark, tmp_path, None)
    with app.started():
        app.catch_up()
        times = {0: newest_record(app.folder, "calls").time}
        for batch in range(1, 5):
            wait_until(app.saved)
            app.go_on()
            times[batch] = newest_record(app.folder, "calls").time
        wait_until(app.saved)
    last = newest_record(app.folder, "calls")
    assert last.batch == 4
    there = {operator: manifests(app.folder, operator) for operator in OPERATORS}
    for operator in OPERATORS:
        # Of an operator's files some are damaged: with luck an older version is not.
        (entry,) = (app.folder / "checkpoints").glob(f"*%2F{operator}")
        files = sorted(entry.iterdir())
        assert len(files) > 2
        for path in luck.sample(files, len(files) // 2):
            data = bytearray(path.read_bytes())
            if how == "flipped":
                data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
                path.write_bytes(data)
            else:
                os.truncate(path, luck.randrange(len(data)))
    lose_host(app.folder)
    with app.taken_up():
        app.go_on()
        wait_until(app.saved)

    expected = Expectation(draw_calls(PART * PARTS, SEED), PART, times, last.batch)
    restored = {e["operator"]: e for e in events(app.folder, "restored")}
    lost = {e["operator"] for e in events(app.folder, "state lost")}
    assert restored.keys() | lost == {*OPERATORS, "plain"}
    assert events(app.folder, "warning"), "people are told"
    sinks = set(SINKS)
    for operator in lost:
        expected.forget(operator)
    for operator, told in restored.items():
        if told["damaged"]:
            # What is left of it is tried by the random schedules.
            sinks.remove(f"{operator}_out")
        else:
            expected.restore(told, there[operator], last.time, usable=[told["version"]])
    for sink in sorted(sinks):
        found = whole(read_parts(tmp_path / "out" / sink)).to_pylist()
        assert found == [row for rows in expected.rows(sink)[: last.batch + 2] for row in rows], sink
