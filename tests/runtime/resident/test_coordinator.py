"""What a coordinator does with tasks that come, answer, are lost, come again, or are none of its own; without Spark."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import pytest

from riprap.errors import RunError
from riprap.runtime.resident import wire
from riprap.runtime.resident.coordinator import CancelledError, Coordinator

TOKEN = "token of the run"


_LINKS: list[socket.socket] = []
_SERVING: list[threading.Thread] = []


def connect(coordinator: Coordinator) -> socket.socket:
    link = socket.create_connection(coordinator.address, timeout=30)
    _LINKS.append(link)
    return link


class FakeTask:
    """A task as the coordinator sees it: it says hello, and then what the test has it say."""

    def __init__(self, coordinator: Coordinator, task: int, attempt: int, **other: object) -> None:
        hello = {"token": TOKEN, "task": task, "attempt": attempt, "riprap": version("riprap"), **other}
        self.link = connect(coordinator)
        self._inbox = wire.Inbox(self.link)
        self._heard: list[wire.WireMessage] = []
        wire.send(self.link, wire.HELLO, json.dumps(hello).encode())

    def hear(self) -> wire.WireMessage | None:
        """Return the next message, None when the coordinator has hung up."""
        while not self._heard:
            messages = self._inbox.read()
            if messages is None:
                return None
            self._heard += messages
        return self._heard.pop(0)

    def answer(self, work: wire.WireMessage, body: bytes) -> None:
        wire.send(self.link, wire.DONE, body, number=work.round)

    def serve(self) -> None:
        """Give each piece of work back, in capitals, until told to end."""
        while (message := self.hear()) is not None and message.kind == wire.WORK:
            self.answer(message, message.body.upper())


Asking = Callable[..., Future[list[bytes]]]


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator(2, TOKEN)
    yield made
    made.close()
    while _SERVING:
        _SERVING.pop().join(30)
    while _LINKS:
        _LINKS.pop().close()


@pytest.fixture
def asking(coordinator: Coordinator) -> Iterator[Asking]:
    """Ask in a thread of its own, as an element does."""

    def ask(work: Sequence[bytes], **options: Any) -> list[bytes]:
        coordinator.give(work, **options)
        return coordinator.gather()

    with ThreadPoolExecutor(1) as pool:
        yield lambda *work, **options: pool.submit(ask, work, **options)


def serve(coordinator: Coordinator, task: int, attempt: int) -> None:
    _SERVING.append(threading.Thread(target=FakeTask(coordinator, task, attempt).serve, daemon=True))
    _SERVING[-1].start()


def heard(task: FakeTask) -> wire.WireMessage:
    message = task.hear()
    assert message is not None
    return message


def test_each_task_gets_its_piece_round_after_round(coordinator: Coordinator, asking: Asking) -> None:
    serve(coordinator, 1, 11)
    serve(coordinator, 0, 10)
    for _ in range(3):
        assert asking(b"a", b"b").result(30) == [b"A", b"B"]


def test_a_task_that_is_lost_gets_the_same_piece_again(coordinator: Coordinator, asking: Asking) -> None:
    serve(coordinator, 0, 10)
    lost = FakeTask(coordinator, 1, 11)
    answers = asking(b"a", b"b")
    assert heard(lost).body == b"b"
    lost.link.close()
    serve(coordinator, 1, 12)
    assert answers.result(30) == [b"A", b"B"]


def test_of_a_task_only_the_newest_attempt_counts(coordinator: Coordinator, asking: Asking) -> None:
    serve(coordinator, 0, 10)
    zombie = FakeTask(coordinator, 1, 11)
    answers = asking(b"a", b"b")
    work = heard(zombie)
    newer = FakeTask(coordinator, 1, 12)
    same = heard(newer)
    assert (same.round, same.body) == (work.round, b"b")
    # The zombie wakes up: it was told to end, and what it says goes unheard.
    zombie.answer(work, b"late")
    assert heard(zombie).kind == wire.REPLACED
    assert zombie.hear() is None
    newer.answer(same, b"B")
    assert answers.result(30) == [b"A", b"B"]
    late = FakeTask(coordinator, 1, 11)
    answers = asking(b"c", b"d")
    assert heard(late).kind == wire.REPLACED, "an attempt that connects after a newer one has no say"
    newer.answer(heard(newer), b"D")
    assert answers.result(30) == [b"C", b"D"]


def test_an_answer_to_another_round_counts_for_none(coordinator: Coordinator, asking: Asking) -> None:
    serve(coordinator, 0, 10)
    task = FakeTask(coordinator, 1, 11)
    answers = asking(b"a", b"b")
    work = heard(task)
    wire.send(task.link, wire.DONE, b"of no round", number=work.round + 1)
    task.answer(work, b"B")
    assert answers.result(30) == [b"A", b"B"]


def test_strangers_are_sent_away(coordinator: Coordinator, asking: Asking) -> None:
    wrong = FakeTask(coordinator, 0, 99, token="another")
    garbage = connect(coordinator)
    garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
    large = connect(coordinator)
    large.sendall(wire._HEAD.pack(wire.VERSION, wire.HELLO, 0, 2**31))
    twice, deep = connect(coordinator), connect(coordinator)
    twice.sendall(2 * (wire._HEAD.pack(wire.VERSION, wire.HELLO, 0, 2) + b"{}"))
    wire.send(deep, wire.HELLO, b"[" * 4000)
    odd = FakeTask(coordinator, 0, 99, token="\u00fc")
    answers = asking(b"a", b"b")
    assert wrong.hear() is odd.hear() is None
    assert garbage.recv(1) == large.recv(1) == twice.recv(1) == deep.recv(1) == b""
    serve(coordinator, 0, 10)
    serve(coordinator, 1, 11)
    assert answers.result(30) == [b"A", b"B"]


def test_a_task_of_another_version_ends_the_run(coordinator: Coordinator, asking: Asking) -> None:
    answers = asking(b"a", b"b")
    other = FakeTask(coordinator, 0, 10, riprap="0.0.1")
    with pytest.raises(
        RunError, match=r"a task runs Riprap 0\.0\.1, and the driver .*: install the same version"
    ):
        answers.result(30)
    assert heard(other).kind == wire.END


def test_tasks_that_are_not_to_stay_end_with_their_answer(coordinator: Coordinator, asking: Asking) -> None:
    answers = asking(b"a", b"b", stay=False)
    # One after the other: there may be a slot for one only.
    for task, attempt in ((0, 10), (1, 11)):
        one = FakeTask(coordinator, task, attempt)
        work = heard(one)
        one.answer(work, work.body.upper())
        assert heard(one).kind == wire.END
    assert answers.result(30) == [b"A", b"B"]


def test_a_round_ends_when_the_job_is_gone_or_nobody_wants_it(
    coordinator: Coordinator, asking: Asking
) -> None:
    answers = asking(b"a", b"b")
    coordinator.fail(RunError("the job is gone"))
    with pytest.raises(RunError, match="the job is gone"):
        answers.result(30)
    # What became of one job does not count for the next.
    coordinator.open()
    serve(coordinator, 0, 10)
    serve(coordinator, 1, 11)
    assert asking(b"a", b"b").result(30) == [b"A", b"B"]
    coordinator.cancel()
    with pytest.raises(CancelledError):
        asking(b"a", b"b").result(30)


def test_all_are_dismissed_and_who_comes_later_too(coordinator: Coordinator) -> None:
    early = FakeTask(coordinator, 0, 10)
    late: list[FakeTask] = []

    def gone() -> bool:
        if not late:
            late.append(FakeTask(coordinator, 1, 11))
            return False
        return all(wire_end(task) for task in (early, *late))

    def wire_end(task: FakeTask) -> bool:
        task.link.settimeout(0.05)
        try:
            message = task.hear()
        except TimeoutError:
            return False
        finally:
            task.link.settimeout(30)
        return message is None or message.kind == wire.END

    assert coordinator.dismiss("the run has ended", gone, 30)
    assert not coordinator.dismiss("again", lambda: False, 0.05)


def test_a_port_that_cannot_be_opened_is_said() -> None:
    with pytest.raises(RunError, match=r"no port can be opened on 192\.0\.2\.1 for the tasks to connect to"):
        Coordinator(1, TOKEN, host="192.0.2.1")
