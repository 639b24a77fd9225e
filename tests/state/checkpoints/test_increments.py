"""Increments: whatever came in, slid out or was cleaned up, the durable state is the state."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.checkpoints.small_pages import contents_of, page_of

from riprap.errors import SealError
from riprap.state.checkpoints import increments
from riprap.state.checkpoints.groups import Table, cut, decode, encode
from riprap.state.checkpoints.increments import Fresh, SlotState
from riprap.state.checkpoints.index import Came, Index
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved
from riprap.state.checkpoints.restoring import Restored, restore
from riprap.state.checkpoints.versions import Versions
from riprap.state.stores import open_store

NAMES = ["a", "b", "c", "d", "e", "f"]


class Windows:
    """The newest few tuples of each key, plainly; and the page each batch would leave."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.contents: dict[str, list[int]] = {}
        self.next = 0

    def batch(self, keys: list[str], popped: list[str]) -> pa.RecordBatch | None:
        came: dict[str, list[int]] = {}
        for key in keys:
            came.setdefault(key, []).append(self.next)
            self.next += 1
        for key in popped:
            if self.contents.get(key):
                came.setdefault(key, [])
        if not came:
            return None
        held = {}
        for key, tuples in came.items():
            whole = [*self.contents.get(key, []), *tuples][-self.size :]
            if key in popped:
                whole = whole[1:]
            self.contents[key] = whole
            held[key] = len(whole)
        return page_of({k: t[max(0, len(t) - held[k]) :] for k, t in came.items()}, held)


def counts(page: pa.RecordBatch) -> Came:
    return Came.of(Index.of(page))


