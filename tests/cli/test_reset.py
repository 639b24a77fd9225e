"""`riprap reset` by what is in a run's folder: what is wrong is said, and an answer is waited for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.runtime.harness import wait_until

from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.regions import RegionState, save_regions
from riprap.runtime.supervision.requests import Requests
from riprap.state.leases import Lease

HALTED = RegionState(
    name="words", elements=("words",), limit=3, timeout=60.0, phase="halted", cause="it broke"
)
RUNNING = RegionState(name="sums", elements=("sums",), limit=3, timeout=60.0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Leave the folder of a supervised run with a region that is halted and one that is not."""
    folder = tmp_path / "run"
    (folder / "processes").mkdir(parents=True)
    save_regions(folder, [HALTED, RUNNING])
    return folder


@pytest.fixture
def alive(run: Path) -> Iterator[Lease]:
    lease = Lease.take(None, run)
    yield lease
    lease.release()


def test_no_such_region(riprap: Command, run: Path, alive: Lease) -> None:
    done = riprap("reset", run, "other")
    assert (done.code, "has no region 'other'. There are: words, sums" in done.err) == (2, True)
    (run / "regions.json").unlink()
    assert "There are: none" in riprap("reset", run, "words").err


def test_a_region_that_is_not_halted(riprap: Command, run: Path, alive: Lease) -> None:
    done = riprap("reset", run, "sums", "--json")
    told = json.loads(done.out)
    assert (done.code, told["error"]) == (2, "UsageError")
    assert told["message"] == "region 'sums' is not halted, but running: nothing is to be reset"
    assert not list((run / "processes").iterdir())


def test_a_run_that_is_not_going_on(riprap: Command, run: Path) -> None:
    done = riprap("reset", run, "words")
    assert (done.code, "is not going on. Take it up with 'riprap run ... --folder run'" in done.err) == (
        2,
        True,
    )


def answering(run: Path, answer: Callable[[RunFolder], Any]) -> threading.Thread:
    """Stand in for the supervisor, which hears of a request and answers."""
    folder = RunFolder(run, time.time)

    def serve() -> None:
        requests = Requests(folder)
        wait_until(lambda: requests.resets() == ["words"], seconds=60)
        folder.event("region reset", region="sums", seconds=1.0)
        answer(folder)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_it_waits_until_the_region_is_back(riprap: Command, run: Path, alive: Lease) -> None:
    thread = answering(run, lambda folder: folder.event("region reset", region="words", seconds=3.0))
    done = riprap("reset", run, "words", "--json")
    thread.join()
    told = json.loads(done.out)
    assert (done.code, told["run_folder"], told["region"]) == (0, str(run), "words")
    assert told["seconds"] > 0


def test_a_region_that_is_halted_again(riprap: Command, run: Path, alive: Lease) -> None:
    thread = answering(
        run, lambda folder: folder.event("region halted", region="words", cause="it broke again")
    )
    done = riprap("reset", run, "words")
    thread.join()
    assert (done.code, "region 'words' is halted again: it broke again" in done.err) == (1, True)


def test_a_run_that_ends_meanwhile(riprap: Command, run: Path, alive: Lease) -> None:
    thread = answering(run, lambda _: alive.release())
    done = riprap("reset", run, "words")
    thread.join()
    assert (done.code, "has ended before region 'words' was back" in done.err) == (1, True)
