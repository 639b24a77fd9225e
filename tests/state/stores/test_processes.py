"""Several processes and one store: readers beside a writer, and writers that are killed."""

from __future__ import annotations

import contextlib
import fcntl
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.state.stores.kinds import store_url
from tests.state.stores.worker import ENOUGH

from riprap.errors import StoreError
from riprap.state.stores import files, open_store
from riprap.testing import check_store
from riprap.testing.store_writer import ENTRY, current_of, keys_of, old_keys, value_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["small packs", "rocksdb", "redis", "own"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, request, tmp_path)


class Worker:
    """A program beside the test, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._heard = False

    def has_said(self, what: str) -> bool:
        """Say whether it has said something, once it has: this is then not heard any more."""
        assert self._process.stdout is not None
        if not self._heard and select.select([self._process.stdout], [], [], 0)[0]:
            assert self.hear()[0] == what
            self._heard = True
        return self._heard

    def hear(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with {self._process.wait()}"
        what, _, number = line.strip().partition(" ")
        return what, int(number or 0)


@contextlib.contextmanager
def reading(url: str) -> Iterator[Worker]:
    command = [sys.executable, "-m", "tests.state.stores.worker", url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def test_a_writer_may_be_killed_at_any_time(url: str) -> None:
    check_store(url, kills=15, seed=7)


def test_others_read_while_one_writes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_WORTH_REWRITING", 50_000)
    store = open_store(url)
    store.put(ENTRY, {key: value_of(key) for key in keys_of(0)})
    with reading(url) as reader:
        assert reader.hear()[0] == "reading"
        number = 0
        while number < 120 or not reader.has_said("enough"):
            number += 1
            store.put(
                ENTRY, {key: value_of(key) for key in keys_of(number)} | {"current": current_of(number)}
            )
            store.delete(ENTRY, old_keys(number))
        store.put(ENTRY, {"end": b""})
        what, checked = reader.hear()
    assert what == "checked"
    assert checked >= ENOUGH
    store.close()


def test_only_one_process_writes_to_rocksdb(tmp_path: Path) -> None:
    url = f"rocksdb://{tmp_path}/rocks"
    store = open_store(url)
    with pytest.raises(StoreError, match=r"Another process has it open.*readonly=True"):
        open_store(url)
    store.put(ENTRY, {"a": b"1"})
    reader = open_store(url, readonly=True)
    assert reader.get(ENTRY, "a").to_pybytes() == b"1"
    store.put(ENTRY, {"a": b"2", "b": b"3" * 10_000_000})
    assert reader.keys(ENTRY) == ["a", "b"]
    assert reader.get(ENTRY, "a").to_pybytes() == b"2"
    assert reader.get(ENTRY, "b").to_pybytes() == b"3" * 10_000_000
    reader.close()
    store.close()


def test_what_dead_writers_left_goes_and_what_live_ones_have_stays(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(ENTRY, {"a": b"1"})
    dead, alive = tmp_path / ENTRY / ".x.pack.part", tmp_path / ENTRY / ".y.pack.part"
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert store.keys(ENTRY) == ["a"]
        store.put(ENTRY, {"b": b"2"})
        assert not dead.exists()
        assert alive.exists()


def test_a_folder_is_private(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new" / "store")
    store.put(ENTRY, {"a": b"1"})
    modes = {oct(path.stat().st_mode) for path in (tmp_path / "new" / "store").rglob("*")}
    assert modes == {"0o40700", "0o100600"}
