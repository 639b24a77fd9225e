"""Replicas really die, hang and lose their memory; what comes out is that of a run in which nothing happens."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.runtime.harness import Programs, only_run, page_folder, read_parts, wait_until, whole
from tests.runtime.supervision.replicated import SINKS, Feeding, Scene, replicated
from tests.runtime.supervision.watched import ROWS, expected, put_file
from tests.services.standalone import CORES, Standalone

import riprap as rr
from riprap.channels import ChannelReader
from riprap.runtime import Patience, Supervised, supervise
from riprap.runtime.supervision.failures import SPARK_GONE
from riprap.runtime.supervision.process import DriverProcess
from riprap.runtime.supervision.real_crashes import workers_of
from riprap.state.ledger import BatchRecord, Ledger

OPTIONS = rr.RunOptions(
    buckets=4, parallelism=1, master="local[1,3]", config={"spark.log.level": "OFF"}, trigger="50ms"
)
# A busy machine may be silent for a while without anybody being lost.
DETECT = "2s"


def found(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: whole(read_parts(out / name)).to_pylist() for name in SINKS}


@contextmanager
def going(app: rr.Application, runs: Path, tmp_path: Path) -> Iterator[tuple[Scene, Feeding]]:
    """Run an application while files come, until all that has come is read."""
    patience = Patience(silent=60.0)
    with supervise(app.graph(), replace(OPTIONS, runs=runs), patience=patience, spare=False) as run:
        scene = Scene(run)
        with Feeding(tmp_path / "calls") as feeding:
            scene.until(lambda: all(run.progress().tuples_out.values()))
            yield scene, feeding
            scene.until_further()
        scene.until(lambda: run.progress().tuples_in >= feeding.files * ROWS)


def test_replicas_die_hang_and_lose_their_memory(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("hot", "sums", "counts", detect=DETECT)
    with going(app, runs, tmp_path) as (scene, feeding):
        # The one that is not read: nobody takes notice, and it comes back with the state of the other.
        active, other = scene.replicas("hot")
        scene.kill(other)
        scene.until_back(other)
        letter = active[-1]
        assert {e["peer"] for e in scene.events("state taken")} == {f"sums~{letter}", f"counts~{letter}"}

        # The active one stands still, and goes on when it has been replaced: nobody reads what it has to say.
        active, other = scene.replicas("hot")
        scene.driver(active).suspend()
        scene.until_active(other)
        scene.until_further()
        scene.driver(active).resume()
        scene.until(lambda: any(e["replica"] == active[-1] for e in scene.events("false alarm")))
        assert len(scene.events("failure")) == 1, "nobody else has died"

        # The active one loses only its JVM.
        active, other = scene.replicas("hot")
        scene.kill(active, scene.jvm(active))
        scene.until_active(other)
        scene.until_back(active)
        assert [e["code"] for e in scene.events("failure")] == [-signal.SIGKILL, SPARK_GONE]

        # The active one loses its memory.
        active, other = scene.replicas("hot")
        assert scene.lose_host(active).pages
        scene.until_active(other)
        scene.until_back(active)
        assert not scene.events("state lost")

        # One dies, and the other before the first is back.
        active, other = scene.replicas("hot")
        scene.kill(active)
        scene.until_told("failure", 4)
        scene.kill(other)
        scene.until_back(active)
        scene.until_back(other)

    assert found(tmp_path / "out") == {name: expected(range(feeding.files))[name] for name in SINKS}
    assert not scene.events("results lost")
    assert not scene.events("lost in failover")


def test_plain_failover_loses_what_it_says_and_nothing_else(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("hot", "sums", failover="plain", detect=DETECT)
    with going(app, runs, tmp_path) as (scene, feeding):
        # It stands still for a while before that is noticed, and so the other goes further.
        active, other = scene.replicas("hot")
        scene.driver(active).suspend()
        scene.until_active(other)
        told = scene.events("failed over")[-1]
        assert told["since"] > told["after"]
        scene.kill(active)
        scene.until_back(active)

    whole_output, held = expected(range(feeding.files))["by_caller"], found(tmp_path / "out")["by_caller"]
    lost = scene.events("lost in failover")
    missing = len(whole_output) - len(held)
    assert missing > 0
    assert {(e["group"], e["stream"]) for e in lost} == {("hot", "sums")}
    told_of = [e["tuples"] for e in lost if e["element"] == lost[0]["element"]]
    assert missing == sum(told_of)
    for gap in told_of:
        at = next((i for i, row in enumerate(held) if row != whole_output[i]), len(held))
        del whole_output[at : at + gap]
    assert held == whole_output


def test_a_replica_that_hangs_before_it_has_spark_holds_up_nobody(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("hot", "sums", "counts", detect=DETECT)
    patience = Patience(silent=60.0, starting=600.0)
    with supervise(app.graph(), replace(OPTIONS, runs=runs), patience=patience, spare=False) as run:
        scene = Scene(run)
        # It has just been started, and has loaded nothing yet.
        hanging = psutil.Process(starting(run, "hot~a").pid)
        hanging.suspend()
        with Feeding(tmp_path / "calls") as feeding:
            scene.until(lambda: all(run.progress().tuples_out.values()))
            assert scene.replicas("hot") == ("hot~b", "hot~a")
            assert [e["replica"] for e in scene.events("replica late")] == ["a"]
            assert not scene.events("failure")
            # What hangs dies in the end, and comes back as another.
            hanging.kill()
            scene.until(lambda: {e["element"] for e in scene.events("state taken")} == {"sums~a", "counts~a"})
            scene.kill("hot~b")
            scene.until_active("hot~a")
            scene.until_further()
        scene.until(lambda: run.progress().tuples_in >= feeding.files * ROWS)
    assert found(tmp_path / "out") == {name: expected(range(feeding.files))[name] for name in SINKS}


@pytest.mark.slow
def test_each_replica_has_a_master_of_its_own_and_one_is_lost(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    # Executors come after the session: it is told how many tasks they will take.
    config = {
        "spark.log.level": "OFF",
        "spark.executor.memory": "512m",
        "spark.default.parallelism": str(CORES),
    }
    options = replace(OPTIONS, runs=runs, config=config, pages=tmp_path / "pages")
    with Standalone() as one, Standalone() as two:
        app.replicate("hot", "sums", "counts", detect=DETECT, hosts=[one.url, two.url])
        patience = Patience(silent=60.0, starting=600.0)
        with supervise(app.graph(), options, patience=patience, spare=False) as run:
            scene = Scene(run)
            until_through(scene, tmp_path / "calls", 1)
            for cluster in (one, two):
                wait_until(lambda cluster=cluster: cluster.applications == 1)
            # The master of the active one goes, with its worker and its executors; its driver is none of them.
            active, other = scene.replicas("hot")
            lost = one if active == "hot~a" else two
            lost.kill()
            until_through(scene, tmp_path / "calls", 2)
            assert scene.replicas("hot") == (other, active)
            # It would wait for its master for as long as a batch may take.
            lost.start()
            scene.kill(active)
            scene.until_back(active)
            until_through(scene, tmp_path / "calls", 3)
    assert found(tmp_path / "out") == {name: expected(range(4))[name] for name in SINKS}
    assert {e["element"] for e in scene.events("state taken")} >= {
        f"sums~{active[-1]}",
        f"counts~{active[-1]}",
    }


def until_through(scene: Scene, calls: Path, file: int) -> None:
    """Let a file come, the next one, and wait until sinks have all that comes of it."""
    put_file(calls, file)
    rows = {name: len(expected(range(file + 1))[name]) for name in SINKS}
    scene.until(lambda: all(scene.run.progress().tuples_out[name] >= rows[name] for name in SINKS))


def starting(run: Supervised, name: str) -> DriverProcess:
    """Return a process as soon as it is started."""
    process = run._supervisor._processes[name]
    wait_until(lambda: process.driver is not None)
    assert process.driver is not None
    return process.driver


@pytest.mark.slow
def test_full_replication_outlives_any_single_crash(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate_all(detect=DETECT)
    with going(app, runs, tmp_path) as (scene, feeding):
        for replica in ("all~a", "all~b"):
            scene.kill(replica)
            scene.until_further()
            scene.until_back(replica)
    assert found(tmp_path / "out") == {name: expected(range(feeding.files))[name] for name in SINKS}
    assert not scene.events("failed over")


@pytest.mark.slow
def test_two_groups_fail_at_once(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("first", "sums", detect=DETECT)
    app.replicate("second", "counts", detect=DETECT)
    with going(app, runs, tmp_path) as (scene, feeding):
        victims = [scene.replicas("first")[0], scene.replicas("second")[0]]
        for victim in victims:
            scene.kill(victim)
        scene.until_further()
        for victim in victims:
            scene.until_back(victim)
    assert found(tmp_path / "out") == {name: expected(range(feeding.files))[name] for name in SINKS}


@pytest.mark.slow
def test_replicas_of_a_region_come_back_from_each_other_or_from_a_cut(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out", region=True)
    app.replicate("hot", "sums", "counts", detect=DETECT)
    with going(app, runs, tmp_path) as (scene, feeding):
        active, other = scene.replicas("hot")
        assert scene.lose_host(active).pages
        scene.until_active(other)
        scene.until_back(active)
        scene.until_further()
        # Now both, at once: what is in neither memory comes from cuts.
        for replica in (active, other):
            scene.driver(replica).suspend()
        for replica in (active, other):
            assert scene.lose_host(replica).pages
        for replica in (active, other):
            scene.until_back(replica)
    assert found(tmp_path / "out") == {name: expected(range(feeding.files))[name] for name in SINKS}
    assert scene.events("computed again")


def test_one_that_took_anothers_state_and_loses_it_needs_no_input_from_before(
    runs: Path, tmp_path: Path
) -> None:
    calls, files = tmp_path / "calls", itertools.count(1)
    app = replicated(calls, tmp_path / "out", cut_by_file=True)
    app.replicate("hot", "sums", "counts", detect=DETECT)

    def next_file() -> None:
        until_through(scene, calls, next(files))

    patience = Patience(silent=60.0, starting=600.0)
    with supervise(app.graph(), replace(OPTIONS, runs=runs), patience=patience, spare=False) as run:
        scene = Scene(run)
        next_file()
        active, other = scene.replicas("hot")
        scene.until(lambda: newest_frontier(run.folder, f"sums~{other[-1]}") is not None)
        # While it is out its input goes: the others make cuts, one after each file.
        first = starting(run, other)
        scene.kill(other)
        scene.until(lambda: starting(run, other) is not first)
        hanging = psutil.Process(starting(run, other).pid)
        hanging.suspend()
        before = newest_frontier(run.folder, f"sums~{other[-1]}")
        channel = ChannelReader(run.folder / "channels" / "calls@caller", "nobody")
        while channel.begins <= before:
            next_file()
        hanging.resume()
        scene.until_back(other)
        assert len(scene.events("state taken")) == 2
        # No file comes, and so no cut is due.
        assert scene.lose_host(other).pages
        scene.until_back(other)
        next_file()
        scene.kill(active)
        scene.until_active(other)
        next_file()
        scene.until_back(active)
    came = range(next(files))
    assert found(tmp_path / "out") == {name: expected(came)[name] for name in SINKS}
    assert not scene.events("results differ")


@pytest.mark.slow
def test_a_bit_that_flips_in_the_state_of_a_replica_is_found(runs: Path, tmp_path: Path) -> None:
    app = replicated(tmp_path / "calls", tmp_path / "out")
    app.replicate("hot", "sums", detect=DETECT)
    with supervise(app.graph(), replace(OPTIONS, runs=runs), spare=False) as run:
        scene = Scene(run)
        scene.until(lambda: all(n >= ROWS // 4 for n in run.progress().tuples_out.values()))
        scene.until(lambda: newest_frontier(run.folder, "sums~a") == newest_frontier(run.folder, "sums~b"))
        flip_bit(run.folder, "sums~b")
        # What a worker has in mind is not in the page any more: another takes it from there.
        for worker in workers_of(run.folder, "sums~b"):
            worker.kill()
        put_file(tmp_path / "calls", 1)
        told = scene.until_told("replicas differ")
        assert (told["group"], told["stream"], told["replicas"]) == ("hot", "sums", ["a", "b"])
        right = expected(range(2))["by_caller"]
        ours, theirs = ([plain(row) for row in told["tuples"][letter]] for letter in "ab")
        assert ours
        assert theirs
        assert all(row in right for row in ours)
        assert not any(row in right for row in theirs)
        scene.until(lambda: run.progress().tuples_out["by_caller"] == 2 * ROWS)
    # It is told, and nothing else: whose results are right nobody can say of two.
    assert found(tmp_path / "out")["by_caller"] == right


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out the tag."""
    return {name: value for name, value in row.items() if not name.startswith("$")}


