"""Packs and chunks that are not as they were written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.redis import Redis

from riprap.errors import CorruptValueError, FormatError
from riprap.state.stores import Store, open_store, packs
from riprap.state.stores.chunks import Head
from riprap.state.stores.packs import PackName, make_pack, read_index

VALUES = {"a": b"first" * 30, "b": b"", "c": b"third" * 7}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "store")
    store.put("Sums", {"old": b"old"})
    store.put("Sums", VALUES)
    return tmp_path / "store"


def pack_of(folder: Path) -> Path:
    return sorted((folder / "Sums").iterdir())[-1]


def check_the_rest(store: Store) -> None:
    assert store.get("Sums", "old").to_pybytes() == b"old"
    assert store.keys("Sums")[-1] == "old"
    assert store.entries() == ["Sums"]


def test_a_pack_cut_short_anywhere(folder: Path) -> None:
    pack = pack_of(folder)
    whole = pack.read_bytes()
    for length in range(len(whole)):
        pack.write_bytes(whole[:length])
        store = open_store(folder)
        for key in VALUES:
            with pytest.raises(CorruptValueError, match=pack.name):
                store.get("Sums", key)
        check_the_rest(store)
    pack.write_bytes(whole + b"x")
    with pytest.raises(CorruptValueError, match="instead of"):
        open_store(folder).get("Sums", "a")


def test_a_bit_flipped_anywhere(folder: Path) -> None:
    pack = pack_of(folder)
    whole = pack.read_bytes()
    index = whole.index(b"}") + 1
    damaged = 0
    for place in range(len(whole)):
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        store = open_store(folder)
        try:
            found = {key: store.get("Sums", key).to_pybytes() for key in VALUES}
        except CorruptValueError:
            damaged += 1
        else:
            # Values have no checksum here: who stores them knows what they should be.
            assert place >= index
            assert [len(value) for value in found.values()] == [len(value) for value in VALUES.values()]
        check_the_rest(store)
    assert damaged >= index


def test_damage_after_the_index_was_read(folder: Path) -> None:
    store = open_store(folder)
    assert store.get("Sums", "a").to_pybytes() == VALUES["a"]
    whole = pack_of(folder).read_bytes()
    pack_of(folder).write_bytes(whole[:-20])
    with pytest.raises(CorruptValueError, match="instead of"):
        store.get("Sums", "a")
    pack_of(folder).write_bytes(b"")
    with pytest.raises(CorruptValueError, match="instead of"):
        store.get("Sums", "a")
    check_the_rest(store)


def test_a_damaged_entry_can_be_written_to_and_dropped(folder: Path) -> None:
    pack_of(folder).write_bytes(b"nonsense")
    store = open_store(folder)
    store.put("Sums", {"a": b"again"})
    assert open_store(folder).get("Sums", "a").to_pybytes() == b"again"
    store.delete("Sums", ["a", "old"])
    assert store.entries() == ["Sums"], "the damaged pack is kept for those who want to look"
    store.drop("Sums")
    assert store.entries() == []
    with pytest.raises(KeyError):
        store.get("Sums", "a")


def test_a_pack_of_a_later_version_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "FORMAT", "riprap-pack/2")
    open_store(folder).put("New", {"a": b"1"})
    monkeypatch.undo()
    store = open_store(folder)
    with pytest.raises(FormatError, match=r"riprap-pack/2.*riprap-pack/1"):
        store.get("New", "a")
    store.drop("New")
    check_the_rest(store)


def test_packs_behind_fsspec_are_checked_too(folder: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.pack")}
    for name, data in files.items():
        memory.pipe_file(f"/damage/{name}", data)
    store = open_store("memory://damage")
    assert {key: store.get("Sums", key).to_pybytes() for key in VALUES} == VALUES
    newest = max(files)
    memory.pipe_file(f"/damage/{newest}", files[newest][:-20])
    with pytest.raises(CorruptValueError):
        open_store("memory://damage").get("Sums", "a")
    check_the_rest(open_store("memory://damage"))
    memory.rm("/damage", recursive=True)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=90), st.binary(max_size=200), max_size=30),
    st.sets(st.text("xyz", min_size=1, max_size=5)),
)
def test_a_pack_is_read_as_it_was_made(values: dict[str, bytes], gone: set[str]) -> None:
    name = PackName(7, "0123456789ab")
    made, pieces = make_pack(name, values, gone)
    data = b"".join(pieces)
    read = read_index(name, data, len(data), "it")
    assert (read.values, read.gone, read.size) == (made.values, gone, len(data))
    assert {key: data[at : at + size] for key, (at, size) in read.values.items()} == values
    assert all(at % 64 == 0 for at, _ in read.values.values())
    assert PackName.parse(str(name)) == name


def test_values_are_mapped_where_they_lie(folder: Path) -> None:
    before = pa.total_allocated_bytes()
    store = open_store(folder)
    store.put("Sums", {"large": bytes(10_000_000)})
    value = store.get("Sums", "large")
    assert value.address % 64 == 0
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([b"12345", b"12345"], "chunk 1 of 3 is missing"),
        ([b"12345", b"1234", b"12"], "chunk 1 of 3 has 4 bytes instead of 5"),
        ([b"12345", b"12345", b"123"], "chunk 2 of 3 has 3 bytes instead of 2"),
    ],
)
def test_chunks_that_do_not_make_the_value(chunks: list[bytes | None], message: str) -> None:
    head = Head("stamp", 12, 5)
    if len(chunks) == 2:
        chunks.insert(1, None)
    with pytest.raises(CorruptValueError, match=message):
        head.join(chunks, "it")


def test_damage_in_redis(redis: Redis) -> None:
    import redis as client

    prefix = redis.prefix()
    server = client.Redis.from_url(redis.url)
    store = open_store(f"{redis.url}?prefix={prefix}&chunk=10")
    store.put("Sums", {"a": b"a" * 25, "b": b"b", "c": b"c"})
    (gone, *_) = [name for name in server.keys(f"{prefix}:chunk:Sums:a:*") if name.endswith(b":1")]
    server.delete(gone)
    with pytest.raises(CorruptValueError, match="'a' of entry 'Sums': chunk 1 of 3 is missing"):
        store.get("Sums", "a")
    server.hset(f"{prefix}:entry:Sums", "b", "nonsense")
    with pytest.raises(CorruptValueError, match="head"):
        store.get("Sums", "b")
    other = Head("stamp", 1, 10).encode().replace(b"value/1", b"value/2")
    server.hset(f"{prefix}:entry:Sums", "b", other)
    with pytest.raises(FormatError, match="riprap-value/2"):
        store.get("Sums", "b")
    assert store.get("Sums", "c").to_pybytes() == b"c"
    store.put("Sums", {"a": b"again", "b": b"again"})
    assert store.get("Sums", "b").to_pybytes() == b"again"
    store.drop("Sums")
    assert not server.keys(f"{prefix}:*")
    store.close()
    server.close()
