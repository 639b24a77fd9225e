"""The thread that saves: when it saves first, what it does with much that waits, and that nothing stops it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.runtime.checkpointing.hosts import Fleet, World
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.runtime.checkpointing.durable import Durable


def fleet_of(folder: Path, *, every: str = "1h") -> Fleet:
    app = rr.Application("calls")
    source = app.source("calls_in", rr.rows([], "k string, v bigint"))
    sums = app.aggregate(
        "sums",
        source,
        by="k",
        window=rr.sliding(tuples=5),
        select="sum(v) as v",
        protect=rr.checkpoint(every=every),
    )
    app.sink("out", sums, rr.memory())
    return Fleet(app, folder, World(), buckets=2)


def batch(fleet: Fleet, number: int, rows: int = 50) -> None:
    fleet.world.now += 1.0
    values = [number * rows + n for n in range(rows)]
    fleet.run({"calls_in": pa.table({"k": [f"k{v % 3}" for v in values], "v": values})})


def test_what_was_taken_up_is_saved_at_once(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    batch(fleet, 0)
    (plan,) = fleet.plans()
    fleet.hosts[plan.name].checkpointer.stop()
    assert fleet.versions("sums").numbers() == []

    fleet.start(plan)
    checkpointer = fleet.hosts[plan.name].checkpointer
    checkpointer.start()
    wait_until(lambda: fleet.versions("sums").numbers() == [1])
    checkpointer.stop()


def test_pages_that_take_too_much_room_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(tmp_path)
    (plan,) = fleet.plans()
    host = fleet.hosts[plan.name]
    for number in range(4):
        batch(fleet, number)
    known = host.checkpointer._operators["sums"]
    assert len(known.waiting) == 4
    monkeypatch.setattr(
        host.checkpointer, "_site", replace(host._site, pages=replace(host._site.pages, limit=8_000))
    )
    host.checkpointer._make_room(known)
    assert (known.waiting, known.whole) == ([], fleet.record_of(plan.name))

    host.save("sums")
    assert fleet.versions("sums").manifest(1).tuples == 15
    batch(fleet, 4)
    assert len(known.waiting) == 1


def test_counts_survive_when_pages_that_wait_are_put_together(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    (plan,) = fleet.plans()
    host = fleet.hosts[plan.name]
    for number in range(66):
        batch(fleet, number, rows=30)
    known = host.checkpointer._operators["sums"]
    host.checkpointer._make_room(known)
    assert len(known.waiting) < 66

    host.save("sums")
    # Of each batch's ten tuples of a key five are in its page.
    (value,) = {s.name: s for s in fleet.versions("sums").manifest(1).slots["sums/0"]}.values()
    came = fleet.versions("sums").read(value).came
    assert came is not None
    assert came.counts.tolist() == [66 * 5] * 3


def test_what_one_task_leaves_for_two_is_put_together_for_each(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    fleet.tasks = 2
    (plan,) = fleet.plans()
    fleet.start(plan)
    host, fleet.tasks = fleet.hosts[plan.name], 1
    for number in range(66):
        fleet.run({"calls_in": pa.table({"k": [f"k{number}"] * 2, "v": [number] * 2})})
    known = host.checkpointer._operators["sums"]
    assert {w.buckets for w in known.waiting} == {(0, 1), (1, 2)}
    # Those of either range are too many.
    host.checkpointer._make_room(known)
    host.checkpointer._make_room(known)
    assert len(known.waiting) == 2 * (66 - 31)

    host.save("sums")
    assert fleet.versions("sums").manifest(1).tuples == 66 * 2


def test_a_full_disk_does_not_end_the_thread(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, every="50ms")
    (plan,) = fleet.plans()
    checkpointer = fleet.hosts[plan.name].checkpointer
    room = False

    def tell(kind: str, **details: Any) -> None:
        if not room:
            raise OSError(28, "No space left on device")

    checkpointer._tell = tell
    batch(fleet, 0)
    fleet.world.answers = 0
    checkpointer.start()
    fleet.world.now += 1.0
    wait_until(lambda: checkpointer.statuses()["sums"].failed > 0)
    room, fleet.world.answers = True, None
    for number in range(1, 4):
        batch(fleet, number)
    wait_until(
        lambda: (
            bool(fleet.versions("sums").numbers()) or bool(setattr(fleet.world, "now", fleet.world.now + 1))
        )
    )
    checkpointer.stop()


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("rocksdb:///var/rocks", "rocksdb:///var/rocks/sums"),
        ("rocksdb:///var/rocks/?chunk=8MB", "rocksdb:///var/rocks/sums?chunk=8MB"),
        ("redis://localhost/0?prefix=x", "redis://localhost/0?prefix=x"),
    ],
)
def test_settings_of_a_store_stay_settings(monkeypatch: pytest.MonkeyPatch, url: str, own: str) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        "riprap.runtime.checkpointing.durable.open_store", lambda found, readonly: opened.append(found)
    )
    Durable(url, "app").open("sums")
    assert opened == [own]
