"""`riprap kill` without a run to kill in: what is wrong is said, and nobody is harmed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.cli.conftest import Command


def announce(run: Path, pid: int, started: float) -> None:
    """Leave what a driver process says of itself."""
    (run / "processes").mkdir(parents=True)
    about = {"format": "riprap-process/1", "pid": pid, "started": started, "pages": {"sums": []}}
    (run / "processes" / "main.json").write_text(json.dumps(about))


def test_no_run(riprap: Command, tmp_path: Path) -> None:
    done = riprap("kill", "latest", "sums")
    assert (done.code, "there is no run under runs" in done.err) == (2, True)
    done = riprap("kill", tmp_path, "sums")
    assert (done.code, "is not the folder of a supervised run" in done.err) == (2, True)


def test_no_such_element(riprap: Command, tmp_path: Path) -> None:
    announce(tmp_path / "run", 1, 0.0)
    done = riprap("kill", tmp_path / "run", "other")
    assert (done.code, "no element 'other' is running" in done.err, "There are: sums" in done.err) == (
        1,
        True,
        True,
    )


@pytest.mark.parametrize("what", ["--process", "--executor", "--host"])
def test_a_process_that_has_the_number_of_a_dead_driver_is_left_alone(
    riprap: Command, tmp_path: Path, what: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        announce(tmp_path / "run", bystander.pid, psutil.Process(bystander.pid).create_time() - 60.0)

        listed = riprap("kill", tmp_path / "run", "--json")
        done = riprap("kill", tmp_path / "run", "sums", what)

        assert json.loads(listed.out)["elements"] == [
            {"element": "sums", "process": "main", "pid": bystander.pid, "alive": False}
        ]
        assert (done.code, "is not there any more" in done.err) == (1, True)
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0
