"""Disks that are full, read-only or away: an error that says so, and nothing lost that was there."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from riprap.errors import StoreError
from riprap.state.stores import open_store

MB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a small disk of its own."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a disk for the test")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={16 * MB}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


@pytest.mark.parametrize("kind", ["", "rocksdb://"])
def test_a_full_disk(disk: Path, kind: str) -> None:
    store = open_store(f"{kind}{disk}/store")
    store.put("Sums", {"a": b"a" * 1000})
    store.put("Sums", {"b": b"b" * 1000})

    for _ in range(2):
        with pytest.raises(StoreError, match=r"writing failed.*No space.*Free some space"):
            store.put("Sums", {"c": os.urandom(20 * MB), "a": b"other"})
    assert store.keys("Sums") == ["a", "b"]
    assert store.get("Sums", "a").to_pybytes() == b"a" * 1000

    fill(disk)
    with pytest.raises(StoreError, match="Free some space"):
        store.put("Sums", {"c": os.urandom(MB)})
    (disk / "filler").unlink()

    store.put("Sums", {"c": b"c" * MB})
    assert store.get("Sums", "c").to_pybytes() == b"c" * MB
    store.close()
    again = open_store(f"{kind}{disk}/store")
    assert [again.get("Sums", key).to_pybytes()[:1] for key in again.keys("Sums")] == [b"a", b"b", b"c"]
    again.close()


def test_values_can_be_deleted_from_a_full_disk(disk: Path) -> None:
    store = open_store(disk / "store")
    store.put("Sums", {"large": bytes(8 * MB)})
    store.put("Sums", {"a": b"1", "b": b"2"})
    fill(disk)

    # Of "a" a note must be made, and the room for it comes from "large".
    store.delete("Sums", ["large", "a"])

    assert open_store(disk / "store").keys("Sums") == ["b"]
    store.put("Sums", {"c": bytes(4 * MB)})


def test_a_disk_that_turns_read_only(disk: Path) -> None:
    store = open_store(disk / "store")
    store.put("Sums", {"a": b"1", "b": b"2"})
    remount(disk, "ro")
    for change in (lambda: store.put("Sums", {"a": b"3"}), lambda: store.delete("Sums", ["a"])):
        with pytest.raises(StoreError, match=r"Read-only file system\. Mount it for writing"):
            change()
    with pytest.raises(StoreError, match="opening failed"):
        open_store(disk / "other")
    assert open_store(disk / "store").get("Sums", "a").to_pybytes() == b"1"
    remount(disk, "rw")
    store.put("Sums", {"a": b"3"})
    assert store.get("Sums", "a").to_pybytes() == b"3"


def test_rocksdb_on_a_read_only_disk(disk: Path) -> None:
    url = f"rocksdb://{disk}/store"
    store = open_store(url)
    store.put("Sums", {"a": b"1"})
    store.close()
    remount(disk, "ro")
    for readonly in (False, True):
        with pytest.raises(StoreError, match=r"opening failed.*Read-only.*right to write"):
            open_store(url, readonly=readonly)
    remount(disk, "rw")
    store.put("Sums", {"b": b"2"})
    assert store.keys("Sums") == ["a", "b"]
    store.close()


def test_a_disk_that_is_away_is_no_empty_store(disk: Path) -> None:
    store = open_store(disk / "store")
    store.put("Sums", {"a": b"1"})
    subprocess.run(["umount", str(disk)], check=True)
    for use in (
        lambda: store.keys("Sums"),
        lambda: store.get("Sums", "a"),
        lambda: store.get("Sums", "b"),
        lambda: store.put("Sums", {"a": b"3"}),
        lambda: store.delete("Sums", ["a"]),
        lambda: store.drop("Sums"),
        store.entries,
    ):
        with pytest.raises(StoreError, match="Is its disk mounted"):
            use()


def test_what_is_no_folder_is_no_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not mounted")
    store = open_store(tmp_path / "store", readonly=True)
    with pytest.raises(StoreError, match="Not a directory"):
        store.keys("Sums")
