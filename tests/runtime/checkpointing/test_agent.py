"""The agent, in a real process and without Spark: it dies at each step of a save, hangs, is refused, and outlives its
driver; batches go on, and what is restored afterwards gives the results of a run without faults."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from tests.runtime.checkpointing.hosts import Fleet, World
from tests.runtime.checkpointing.leaving import events
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.errors import StoreError
from riprap.runtime.agent import FORMAT, handle
from riprap.runtime.agent.__main__ import Agent
from riprap.runtime.agent.handle import HiredAgent, Saver
from riprap.runtime.agent.lock import await_saver
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.link import Link
from riprap.testing import crash_at

STEPS = ("values", "between", "manifest", "versioned", "collecting")
ROWS = 60


@pytest.fixture
def agents() -> Iterator[list[HiredAgent]]:
    """Collect agents, none of which outlives the test."""
    started: list[HiredAgent] = []
    yield started
    for agent in started:
        agent.stop()


def fleet_of(folder: Path, every: str = "20ms") -> Fleet:
    app = rr.Application("calls")
    source = app.source("calls_in", rr.rows([], "k string, v bigint"))
    even = app.functor("even", source, where="v % 2 = 0", select="k, v")
    odd = app.functor("odd", source, where="v % 2 = 1", select="k, v")
    windows = (rr.sliding(tuples=5), rr.sliding(tuples=4))
    protect = rr.checkpoint(every=every, keep=2)
    pairs = app.join(
        "pairs", even, odd, by="k", windows=windows, select="even.v as e, odd.v as o", protect=protect
    )
    app.sink("out", pairs, rr.memory())
    return Fleet(app, folder, World(), buckets=2)


def be_kept(fleet: Fleet, agent: HiredAgent) -> Saver:
    """Have an agent save a fleet's only element, instead of a thread of this process."""
    (host,) = fleet.hosts.values()
    host.checkpointer.stop()
    saver = agent.open(host.protection, Path(host.protection.home), host.record, fleet._tell)
    host.note = lambda answers: saver.take(host.record, answers, host.record.batch + 1)  # type: ignore[method-assign]
    return saver


def batch(fleet: Fleet, number: int) -> list[dict[str, Any]]:
    fleet.world.now = time.time()
    values = [number * ROWS + n for n in range(ROWS)]
    table = pa.table({"k": [f"k{v % 3}" for v in values], "v": values})
    return fleet.run({"calls_in": table})["out"]


def versions(fleet: Fleet) -> list[int]:
    return fleet.versions("pairs").numbers()


def run_until(fleet: Fleet, condition: Callable[[], Any], pause: float = 0.05) -> int:
    """Run batches until there is progress; return how many there were."""
    done = fleet.record_of(next(iter(fleet.hosts))).batch + 1
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "no progress"
        batch(fleet, done)
        done += 1
        time.sleep(pause)
    return done


@pytest.mark.parametrize("step", STEPS)
def test_it_dies_at_a_step_of_a_save_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: list[HiredAgent], step: str
) -> None:
    for name, value in crash_at(f"checkpoint-{step}", 3, "pairs", marker=tmp_path / "crashed").items():
        monkeypatch.setenv(name, value)
    fleet = fleet_of(tmp_path / "faulty")
    agents.append(HiredAgent())
    saver = be_kept(fleet, agents[0])
    run_until(fleet, lambda: any(e["event"] == "agent started" for e in fleet.events))
    (lost,) = fleet.told("agent lost")
    assert lost["code"] == -signal.SIGKILL
    newest = max(versions(fleet))
    done = run_until(fleet, lambda: max(versions(fleet)) >= newest + 2)
    saver.close(save=True)
    statuses = saver.statuses(time.time())["pairs"]
    # Counted over both agents.
    assert statuses["taken"] >= 4
    assert statuses["age"] == 0.0

    (element,) = fleet.hosts
    assert not events(Path(fleet.hosts[element].protection.home), "checkpoint failed")
    pages = [page.name for page in Path(fleet.hosts[element].pages.folder).iterdir()]
    assert not any(page.startswith("0000-0000000000-") for page in pages), "pages of saved batches are gone"
    fleet.wipe(element)
    fleet.start(fleet.plans()[0])
    (restored,) = fleet.told("restored")
    assert restored["version"] == max(versions(fleet))
    plain = fleet_of(tmp_path / "plain", every="1h")
    expected = [batch(plain, number) for number in range(done + 2)][done:]
    assert [batch(fleet, number) for number in (done, done + 1)] == expected


