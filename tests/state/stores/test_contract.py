"""What every store promises, against a dict."""

from __future__ import annotations

import random
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.state.stores.kinds import CHUNK, KINDS, Open, opener

from riprap.errors import StoreError
from riprap.state.stores import Store, describe_store, files, open_store


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


def test_an_empty_store_has_nothing(reopen: Open) -> None:
    store = reopen()
    store.delete("Sums", ["a"])
    store.drop("Sums")
    store.put("Sums", {})
    assert store.entries() == [] == store.keys("Sums")
    with pytest.raises(KeyError, match="a"):
        store.get("Sums", "a")


def test_values_of_all_sizes_come_back(reopen: Open) -> None:
    sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK + 3, 300_000]
    values = {f"v.{size}_{n}-x": random.Random(n).randbytes(size) for n, size in enumerate(sizes)}

    store = reopen()
    store.put("App.0/Sums", values)

    assert content(store) == {"App.0/Sums": values}
    assert content(reopen()) == {"App.0/Sums": values}


def test_every_kind_of_buffer_can_be_put(reopen: Open) -> None:
    numbers = pa.array(range(2000), pa.int64())
    store = reopen()
    store.put(
        "Sums",
        {
            "bytes": b"abc",
            "view": memoryview(b"xabcx")[1:4],
            "wide": memoryview(numbers.buffers()[1]).cast("B").cast("q"),
            "arrow": numbers.buffers()[1],
        },
    )
    assert store.get("Sums", "bytes") == pa.py_buffer(b"abc") == store.get("Sums", "view")
    assert store.get("Sums", "arrow").equals(numbers.buffers()[1])
    assert store.get("Sums", "wide").equals(numbers.buffers()[1])


def test_a_value_that_was_read_outlives_its_key(reopen: Open) -> None:
    store = reopen()
    first = random.Random(1).randbytes(3 * CHUNK)
    store.put("Sums", {"a": first})
    read = store.get("Sums", "a")

    store.put("Sums", {"a": b"other"})
    store.drop("Sums")
    store.close()

    assert read.to_pybytes() == first


def test_a_deleted_key_does_not_bring_an_older_value_to_light(reopen: Open) -> None:
    store = reopen()
    store.put("Sums", {"a": b"1", "b": b"1"})
    store.put("Sums", {"a": b"2"})
    store.delete("Sums", ["a"])
    assert content(store) == {"Sums": {"b": b"1"}}
    assert content(reopen()) == {"Sums": {"b": b"1"}}


def test_entries_are_apart(reopen: Open) -> None:
    store = reopen()
    store.put("A", {"k": b"a"})
    store.put("AA", {"k": b"aa"})
    store.put(".A", {"k": b".a"})
    store.put("A/A", {"k": b"a/a"})
    store.drop("A")
    assert content(store) == {"AA": {"k": b"aa"}, ".A": {"k": b".a"}, "A/A": {"k": b"a/a"}}


@pytest.mark.parametrize("key", ["", "a/b", "a b", "ä", "a:b", "a" * 201, "a\n"])
def test_other_keys_are_refused(tmp_path: Path, key: str) -> None:
    store = open_store(tmp_path)
    for use in (store.get, lambda entry, key: store.put(entry, {key: b""})):
        with pytest.raises(ValueError, match="key"):
            use("Sums", key)
    with pytest.raises(ValueError, match="entry"):
        store.keys(key.replace("/", ":"))


_KEY = st.sampled_from([f"k{n}" for n in range(6)])
_VALUE = st.tuples(st.sampled_from([0, 1, 50, CHUNK, 3 * CHUNK + 1]), st.integers(0, 255))
_STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("AB"), st.dictionaries(_KEY, _VALUE, max_size=4)),
    st.tuples(st.just("delete"), st.sampled_from("AB"), st.lists(_KEY, max_size=4)),
    st.tuples(st.just("drop"), st.sampled_from("AB"), st.none()),
    st.tuples(st.just("reopen"), st.just(""), st.none()),
)


def follow(reopen: Open, steps: list[tuple[str, str, object]]) -> None:
    """Take the steps with a store and with a dict, and compare the two after each."""
    store = reopen()
    for entry in store.entries():
        store.drop(entry)
    model: dict[str, dict[str, bytes]] = {}
    for what, entry, argument in steps:
        if what == "put":
            assert isinstance(argument, dict)
            values = {key: bytes([byte]) * size for key, (size, byte) in argument.items()}
            store.put(entry, values)
            model.setdefault(entry, {}).update(values)
        elif what == "delete":
            assert isinstance(argument, list)
            store.delete(entry, argument)
            for key in argument:
                model.get(entry, {}).pop(key, None)
        elif what == "drop":
            store.drop(entry)
            model.pop(entry, None)
        else:
            store = reopen()
        assert content(store) == {e: values for e, values in model.items() if values}
    assert content(reopen()) == {e: values for e, values in model.items() if values}


_LASTING = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_LASTING
@given(steps=st.lists(_STEP, max_size=20))
def test_a_store_is_a_dict_that_lasts(reopen: Open, steps: list[tuple[str, str, object]]) -> None:
    follow(reopen, steps)


@pytest.mark.parametrize("reopen", ["memory"], indirect=True)
@settings(_LASTING, max_examples=200)
@given(steps=st.lists(_STEP, min_size=5, max_size=40))
def test_packs_are_a_dict_that_lasts(reopen: Open, steps: list[tuple[str, str, object]]) -> None:
    follow(reopen, steps)


def test_threads_may_share_a_store(reopen: Open) -> None:
    store = reopen()
    store.put("Sums", {"fixed": b"f" * 3 * CHUNK})
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for n in range(8):
                store.put("Sums", {f"{name}{n}": name.encode() * n, "shared": name.encode() * 2500})
                assert store.get("Sums", "fixed").size == 3 * CHUNK
                assert len(set(store.get("Sums", "shared").to_pybytes())) == 1
                store.delete("Sums", [f"{name}{n - 1}"] if n % 2 else [])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    odd = {f"{name}{n}" for name in "abc" for n in range(1, 8, 2)}
    assert set(store.keys("Sums")) == {"fixed", "shared"} | odd


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