BATCHES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=12),
        st.lists(st.sampled_from(NAMES), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


class Durable:
    """A slot whose checkpoints go to a store."""

    def __init__(self, folder: Path, group: int | None) -> None:
        self.versions = Versions(open_store(folder), "app/sums")
        self.state = SlotState((0, 1), group, [])
        self.version = 0

    def checkpoint(self, fresh: list[pa.RecordBatch], time: float = 0.0) -> int:
        pages = [Fresh(page, time - 1, time) for page in reversed(fresh)]
        self.state, values = self.state.advance(pages, self.load)
        self.version += 1
        written = self.versions.put({"0": values})
        self.versions.commit(self.manifest(time))
        self.versions.collect(2)
        return written

    def manifest(self, time: float) -> CheckpointManifest:
        slots = {"0": tuple(k.saved for k in self.state.kept)}
        return CheckpointManifest(
            operator="sums",
            layout="l",
            version=self.version,
            time=time,
            batch=0,
            buckets=1,
            rate=1.0,
            slots=slots,
        )

    def load(self, saved: Saved) -> list[pa.RecordBatch]:
        found = self.versions.read(saved)
        assert found.whole
        return [g for g in found.groups if g is not None]

    def restore(self, **options: Any) -> Restored | None:
        given = {"layout": "l", "lost_until": None, "warn": lambda text: None, **options}
        return restore(self.versions, **given)


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, size=st.integers(1, 9), group=st.none() | st.integers(1, 4))
def test_what_is_restored_is_what_there_was(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, size: int, group: int | None
) -> None:
    durable, windows = Durable(tmp_path_factory.mktemp("store"), group), Windows(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(increments, "_NOT_WORTH", 3)
        patch.setattr(increments, "_MOST_VALUES", 6)
        patch.setattr(increments, "_MERGED_AT_ONCE", 3)
        fresh: list[pa.RecordBatch] = []
        for keys, popped, due in batches:
            page = windows.batch(keys, popped)
            if page is not None:
                fresh.append(page)
            if due:
                durable.checkpoint(fresh)
                fresh = []
                found = durable.restore()
                assert found is not None
                wanted = {name: windows.contents.get(name, []) for name in NAMES}
                assert contents_of(found.slots["0"], NAMES) == wanted
                assert found.tuples == sum(map(len, wanted.values()))
                assert len(durable.state.kept) <= 6


def test_a_group_that_only_lost_old_tuples_is_not_written_again(tmp_path: Path) -> None:
    durable, windows = Durable(tmp_path, 5), Windows(15)
    names = []
    for count in (13, 5, 5, 5, 5):
        page = windows.batch(["a"] * count, [])
        assert page is not None
        durable.checkpoint([page])
        names.append([k.saved.name for k in durable.state.kept])

    assert [len(n) for n in names] == [1, 2, 3, 3, 3], "13 tuples are gone once 15 more have come"
    for before, after in pairwise(names):
        assert after[1:] == before[: len(after) - 1]


def test_what_is_written_follows_what_comes_in_even_where_one_key_is_slow(tmp_path: Path) -> None:
    durable, windows = Durable(tmp_path, None), Windows(1000)
    written = entered = 0
    for step in range(60):
        page = windows.batch(["a"] * 900 + (["b"] * 100 if step == 0 else []) + ["c"] * 5, [])
        assert page is not None
        one = encode([cut(page, None)], counts(page)).data.size
        entered += one
        size = durable.checkpoint([page])
        written += size
    assert written <= 1.5 * entered
    assert sum(k.index.lengths.sum() for k in durable.state.kept) <= 3 * 2400 + 4096


@pytest.mark.parametrize("group", [2, None])
def test_a_damaged_group_costs_its_tuples_and_no_others(group: int | None) -> None:
    page = page_of({"a": [1, 2, 3, 4, 5], "b": [6, 7]})
    value = encode([cut(page, group)], counts(page))
    table = Table.read(value.data, value.name, value.groups)
    assert table is not None
    for number, block in enumerate(table.groups):
        data = bytearray(value.data.to_pybytes())
        data[block.offset + block.length // 2] ^= 4
        found = decode(pa.py_buffer(bytes(data)), value.name, value.groups)
        assert [g is None for g in found.groups] == [n == number for n in range(value.groups)]
        assert found.indexes is not None
        assert int(found.indexes[number].lengths.sum()) == block.tuples


def test_a_table_is_there_twice_and_damage_beyond_that_costs_the_value() -> None:
    page = page_of({"a": [1, 2, 3], "b": [4]})
    value = encode([cut(page, 2)], counts(page))
    size = 32 * (value.groups + 3)
    first, last = 3, value.data.size - 5
    assert value.data.slice(0, size).equals(value.data.slice(value.data.size - size))

    def harmed(*places: int) -> pa.Buffer:
        data = bytearray(value.data.to_pybytes())
        for place in places:
            data[place] ^= 8
        return pa.py_buffer(bytes(data))

    for place in (first, last):
        assert decode(harmed(place), value.name, value.groups).whole
        table = Table.read(harmed(place), value.name, value.groups)
        assert table is not None
        assert not table.twice
    lost = decode(harmed(first, last), value.name, value.groups)
    assert (lost.groups, lost.indexes) == ((None, None), None)
    assert decode(value.data.slice(0, size - 1), value.name, value.groups).indexes is None
    schema = decode(harmed(size + 20), value.name, value.groups)
    assert schema.groups == (None, None)
    assert schema.indexes is not None


def test_what_is_left_of_a_damaged_window_had_not_left_it(tmp_path: Path) -> None:
    durable, windows = Durable(tmp_path, 2), Windows(6)
    for count in (6, 4):
        page = windows.batch(["a"] * count + ["b"], [])
        assert page is not None
        durable.checkpoint([page])
    assert windows.contents["a"] == [4, 5, 7, 8, 9, 10]
    newest = durable.state.kept[0].saved
    pack = durable.versions.store.get("app/sums", newest.name).to_pybytes()
    data = bytearray(pack)
    table = Table.read(pa.py_buffer(pack), newest.name, newest.groups)
    assert table is not None
    data[table.groups[0].offset + table.groups[0].length - 20] ^= 1
    durable.versions.store.put("app/sums", {newest.name: bytes(data)})

    told: list[str] = []
    found = durable.restore(warn=told.append)

    assert found is not None
    assert contents_of(found.slots["0"], ["a", "b"]) == {"a": [4, 5, 7, 8], "b": [6, 11]}
    assert found.damaged == 2
    assert told == [f"2 tuples of value {newest.name} are damaged, and are left out"]
    assert durable.restore(whole=True, version=2) is None


def test_stale_tuples_go_at_each_keys_own_rate(tmp_path: Path) -> None:
    durable, windows = Durable(tmp_path, None), Windows(10)
    for time, keys in ((1.0, ["a"] * 4 + ["b"]), (2.0, ["a"] * 3 + ["c"] * 8), (3.0, ["a"] * 2)):
        page = windows.batch(keys, [])
        assert page is not None
        durable.checkpoint([page], time)
    wanted = {name: windows.contents[name] for name in "abc"}

    found = durable.restore(lost_until=4.5, slides={"0"})

    assert found is not None
    # a: 2 a second for 1.5 s; b: 1 in 3 s, so half a tuple, which rounds to none; c: 8 in 3 s.
    wanted = {"a": wanted["a"][3:], "b": wanted["b"], "c": wanted["c"][4:]}
    assert contents_of(found.slots["0"], ["a", "b", "c"]) == wanted
    assert found.stale == 7
    emptied = durable.restore(lost_until=100.0, slides={"0"})
    assert emptied is not None
    assert contents_of(emptied.slots["0"], ["a", "b", "c"]) == {"a": [], "b": [], "c": []}
    untouched = durable.restore(lost_until=100.0, slides=())
    assert untouched is not None
    assert untouched.stale == 0


def test_a_key_that_fills_its_window_over_and_over_is_emptied(tmp_path: Path) -> None:
    # Five of a hundred are left of each second; a slow key keeps all pages alive.
    durable, windows = Durable(tmp_path, None), Windows(5)
    pages = []
    for second in range(10):
        page = windows.batch(["fast"] * 100 + (["slow"] if second % 4 == 0 else []), [])
        assert page is not None
        pages.append(page)
    durable.state, values = durable.state.advance(
        [Fresh(page, float(n), n + 1.0) for n, page in reversed(list(enumerate(pages)))], durable.load
    )
    durable.version = 1
    durable.versions.put({"0": values})
    durable.versions.commit(durable.manifest(10.0))

    found = durable.restore(lost_until=13.0, slides={"0"})

    assert found is not None
    assert found.stale == 6
    slow = windows.contents["slow"]
    assert contents_of(found.slots["0"], ["fast", "slow"]) == {"fast": [], "slow": slow[1:]}


def test_a_whole_state_says_nothing_of_rates_when_it_is_cleaned_up_with_others(tmp_path: Path) -> None:
    durable = Durable(tmp_path, None)
    whole = page_of({"slow": list(range(50)), **{f"k{n}": list(range(40)) for n in range(200)}})
    durable.state, values = durable.state.advance([Fresh(whole, 5.0, 5.0)], durable.load)
    durable.versions.put({"0": values})
    for time in range(6, 12):
        tuples = {f"k{n}": list(range(40)) for n in range(200)}
        page = Fresh(page_of(tuples), time - 1.0, float(time))
        durable.state, values = durable.state.advance([page], durable.load)
        durable.versions.put({"0": values})
    assert len(durable.state.kept) < 3, "what is dead was to be cleaned up with what is not"
    durable.version = 1
    durable.versions.commit(durable.manifest(11.0))

    found = durable.restore(lost_until=41.0, slides={"0"})

    assert found is not None
    assert contents_of(found.slots["0"], ["slow", "k0"]) == {"slow": list(range(50)), "k0": []}


def test_a_damaged_manifest_falls_back_to_the_one_before(tmp_path: Path) -> None:
    durable, windows = Durable(tmp_path, None), Windows(3)
    for keys in (["a", "a"], ["a", "b"]):
        page = windows.batch(keys, [])
        assert page is not None
        durable.checkpoint([page])
    store = durable.versions.store
    store.put(
        "app/sums", {"manifest-0000000002": store.get("app/sums", "manifest-0000000002").to_pybytes()[:-9]}
    )

    told: list[str] = []
    found = restore(Versions(store, "app/sums"), layout="l", lost_until=None, warn=told.append)

    assert found is not None
    assert found.manifest.version == 1
    assert contents_of(found.slots["0"], ["a", "b"]) == {"a": [0, 1], "b": []}
    assert "version 2 cannot be used" in told[0]


def test_objects_are_read_only_with_their_seal(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    page = page_of({"a": [1]})
    value = encode([cut(page, None)], counts(page))
    sealing = Versions(store, "app/model", key=b"secret")
    saved = Saved(
        name=value.name,
        size=value.data.size,
        buckets=(0, 1),
        since=0.0,
        until=1.0,
        groups=value.groups,
        tuples=value.tuples,
        seal=sealing.seal(value.data),
    )
    sealing.put({"0": {value.name: value.data}})

    assert sealing.read(saved, sealed=True).whole
    with pytest.raises(
        SealError, match=f"value {saved.name} does not have the seal of the key in RIPRAP_KEY_FILE"
    ):
        Versions(store, "app/model", key=b"other").read(saved, sealed=True)
    store.put("app/model", {value.name: value.data.to_pybytes()[:-70]})
    assert not sealing.read(saved, sealed=True).whole, "damage is no matter of seals"


@pytest.mark.parametrize("seed", [1, 2])
def test_clean_ups_of_clean_ups_lose_nothing(tmp_path: Path, seed: int) -> None:
    random, names = Random(seed), [f"k{i}" for i in range(12)]
    durable, windows = Durable(tmp_path, None), Windows(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(increments, "_NOT_WORTH", 20)
        patch.setattr(increments, "_MOST_VALUES", 12)
        patch.setattr(increments, "_MERGED_AT_ONCE", 5)
        for _ in range(120):
            # The first keys get most of the tuples.
            page = windows.batch([names[min(11, int(random.expovariate(0.5)))] for _ in range(30)], [])
            assert page is not None
            durable.checkpoint([page])
            found = durable.restore()
            assert found is not None
            wanted = {name: windows.contents.get(name, []) for name in names}
            assert contents_of(found.slots["0"], names) == wanted
