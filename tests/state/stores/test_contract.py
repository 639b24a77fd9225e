"""What every store promises, and how stores are named."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.state.stores.kinds import KINDS, Open, opener

from riprap.errors import StoreError
from riprap.state.stores import Store, describe_store, files, open_store
from riprap.state.stores.chunks import Head, read_value
from riprap.testing import check_store


@pytest.fixture(params=KINDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    yield from opener(request.param, request, tmp_path)


@pytest.fixture(autouse=True)
def small_packs_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_WORTH_REWRITING", 100)


def content(store: Store) -> dict[str, dict[str, bytes]]:
    """Read all there is."""
    return {
        entry: {key: store.get(entry, key).to_pybytes() for key in store.keys(entry)}
        for entry in store.entries()
    }


def test_every_store_keeps_its_promises(reopen: Open) -> None:
    check_store(reopen, seed=1)
    check_store(reopen, seed=2)


def test_a_value_that_is_replaced_while_it_is_read_is_read_in_the_end() -> None:
    heads = [Head.of(f"{n:04}".encode(), 2) for n in range(50)]
    looked = 0

    def newest() -> bytes:
        nonlocal looked
        looked += 1
        return heads[looked - 1].encode()

    def chunks(names: list[str]) -> list[bytes | None]:
        # Whoever replaces a value takes the chunks of the one before it away.
        return [b"00", b"49"] if names == heads[-1].names("a") else [b"00", None]

    assert read_value("a", "store", newest, chunks).to_pybytes() == b"0049"
    assert looked == len(heads)


@pytest.mark.parametrize("seed", range(3, 23))
def test_packs_keep_them_in_whatever_order_things_come(seed: int) -> None:
    check_store(f"memory://packs-{seed}", steps=120, kills=0, seed=seed)


@pytest.mark.parametrize("key", ["", "a/b", "a b", "ä", "a:b", "a" * 201, "a\n"])
def test_other_keys_are_refused(tmp_path: Path, key: str) -> None:
    store = open_store(tmp_path)
    for use in (store.get, lambda entry, key: store.put(entry, {key: b""})):
        with pytest.raises(ValueError, match="key"):
            use("Sums", key)
    with pytest.raises(ValueError, match="entry"):
        store.keys(key.replace("/", ":"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("checkpoints", "checkpoints"),
        ("file:///var/check%20points", "/var/check points"),
        (
            "redis://me:secret@host:6379/0?prefix=x&chunk=8MB&password=secret",
            "redis://host:6379/0?prefix=x&chunk=8MB",
        ),
        ("redis://:p%40ss@host/1", "redis://host/1"),
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("ftp://me:secret@host/folder?token=secret", "ftp://host/folder"),
        ("rocksdb:///var/rocks?chunk=1MB", "rocksdb:///var/rocks?chunk=1MB"),
    ],
)
def test_a_store_is_described_without_its_passwords(url: str, shown: str) -> None:
    assert describe_store(url) == shown


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://host/folder", "three slashes"),
        ("rocksdb://folder", "three slashes"),
        ("rocksdb:///folder?prefix=x", "no prefix"),
        ("redis://localhost/0?chunk=some", "8MB"),
        ("redis://localhost/0?chunk=1g", "takes 1 to"),
        ("nothing://host/folder", "fsspec knows"),
        ("/proc/nowhere/folder", "opening failed"),
        ("no_such_module:Store://x", "no_such_module.*PYTHONPATH"),
        ("json:JSONDecoder://x", "no class JSONDecoder that is derived from rr.Store"),
    ],
)
def test_a_wrong_url_says_what_to_give(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_store(url)


def test_a_users_store_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_import.py").write_text("1 / 0\n")
    opening = (
        "import riprap as rr\nclass Broken(rr.Store):\n    def __init__(self, url):\n        {}['token']\n"
    )
    (tmp_path / "broken_opening.py").write_text(opening)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(StoreError, match="module broken_import cannot be imported: ZeroDivisionError"):
        open_store("broken_import:Broken://x")
    with pytest.raises(StoreError, match="Broken cannot be opened: KeyError"):
        open_store("broken_opening:Broken://x")


@pytest.mark.parametrize(
    "url", ["{0}/s s", "file://{0}/s%20s", "rocksdb://{0}/s%20s", "rocksdb://{0}/s%20s?chunk=9"]
)
def test_a_local_store_is_where_its_url_says(url: str, tmp_path: Path) -> None:
    store = open_store(url.format(tmp_path))
    store.put("Sums", {"a": b"1"})
    store.close()
    assert any((tmp_path / "s s").iterdir())
    assert content(open_store(store.url)) == {"Sums": {"a": b"1"}}


@pytest.mark.parametrize("kind", ["redis", "rocksdict"])
def test_a_missing_library_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    url = "redis://localhost/0" if kind == "redis" else f"rocksdb://{tmp_path}/rocks"
    with pytest.raises(StoreError, match=r"pip install 'riprap\["):
        open_store(url)


def test_a_store_for_reading_refuses_the_rest(tmp_path: Path) -> None:
    store = open_store(tmp_path / "folder")
    store.put("Sums", {"a": b"1"})
    reader = open_store(store.url, readonly=True)
    assert content(reader) == {"Sums": {"a": b"1"}}
    for change in (
        lambda: reader.put("Sums", {"a": b"2"}),
        lambda: reader.delete("Sums", ["a"]),
        lambda: reader.drop("Sums"),
    ):
        with pytest.raises(StoreError, match="for reading only"):
            change()
    shutil.rmtree(tmp_path / "folder")
    with pytest.raises(StoreError, match="mounted"):
        open_store(store.url, readonly=True).keys("Sums")
