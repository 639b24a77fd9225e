"""Checkpoints sealed with a key of the user's: what does not have the seal is refused, told of, and never loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.customs import table_of, telling
from tests.runtime.checkpointing.hosts import Fleet, World

import riprap as rr
from riprap.errors import SealError
from riprap.state.checkpoints.manifest import CheckpointManifest, manifest_key
from riprap.testing import forget_instances

KEY = b"a key of the user's own"


@dataclass
class Kept:
    total: int = 0


class Total(rr.CustomOperator):
    state: Kept

    def on_tuple(self, port: Any, values: dict[str, Any]) -> None:
        self.state.total += values["v"]
        self.submit({"told": str(self.state.total)})


class Saved:
    """An operator with objects, of which each batch was saved: 1, 3, 6."""

    def __init__(self, folder: Path, key: bytes | None) -> None:
        self.fleet = Fleet(telling(Total, protect=rr.checkpoint(every="10s")), folder, World(), buckets=1)
        self.restart(key)
        for value in (1, 2, 3):
            self.fleet.world.now += 1.0
            self.fleet.run({"source": table_of(value)})
            self.fleet.hosts["custom"].save("it")

    def restart(self, key: bytes | None) -> None:
        """Take the run up with a key."""
        self.fleet.durable = replace(self.fleet.durable, key=key)
        for plan in self.fleet.plans():
            self.fleet.start(plan)

    def lose_host(self, key: bytes | None) -> int:
        """Lose the host, take the run up with a key, and return the total it goes on from."""
        self.fleet.wipe("custom")
        self.restart(key)
        ((row,),) = self.fleet.run({"source": table_of(0)}).values()
        return int(row["told"])

    def manifest(self, version: int) -> bytes:
        return self.fleet.read("it", manifest_key(version))


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    yield Saved(tmp_path, KEY)
    forget_instances()


def test_what_is_sealed_comes_back_with_its_key(saved: Saved) -> None:
    assert saved.lose_host(KEY) == 6
    assert not saved.fleet.told("seal refused")


def test_what_is_sealed_is_not_taken_up_without_a_key(saved: Saved) -> None:
    with pytest.raises(SealError, match=r"version 3 of app/it is sealed, and no key .* in RIPRAP_KEY_FILE"):
        saved.lose_host(None)
    saved.restart(KEY)
    assert saved.fleet.run({"source": table_of(4)}) == {"out": [{"told": "10"}]}, "nothing was lost by trying"


def test_another_key_is_no_damage_and_costs_no_state(saved: Saved) -> None:
    with pytest.raises(SealError, match=r"no version in app/it .* Name the key they were saved with"):
        saved.lose_host(KEY[::-1])
    refused = [event["message"] for event in saved.fleet.told("seal refused")]
    assert len(refused) == 3
    assert "version 3 does not have the seal of the key" in refused[0]
    assert "it is passed over, and the one before it tried" in refused[0]
    assert not saved.fleet.told("warning")


@pytest.mark.parametrize(
    "forgery", ["manifest under another number", "value under a new manifest", "no seal"]
)
def test_what_was_sealed_once_cannot_be_brought_back_as_something_newer(forgery: str, saved: Saved) -> None:
    first, newest = (CheckpointManifest.from_bytes(saved.manifest(number)) for number in (1, 3))
    forged = replace(newest, version=4, slots=first.slots)
    seal = {"no seal": None}.get(forgery, newest.seal)
    data = saved.manifest(1) if "number" in forgery else forged.to_bytes(lambda body: seal)
    saved.fleet.put("it", manifest_key(4), data)

    assert saved.lose_host(KEY) == 6, "the newest that is ours, and not 1"
    told = [e["message"] for kind in ("seal refused", "warning") for e in saved.fleet.told(kind)]
    assert [text.split(": ")[0] for text in told if "version 4" in text], told


def test_a_key_that_comes_later_is_not_for_what_was_saved_before(tmp_path: Path) -> None:
    saved = Saved(tmp_path, None)

    with pytest.raises(SealError, match="version 3 has no seal, though RIPRAP_KEY_FILE names a key"):
        saved.lose_host(KEY)
    saved.restart(None)
    assert saved.fleet.run({"source": table_of(4)}) == {"out": [{"told": "10"}]}
    forget_instances()