def newest_record(folder: Path, element: str) -> BatchRecord:
    ledger = Ledger(str(folder / "elements" / element / "ledger"))
    return ledger.get(ledger.batches()[-1])


def newest_frontier(folder: Path, element: str) -> int | None:
    return newest_record(folder, element).frontier


def flip_bit(folder: Path, element: str) -> None:
    """Flip a bit of the newest tuple that a replica holds of some key."""
    name = newest_record(folder, element).manifests[0].pages["sums/0"][0]
    (page,) = (page_folder(folder) / "state" / element).glob(f"{name}.page")
    data = page.read_bytes()
    with pa.ipc.open_file(pa.py_buffer(data)) as file:
        batch = file.get_batch(0)
    minutes = batch.column("window").flatten().field(0)
    place = data.index(minutes.buffers()[1].to_pybytes()[: 8 * len(minutes)]) + 8 * (len(minutes) - 1)
    with page.open("r+b") as opened:
        opened.seek(place)
        opened.write(bytes([data[place] ^ 64]))


@pytest.mark.slow
@pytest.mark.parametrize("step", ["switching", "switched"])
def test_a_supervisor_dies_as_it_switches(step: str, runs: Path, tmp_path: Path, programs: Programs) -> None:
    calls, out = tmp_path / "calls", tmp_path / "out"
    for file in range(6):
        put_file(calls, file)
    spec = {"calls": str(calls), "out": str(out), "options": {"runs": str(runs)}, "tuples": 6 * ROWS}
    first = programs.start("replicate.py", tmp_path / "first", {**spec, "kill": "hot~a"}, f"{step}:2:hot")
    programs.finish(first, code=-signal.SIGKILL)
    for file in range(6, 12):
        put_file(calls, file)
    again = {**spec, "options": {"folder": str(only_run(runs))}, "tuples": 12 * ROWS, "kill": None}
    programs.finish(programs.start("replicate.py", tmp_path / "second", again))
    assert found(out) == {name: expected(range(12))[name] for name in SINKS}
