"""How long a lost connection is waited for, what is told of it, and what the error says in the end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from riprap.adapters.retrying import Retry
from riprap.errors import ConnectionLost, RunError

WHAT = "source 'in' (app.py:3), Redis stream s at redis://host/0"
GONE = ConnectionLost("refused")


class World:
    """A clock that only sleeping moves on, and what was told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def tell(self, kind: str, **details: str | float | int) -> None:
        self.events.append((kind, details))

    def retry(self, patience: float) -> Retry:
        return Retry(WHAT, patience, self.tell, clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def world() -> World:
    return World()


def lose(retry: Retry, times: int) -> None:
    for _ in range(times):
        retry.lost(GONE)


def test_waits_are_doubled_up_to_five_seconds(world: World) -> None:
    lose(world.retry(60), 9)

    assert world.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_the_last_wait_ends_with_the_patience(world: World) -> None:
    retry = world.retry(2)
    with pytest.raises(RunError):
        lose(retry, 100)

    assert world.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.5])
    assert world.now == pytest.approx(1002)


def test_time_that_the_tries_take_counts(world: World) -> None:
    retry = world.retry(10)
    retry.lost(GONE)
    world.now += 9.5  # a server that does not answer
    retry.lost(GONE)

    assert world.slept == pytest.approx([0.1, 0.2])
    world.now += 5
    with pytest.raises(RunError, match=r"Tried 2 more times in 15 s"):
        retry.lost(GONE)


def test_the_error_names_the_operator_the_server_and_what_to_do(world: World) -> None:
    retry = world.retry(1)
    with pytest.raises(RunError) as caught:
        lose(retry, 100)

    assert str(caught.value) == (
        f"{WHAT}: refused. Tried 4 more times in 1 s. Check that the server runs and can be reached from here, and "
        "take the run up again; retry_for= says how long to try"
    )
    assert caught.value.__cause__ is GONE


def test_each_try_is_told_and_the_return_too(world: World) -> None:
    retry = world.retry(60)
    lose(retry, 3)
    retry.works()

    lost = [
        ("connection lost", {"what": WHAT, "message": "refused", "tries": tries, "wait": wait})
        for tries, wait in [(1, 0.1), (2, 0.2), (3, 0.4)]
    ]
    assert world.events == [*lost, ("connection back", {"what": WHAT, "after": 0.7, "tries": 3})]


def test_a_connection_that_was_never_lost_is_not_worth_a_word(world: World) -> None:
    retry = world.retry(60)
    for _ in range(3):
        retry.works()

    assert world.events == []


def test_patience_begins_anew_once_the_connection_is_back(world: World) -> None:
    retry = world.retry(1)
    for _ in range(20):
        lose(retry, 3)
        retry.works()
        world.now += 100

    assert world.slept == pytest.approx([0.1, 0.2, 0.4] * 20)


def failing(times: int, seen: list[bool]) -> Callable[[bool], str]:
    def action(again: bool) -> str:
        seen.append(again)
        if len(seen) <= times:
            raise GONE
        return "done"

    return action


@pytest.mark.parametrize("times", [0, 1, 4])
def test_a_call_is_tried_until_it_works(world: World, times: int) -> None:
    seen: list[bool] = []

    assert world.retry(60).call(failing(times, seen)) == "done"
    assert seen == [False] + [True] * times
    assert len(world.slept) == times
    assert all(a < b for a, b in pairwise(world.slept))


def test_a_call_that_never_works_ends_in_the_error(world: World) -> None:
    seen: list[bool] = []
    with pytest.raises(RunError, match="refused"):
        world.retry(0.5).call(failing(1000, seen))

    assert len(seen) == len(world.slept) + 1


def test_an_error_that_waiting_does_not_mend_is_not_tried_again(world: World) -> None:
    def action(again: bool) -> None:
        raise RunError("no such table")

    with pytest.raises(RunError, match=r"^no such table$"):
        world.retry(60).call(action)
    assert world.slept == []
