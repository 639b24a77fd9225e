"""Processes die by SIGKILL at each step of a checkpoint, of a restore, and anywhere; with the host's memory, or not.

While the memory is there the output is that of a run without faults. If it is gone, the output is what a plain model of
the policy predicts from the checkpoint that was restored.
"""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.calls import Plainly, draw_calls, on_disk
from tests.runtime.checkpointing.expectation import OPERATORS, SINKS, Expectation
from tests.runtime.checkpointing.leaving import events, lose_host, manifests, newest_record
from tests.runtime.harness import Programs, on_record, only_run, read_parts, wait_until, whole
from tests.runtime.test_crash import CLUSTER, executors

from riprap.runtime.agent.lock import await_saver

ROWS, BATCH = 3_000, 100
SEED = 20
OPTIONS: dict[str, Any] = {"batch_rows": BATCH, "buckets": 4, "parallelism": 2}
EVERY = "100ms"


@dataclass(frozen=True)
class Death:
    """Where its agent is when a driver dies (None: anywhere), whether its host is lost with it, and where its successor
    dies."""

    step: str | None
    wiped: bool
    then: str | None = None


DEATHS = {
    "values": Death("parent@checkpoint-values:3:sums", wiped=False),
    "between": Death("parent@checkpoint-between:2:pairs", wiped=True),
    "manifest": Death("parent@checkpoint-manifest:3:running", wiped=True),
    "versioned": Death("parent@checkpoint-versioned:3:sums", wiped=False),
    "collecting": Death(
        "parent@checkpoint-collecting:5:pairs", wiped=True, then="restore-recorded:{batch}:calls"
    ),
    "anywhere": Death(None, wiped=True, then="restore-paged:1:calls"),
}
# The others are slow tests.
QUICK = ("manifest",)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    pq.write_table(Plainly("k").table(draw_calls(ROWS, SEED)), folder / "calls.parquet")
    return folder


def die(programs: Programs, source: Path, work: Path, death: Death) -> Path:
    """Run a driver until it dies; where told so lose its host, and let its successor die. Return the folder of the run.

    One process at a time: Spark waits ten seconds for a Python process to answer.
    """

    def start(crash_at: str | None, **options: Any) -> Any:
        job = {"calls": str(source), "out": str(work / "out"), "every": EVERY}
        # With a trigger, so that there is a checkpoint before the last batch.
        spec = {**job, "options": {**OPTIONS, "master": "local[1]", "trigger": EVERY, **options}}
        return programs.start("keep_calls.py", work, spec, crash_at=crash_at)

    program = start(death.step, runs=str(work / "runs"))
    if death.step is None:
        moment = random.Random(SEED).randint(4, 12)
        wait_until(lambda: any(on_record(folder) >= moment for folder in (work / "runs").glob("*/2*")))
        os.kill(program.pid, signal.SIGKILL)
    programs.finish(program, code=-signal.SIGKILL)
    folder = only_run(work / "runs")
    await_saver(folder / "elements" / "calls", print)
    if death.step is not None:
        _, number, operator = death.step.split(":")
        assert manifests(folder, operator)[0].version >= int(number), (
            "the agent has finished what it was saving"
        )
    if death.wiped:
        lose_host(folder)
    if death.then is not None:
        (work / "crashed").unlink(missing_ok=True)
        step = death.then.format(batch=on_record(folder))
        programs.finish(start(step, folder=str(folder)), code=-signal.SIGKILL)
    return folder


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DEATHS],
)
def test_a_killed_driver(
    spark: SparkSession, programs: Programs, source: Path, tmp_path: Path, name: str
) -> None:
    death, work = DEATHS[name], tmp_path
    folder = die(programs, source, work, death)
    last = newest_record(folder, "calls")
    assert 0 < last.batch < ROWS // BATCH - 1, "it died on the way"
    assert last.sources["source"][1] == (last.batch + 1) * BATCH
    there = {operator: manifests(folder, operator) for operator in OPERATORS}

    app = on_disk(source, work / "out", EVERY)
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        assert run.wait(timeout=120), "the run did not end"

    restored = {e["operator"]: e for e in events(folder, "restored")}
    if death.wiped:
        assert restored.keys() == set(OPERATORS)
        assert {e["operator"] for e in events(folder, "state lost")} == {"plain"}
    else:
        assert not restored
    expected = Expectation(draw_calls(ROWS, SEED), BATCH, times_of(work / "out"), last.batch)
    if death.wiped:
        for operator in OPERATORS:
            expected.restore(restored[operator], there[operator], last.time)
        expected.forget("plain")
    found = {sink: read_parts(work / "out" / sink) for sink in SINKS}
    lost = {e["batch"] for e in events(folder, "results lost")}
    for sink, parts in found.items():
        got = {first: table.to_pylist() for (first, _), table in parts.items()}
        for batch, rows in enumerate(expected.rows(sink)):
            if batch in lost and batch not in got and batch > last.batch - 3:
                # On record, and not yet put out when the host went: sinks are a few batches behind.
                continue
            assert got.get(batch, []) == rows, (sink, batch)


def times_of(out: Path) -> dict[int, float]:
    """Return when each batch was put on record."""
    times: dict[int, float] = {}
    for line in (out / "times.jsonl").read_text().splitlines():
        batch, time = json.loads(line)
        times[batch] = time
    return times


@pytest.mark.slow
def test_a_killed_executor_and_a_killed_worker_change_nothing(
    programs: Programs, source: Path, runs: Path, tmp_path: Path
) -> None:
    # At this rate it takes ten seconds.
    options = {**OPTIONS, "master": CLUSTER, "runs": str(runs)}
    job = {"calls": str(source), "out": str(tmp_path / "out"), "every": EVERY, "rate": ROWS / 10}
    program = programs.start("keep_calls.py", tmp_path / "work", {**job, "options": options}, "paged:2")
    wait_until(lambda: program.poll() is not None or (tmp_path / "work" / "crashed").exists())
    os.kill(executors(program.pid)[0], signal.SIGKILL)
    folder = only_run(runs)
    reached = on_record(folder)
    saved = {operator: manifests(folder, operator) for operator in OPERATORS}
    programs.finish(program)

    expected = Plainly("k").feed(draw_calls(ROWS, SEED), 0.0)
    for sink in SINKS:
        assert whole(read_parts(tmp_path / "out" / sink)).to_pylist() == expected[sink]
    assert on_record(folder) > reached, "they died on the way"
    for operator in OPERATORS:
        newest = manifests(folder, operator)[0].version
        assert newest > max((m.version for m in saved[operator]), default=0), "checkpoints went on"
    assert not events(folder, "checkpoint failed")
