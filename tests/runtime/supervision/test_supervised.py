"""Driver processes really die, hang and stop; output is that of a run in which none did, or what is lost is told."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from tests.runtime.harness import lines_of, page_folder, read_parts, wait_until, whole
from tests.runtime.supervision.watched import ROWS, SINKS, expected, put_file, watched

import riprap as rr
from riprap.cli import main
from riprap.runtime import Patience, Supervised, supervise
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.failures import SPARK_GONE
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.supervision.process import lives, session_of
from riprap.state.pages import page_root

OPTIONS = rr.RunOptions(
    buckets=4, parallelism=2, master="local[2,3]", config={"spark.log.level": "OFF"}, trigger="100ms"
)


def rows_in(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: whole(read_parts(out / name)).to_pylist() for name in SINKS}


def published(folder: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in folder.glob("part-*"))


def events_of(run: Supervised, kind: str) -> list[dict[str, Any]]:
    return [event for event in lines_of(run.folder / "events.jsonl") if event["event"] == kind]


def until(run: Supervised, condition: Callable[[], Any]) -> None:
    """Wait for progress of a run that goes on."""
    wait_until(lambda: condition() or not run.running)
    assert run.running, events_of(run, "failure")


def kill(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """Call the command line, as someone who tries it out would."""
    assert main(["kill", *map(str, arguments), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_process_and_a_worker_die_while_the_others_go_on(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, out = tmp_path / "calls", tmp_path / "out"
    put_file(calls, 0)
    patience = Patience(delay=6.0)
    graph = watched(calls, out).graph()
    with supervise(graph, replace(OPTIONS, runs=runs), patience=patience, spare=True) as run:
        until(run, lambda: all(published(out / name) for name in SINKS))
        listed = {e["element"]: e for e in kill(capsys, run.folder)["elements"]}
        assert {name: e["process"] for name, e in listed.items()} == {
            "watched": "main",
            "counter": "second",
            "watcher": "second",
        }
        (second,) = [p for p in find_presences(run.folder) if p.process == "second"]
        started = session_of(second.pid)
        until(run, lambda: list((run.folder / "processes").glob("warming-*")))
        until(run, lambda: not list((run.folder / "processes").glob("warming-*")))

        told = kill(capsys, run.folder, "counter")
        assert (told["killed"], told["pids"]) == ("process", [second.pid])
        until(run, lambda: events_of(run, "decision"))
        assert not [p for p in started if lives(p)]
        put_file(calls, 1)
        until(run, lambda: published(out / "by_caller") == 2 * ROWS)
        assert published(out / "by_callee") < 2 * ROWS // 3 - 10, "its readers were to be down by now"

        until(run, lambda: len(run.recoveries()) == 2)
        assert listed["counter"]["pid"] != find_presences(run.folder)[1].pid
        # It is back once all is on record, and publishes after that: a lost host takes what is not published.
        until(run, lambda: published(out / "by_callee") == len(expected(range(2))["by_callee"]))
        told = kill(capsys, run.folder, "watcher", "--host")
        for name in ("watcher", "counter"):
            assert not list((page_root() / f"watched-{run.folder.name}").glob(f"*/{name}/*.page"))
        assert listed["counter"]["pid"] not in told["pids"]
        until(run, lambda: len(run.recoveries()) == 4)
        told = kill(capsys, "latest", "watched", "--executor", "--runs", runs)
        (worker,) = told["pids"]
        until(run, lambda: not psutil.pid_exists(worker) or not lives(psutil.Process(worker)))
        put_file(calls, 2)
        until(run, lambda: published(out / "by_caller") == 3 * ROWS)

    # The host had the windows that were open in the counter, which nothing protects, and nothing else that counts.
    found, right = rows_in(out), expected(range(3), afresh=2)
    assert found["by_caller"] == right["by_caller"]
    assert found["by_callee"] == right["by_callee"]
    assert [e["operator"] for e in events_of(run, "state lost")] == ["counts"]
    assert not events_of(run, "results lost")
    back = {r.element: r for r in run.recoveries()[:2]}
    # What was passed over once is not counted again.
    assert all(r.lost == 0 for r in run.recoveries()[2:])
    assert back["watcher"].lost == len(right["seen"]) - len(found["seen"]) == ROWS
    assert [row["seq"] // ROWS for row in found["seen"]] == [0] * ROWS + [2] * ROWS
    assert back["counter"].lost == 0
    for recovered in back.values():
        assert (recovered.process, recovered.failure, recovered.spare) == ("second", "ProcessDied", True)
        assert recovered.restart >= patience.delay
        assert min(recovered.detect, recovered.restore, recovered.catch_up) >= 0.0
    assert [(e["what"], e["code"]) for e in events_of(run, "failure")] == [
        ("ProcessDied", -signal.SIGKILL)
    ] * 2
    assert [(e["what"], e["process"], e["after"]) for e in events_of(run, "decision")] == [
        ("RestartProcess", "second", 6.0),
        ("RestartProcess", "second", 7.0),
    ]
    assert events_of(run, "ended")
    assert not (page_root() / f"watched-{run.folder.name}").exists()


def jvms() -> set[psutil.Process]:
    """List the JVMs that run Spark for this process, or for one that it started."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                found.add(process)
    return found


