"""What is done behind somebody's back: in order, not too far behind, and told when it goes wrong."""

from __future__ import annotations

import threading

import pytest

from riprap.runtime.background import BackgroundThread


def test_things_are_done_in_order_and_who_gives_too_many_waits() -> None:
    behind, may_go, done = BackgroundThread("behind", 2), threading.Event(), []

    def first() -> None:
        may_go.wait(30)
        done.append(0)

    behind.do(first)
    giver = threading.Thread(target=lambda: [behind.do(lambda n=n: done.append(n)) for n in range(1, 5)])
    giver.start()
    giver.join(0.3)
    assert giver.is_alive(), "one at hand and two waiting: the fourth is not taken"
    assert done == []
    may_go.set()
    giver.join()
    behind.wait()
    assert done == [0, 1, 2, 3, 4]
    behind.finish()


def test_what_goes_wrong_is_raised_where_more_is_given() -> None:
    behind, done = BackgroundThread("behind", 2), []

    def fail() -> None:
        raise ValueError("no")

    behind.do(fail)
    with pytest.raises(ValueError, match="no"):
        behind.wait()
    for ask in (lambda: behind.do(lambda: done.append(1)), behind.check, behind.finish):
        with pytest.raises(ValueError, match="no"):
            ask()
    assert done == []


def test_what_is_abandoned_is_not_begun() -> None:
    behind, may_go, at_work, done = BackgroundThread("behind", 2), threading.Event(), threading.Event(), []

    def slow() -> None:
        at_work.set()
        may_go.wait(30)
        done.append("slow")

    behind.do(slow)
    behind.do(lambda: done.append("next"))
    at_work.wait(30)
    giver = threading.Thread(target=behind.abandon)
    giver.start()
    while not behind._dropped:
        giver.join(0.01)
    may_go.set()
    giver.join()
    assert done == ["slow"]
