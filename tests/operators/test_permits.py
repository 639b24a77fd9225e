"""Threads that operators start: with a permit they change state and submit, and a checkpoint waits for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.customs import Seen, table_of, telling
from tests.stages import Stage

import riprap as rr
from riprap.operators.custom.instances import KEPT
from riprap.operators.custom.permits import Permits
from riprap.testing import forget_instances


@pytest.fixture(autouse=True)
def no_instances() -> Iterator[None]:
    yield
    forget_instances()


class Helper(rr.CustomOperator):
    """Lets a thread do the work, and waits for it when drained."""

    state: Seen

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.work: queue.Queue[dict[str, Any]] = queue.Queue()

    def prepare(self) -> None:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.work.put(tuple)

    def drain(self) -> None:
        self.work.join()

    def run(self) -> None:
        try:
            while True:
                with self.permit():
                    try:
                        tuple = self.work.get(timeout=0.01)
                    except queue.Empty:
                        continue
                    try:
                        self.do(tuple)
                    finally:
                        self.work.task_done()
        except (rr.Abandoned, ZeroDivisionError, RuntimeError):
            return

    def do(self, tuple: dict[str, Any]) -> None:
        if self.fails == "by itself" and tuple["v"] == 3:
            raise ZeroDivisionError("three")
        with self.permit():
            self.state.count += tuple["v"]
            self.submit({"told": f"{tuple['v']} makes {self.state.count}"})


def threads_of_instances() -> list[threading.Thread]:
    # Those of other tests in this process have none.
    users = (instance._user for instance in KEPT.instances.values())
    return [user.thread for user in users if isinstance(user, Helper)]


def test_threads_with_permits_change_state_and_submit(tmp_path: Path) -> None:
    stage = Stage(telling(Helper), tmp_path)

    first = stage.feed({"source": table_of(1, 2, 3)})["out"]
    (thread,) = threads_of_instances()
    second = stage.feed({"source": table_of(4)})["out"]

    assert [row["told"] for row in first] == ["1 makes 1", "2 makes 3", "3 makes 6"]
    assert [row["told"] for row in second] == ["4 makes 10"]
    assert threads_of_instances() == [thread]

    forget_instances()
    thread.join(10)
    assert not thread.is_alive()
    third = stage.feed({"source": table_of(5)})["out"]
    assert [row["told"] for row in third] == ["5 makes 15"]


def test_a_thread_that_fails_fails_the_batch(tmp_path: Path) -> None:
    stage = Stage(telling(Helper, params={"fails": "by itself"}), tmp_path)

    with pytest.raises(
        rr.OperatorError, match=r"Custom 'it' .* failed in a thread of its own: ZeroDivisionError: three"
    ):
        stage.feed({"source": table_of(1, 3)})
    assert KEPT.instances == {}


class Thief(rr.CustomOperator):
    """Submits from a thread without a permit."""

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        caught: list[Exception] = []

        def steal() -> None:
            try:
                self.submit({"told": "stolen"})
            except RuntimeError as error:
                caught.append(error)

        thread = threading.Thread(target=steal)
        thread.start()
        thread.join()
        assert "without a permit" in str(caught[0])


def test_a_thread_without_a_permit_cannot_submit(tmp_path: Path) -> None:
    with pytest.raises(rr.OperatorError, match=r"in a thread of its own: RuntimeError: .*without a permit"):
        Stage(telling(Thief, stateless=True), tmp_path).feed({"source": table_of(1)})


def test_permits_wait_while_closed_and_are_waited_for() -> None:
    permits = Permits()
    got, give_back, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with permits.permit():
            got.set()
            give_back.wait(10)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not got.wait(0.05)
    permits.open()
    assert got.wait(10)
    assert not permits.close(patience=0.05)
    give_back.set()
    assert permits.close(patience=10)
    assert done.wait(10)
    permits.abandon()
    with pytest.raises(rr.Abandoned), permits.permit():
        pass
    thread.join()
