"""State that comes back when not all of it is gone: pages cut short, packs damaged, saved just after a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.checkpointing.calls import BUCKETS, KEYS, PROTECTED, Call, Plainly, in_memory
from tests.runtime.checkpointing.hosts import Fleet, World


class Rounds:
    """An application that gets a tuple of each key a second."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.fleet = Fleet(in_memory(2), folder, self.world, buckets=BUCKETS)
        self._plainly = Plainly()

    def go(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.now += 1.0
            calls = [Call(key, 1, one) for key in KEYS for one in (True, False)]
            self.fleet.run({"source": self._plainly.table(calls)})

    def save(self) -> None:
        for host in self.fleet.hosts.values():
            for operator in host.plan.protected:
                host.save(operator)

    def restart(self) -> None:
        for plan in self.fleet.plans():
            self.fleet.start(plan)

    def lose_host(self) -> None:
        for plan in self.fleet.plans():
            self.fleet.wipe(plan.name)

    def restored(self) -> dict[str, dict[str, int]]:
        return {e["operator"]: e for e in self.fleet.told("restored")}


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    made = Rounds(tmp_path)
    yield made
    made.fleet.remove_all()


def test_a_page_cut_short_is_restored_as_one_that_is_gone(rounds: Rounds) -> None:
    rounds.go(3)
    rounds.save()
    for plan in rounds.fleet.plans():
        for page in Path(rounds.fleet.hosts[plan.name].pages.folder).glob("*.page"):
            os.truncate(page, page.stat().st_size // 2)
    rounds.restart()

    restored = rounds.restored()
    assert set(restored) == set(PROTECTED)
    assert all(found["tuples"] for found in restored.values())
    rounds.go(1)


def test_a_damaged_pack_of_the_newest_version_is_told(rounds: Rounds, tmp_path: Path) -> None:
    rounds.go(1)
    rounds.save()
    rounds.go(1)
    rounds.save()
    for entry in (tmp_path / "store").iterdir():
        newest = max(entry.iterdir())
        os.truncate(newest, newest.stat().st_size - 3)
    rounds.lose_host()
    rounds.restart()

    assert {operator: found["version"] for operator, found in rounds.restored().items()} == dict.fromkeys(
        PROTECTED, 1
    )
    warned = {e["what"]: e["message"] for e in rounds.fleet.told("warning")}
    assert set(warned) == {f"checkpoint of '{operator}'" for operator in PROTECTED}
    assert all("versions, or values, may be missing: " in text for text in warned.values()), warned


@pytest.mark.parametrize("restarts", [1, 2, 4])
def test_the_first_version_after_a_restart_knows_how_fast_its_windows_were_filled(
    rounds: Rounds, restarts: int
) -> None:
    rounds.go(4)
    rounds.save()
    for _ in range(restarts):
        rounds.restart()
        rounds.save()
    rounds.go(2)
    rounds.lose_host()
    rounds.restart()

    # Two seconds at a tuple a second of each key and side are lost, which have pushed out as many.
    found = rounds.restored()["sums"]
    assert found["version"] == restarts + 1
    assert found["stale"] == 2 * 2 * len(KEYS)