@pytest.mark.slow
def test_a_jvm_dies_while_an_element_is_started_again(runs: Path, tmp_path: Path) -> None:
    calls, out, others = tmp_path / "calls", tmp_path / "out", jvms()
    put_file(calls, 0)
    app = rr.Application("short")
    source = app.source("calls", rr.files(str(calls)), position="seq")
    app.sink("seen", app.functor("see", source, select="seq"), rr.parquet(out, roll=0))
    with supervise(app.graph(), replace(OPTIONS, runs=runs), spare=False) as run:
        until(run, lambda: published(out) == ROWS)
        (first,) = jvms() - others
        first.kill()
        put_file(calls, 1)
        until(run, (run.folder / "elements" / "short" / "setting-1.json").exists)
        for second in jvms() - others:
            second.kill()
        until(run, lambda: published(out) == 2 * ROWS)

    assert whole(read_parts(out))["seq"].to_pylist() == list(range(2 * ROWS))
    assert [(e["what"], e.get("code")) for e in events_of(run, "failure")] == [
        ("ProcessDied", SPARK_GONE)
    ] * 2


def hang_once(marker: str) -> Any:
    """Return a function that hangs the first time it is called with the last row."""

    def check(seq: Any) -> Any:
        import time

        if seq.to_pylist()[-1] == 2 * ROWS - 1 and not os.path.exists(marker):
            with open(marker, "w"):
                time.sleep(600)
        return seq

    return check


@pytest.mark.slow
def test_what_hangs_is_restarted(runs: Path, tmp_path: Path) -> None:
    calls, out = tmp_path / "calls", tmp_path / "out"
    put_file(calls, 0)
    app = rr.Application("hanging")
    source = app.source("calls", rr.files(str(calls)), position="seq")
    app.function("check", hang_once(str(tmp_path / "marker")), returns="bigint")
    app.sink("seen", app.functor("see", source, select="check(seq) as seq"), rr.parquet(out, roll=0))
    patience = Patience(silent=12.0, stuck=24.0, restarts=1, standby=("local[1,3]",))
    with supervise(app.graph(), replace(OPTIONS, runs=runs), patience=patience, spare=False) as run:
        until(run, lambda: published(out) == ROWS)
        put_file(calls, 1)
        until(run, lambda: published(out) == 2 * ROWS)
        until(run, lambda: len(run.recoveries()) == 1)
        (driver,) = find_presences(run.folder)
        os.kill(driver.pid, signal.SIGSTOP)
        put_file(calls, 2)
        until(run, lambda: published(out) == 3 * ROWS)
        until(run, lambda: len(run.recoveries()) == 2)

    assert whole(read_parts(out))["seq"].to_pylist() == list(range(3 * ROWS))
    assert [e["what"] for e in events_of(run, "failure")] == ["Stuck", "Silent"]
    assert [(e["what"], e.get("master")) for e in events_of(run, "decision")] == [
        ("RestartProcess", None),
        ("RestartElsewhere", "local[1,3]"),
    ]
    assert all(recovered.detect >= 12.0 for recovered in run.recoveries())