def test_one_that_hangs_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: list[HiredAgent]
) -> None:
    monkeypatch.setattr(handle, "_PATIENCE_SECONDS", 0.3)
    fleet = fleet_of(tmp_path)
    agents.append(HiredAgent())
    be_kept(fleet, agents[0])
    os.kill(agents[0].pid, signal.SIGSTOP)
    # Until it has more to read than a pipe takes.
    run_until(fleet, lambda: any(e["event"] == "agent started" for e in fleet.events), pause=0.0)
    run_until(fleet, lambda: versions(fleet))


def test_one_that_hangs_before_it_has_begun_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: list[HiredAgent]
) -> None:
    monkeypatch.setattr(handle, "_START_SECONDS", 0.2)
    fleet = fleet_of(tmp_path)
    (host,) = fleet.hosts.values()
    agents.append(HiredAgent())
    os.kill(agents[0].pid, signal.SIGSTOP)
    with pytest.raises(rr.RunError, match=r"did not start within 0.2 s: it said nothing"):
        agents[0].open(host.protection, tmp_path, None, fleet._tell)
    os.kill(agents[0].pid, signal.SIGCONT)


def test_what_cannot_be_opened_is_an_error_of_its_kind(tmp_path: Path, agents: list[HiredAgent]) -> None:
    fleet = fleet_of(tmp_path)
    (host,) = fleet.hosts.values()
    (tmp_path / "taken").write_text("a file, where a store would be")
    elsewhere = Durable(str(tmp_path / "taken"), "app")
    agents.append(HiredAgent())
    protection = host.protection
    object.__setattr__(protection, "durable", elsewhere)
    with pytest.raises(StoreError, match="taken"):
        agents[0].open(protection, tmp_path, None, fleet._tell)


def test_a_driver_that_dies_leaves_an_agent_that_finishes(tmp_path: Path) -> None:
    # The agent holds the lock until it has ended; one that does not end is killed.
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "import sys, time; from pathlib import Path; from riprap.runtime.agent import lock;"
        "lock.hold(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    process = psutil.Popen([sys.executable, "-c", program, str(home)], stdout=-1)
    assert process.stdout.readline() == b"held\n"
    told: list[str] = []
    await_saver(home, lambda kind, **_: told.append(kind), seconds=0.2)
    assert told == ["agent killed"]
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    await_saver(home, lambda kind, **_: told.append(kind))
    assert told == ["agent killed"]


def test_one_that_is_told_of_an_element_by_who_is_gone_leaves_it_alone(tmp_path: Path) -> None:
    # It started so late that its driver had died, and who took the run up had no lock to wait for.
    fleet = fleet_of(tmp_path)
    batch(fleet, 0)
    (host,) = fleet.hosts.values()
    host.checkpointer.stop()
    home, saved = Path(host.protection.home), versions(fleet)
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    driver = Link(from_read, to_write)
    record = host.record.to_json()
    driver.send(
        "open", format=FORMAT, protection=host.protection.to_json(), folder=str(tmp_path), record=record,
        waiting=1, statuses={},
    )  # fmt: skip
    driver.send("batch", place=str(home), record=record, waiting=1, fresh=[], entered={})
    driver.close_outgoing()

    Agent(Link(to_read, from_write)).serve()

    os.close(to_read)
    os.close(from_write)
    assert driver.receive() is None, "it said something"
    os.close(from_read)
    assert versions(fleet) == saved
    await_saver(home, pytest.fail)


def test_it_needs_no_spark(agents: list[HiredAgent]) -> None:
    agents.append(HiredAgent())
    agent = psutil.Process(agents[0].pid)
    wait_until(lambda: agent.nice() > psutil.Process().nice())
    program = "import sys, riprap.runtime.agent.__main__; assert 'pyspark' not in sys.modules, 'Spark'"
    assert psutil.Popen([sys.executable, "-c", program]).wait() == 0