class Unloadable:
    """Pickled here, and not to be had elsewhere."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_an_application_that_cannot_be_loaded_is_given_up_with_the_cause(runs: Path) -> None:
    app = rr.Application("strange")
    thing = Unloadable()
    app.function("check", lambda seq: (thing, seq)[1], returns="bigint")
    source = app.source("calls", rr.rows([{"seq": 1}], "seq bigint"))
    app.sink("seen", app.functor("see", source, select="check(seq) as seq"), rr.memory())
    run = supervise(app.graph(), replace(OPTIONS, runs=runs, trigger=None))
    with pytest.raises(rr.RunError, match=r"the run in .* is alive: process \d+ on .* End it there first"):
        supervise(app.graph(), replace(OPTIONS, folder=described(run.folder), trigger=None))
    left = kill_while_warming(run.folder)
    assert all(path.exists() for path in left)
    with pytest.raises(rr.GraphError, match=r"cannot be loaded in a driver process: ValueError.*no number"):
        run.wait()
    assert not any(path.exists() for path in left), (
        "nothing stays of a spare that was killed while it warmed up"
    )


def described(folder: Path) -> Path:
    """Say what a run is of, as it does itself once Spark is there; and lose its page folder, with the lease in it."""
    RunFolder(folder, time.time).describe(folder.parent.name, {}, {}, master="", java="")
    shutil.rmtree(page_folder(folder))
    return folder


WARMING = """
import os, sys, time
from pathlib import Path
from riprap.runtime.folder import RunFolder
from riprap.runtime.site import take_hold
made = RunFolder.create(Path(sys.argv[1]) / f"warming-{os.getpid()}", "warming", time.time)
housing, lease = take_hold(made, None, None, one_host=True)
print(made.path, flush=True)
time.sleep(600)
"""


def kill_while_warming(run: Path) -> list[Path]:
    """Kill a process that has begun to warm up as a spare of a run does; return the folders it leaves."""
    spare = subprocess.Popen(
        [sys.executable, "-c", WARMING, str(run / "processes")], stdout=subprocess.PIPE, text=True
    )
    assert spare.stdout is not None
    made = Path(spare.stdout.readline().strip())
    spare.kill()
    spare.communicate()
    return [run / "processes" / f"warming-{spare.pid}", page_folder(made)]


APPLICATION = """\
import os
from pathlib import Path

from tests.runtime.supervision.watched import watched

app = watched(Path("calls"), Path("out"), rate=int(os.environ["RATE"]))
"""


@pytest.mark.slow
def test_a_run_is_stopped_from_outside_and_taken_up(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in range(4):
        put_file(tmp_path / "calls", file)
    (tmp_path / "app.py").write_text(APPLICATION)
    command = ["run", "app.py:app", "--batch-rows", "200", "--buckets", "4", "--parallelism", "2", "--json"]
    search = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]
    around: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search)), "RATE": "20"},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    start = [sys.executable, "-m", "riprap"]
    with subprocess.Popen([*start, *command, "--runs", str(runs)], **around) as supervisor:
        wait_until(lambda: published(tmp_path / "out" / "by_caller") or supervisor.poll() is not None)
        assert main(["stop", "latest", "--runs", str(runs), "--json"]) == 0
        told, errors = supervisor.communicate()
    assert supervisor.returncode == 0, errors
    assert json.loads(capsys.readouterr().out)["can_be_taken_up"]
    assert published(tmp_path / "out" / "by_caller") < 4 * ROWS
    again = shlex.split(json.loads(told)["take_up"])
    assert again[:3] == ["riprap", "run", "app.py:app"]

    around["env"]["RATE"] = "2000"
    done = subprocess.run([*start, *again[1:]], check=False, timeout=300, **around)

    assert done.returncode == 0, done.stderr
    found, right = rows_in(tmp_path / "out"), expected(range(4))
    for name in ("by_caller", "by_callee"):
        assert found[name] == right[name]
    assert json.loads(done.stdout)["take_up"] is None


@pytest.mark.slow
def test_drivers_do_not_outlive_their_supervisor(runs: Path, tmp_path: Path) -> None:
    for file in range(4):
        put_file(tmp_path / "calls", file)
    (tmp_path / "app.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "riprap", "run", "app.py:app", "--batch-rows", "200", "--buckets", "4"]
    command += ["--parallelism", "2", "--master", "local[2,3]", "--runs", str(runs)]
    search = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]
    around: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    around["env"]["RATE"] = "50"  # The first process is still feeding when the second has published.
    with subprocess.Popen(command, **around) as supervisor:
        wait_until(lambda: published(tmp_path / "out" / "by_callee") or supervisor.poll() is not None)
        folder = (runs / "watched" / "latest").resolve()
        drivers = find_presences(folder)
        started = [p for driver in drivers for p in session_of(driver.pid)]
        supervisor.kill()
        _, told = supervisor.communicate()
    assert len(drivers) == 2, told
    assert len(started) >= 4
    wait_until(lambda: not any(lives(p) for p in started), seconds=60)

    around["env"]["RATE"] = "2000"
    done = subprocess.run([*command, "--folder", str(folder), "--json"], check=False, timeout=300, **around)

    assert done.returncode == 0, done.stderr
    found, right = rows_in(tmp_path / "out"), expected(range(4))
    assert {name: found[name] for name in ("by_caller", "by_callee")} == {
        name: right[name] for name in ("by_caller", "by_callee")
    }
    (passed,) = [e["tuples"] for e in lines_of(folder / "events.jsonl") if e["event"] == "passed over"]
    assert len(right["seen"]) - len(found["seen"]) == passed
