"""A version of an operator's state as tables for people: keys by name, and the tuples each holds, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.errors import CorruptValueError
from riprap.runtime.checkpointing.inspection import About
from riprap.stage.plan import is_clock
from riprap.state.checkpoints.restoring import Restored, Warn, restore
from riprap.state.checkpoints.versions import Versions
from riprap.state.keys import KeyTable, join_tables
from riprap.state.windows import Contents, gather, keys_in, ranges

# What the pages of an operator with objects of the user's hold.
_OBJECT, _TOKEN = "object", "token"
ShowObject = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class SlotContents:
    """What the keys of a slot hold, with names for the key's columns and the tuples' fields."""

    keys: KeyTable
    contents: Contents
    key_names: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def tuples(self) -> int:
        return len(self.contents.tuples)

    @property
    def objects(self) -> bool:
        """Whether it holds objects of the user's, pickled."""
        return _OBJECT in self.names and _TOKEN in self.names

    def key_of(self, code: int) -> dict[str, Any]:
        """Return a key by the names of its columns."""
        columns = zip(self.key_names, self.keys.columns, strict=True)
        return {name: column[code].as_py() for name, column in columns}

    def in_order(self) -> Ints:
        """Return the codes of the keys in order of key, for people; they are kept in order of hash."""
        if not self.keys.columns:
            return np.arange(len(self.keys))
        table = pa.table(list(self.keys.columns), names=[str(n) for n in range(len(self.keys.columns))])
        order: Ints = pc.sort_indices(table, [(name, "ascending") for name in table.column_names]).to_numpy()
        return order.astype(np.int64)

    def table(self, show: ShowObject | None = None) -> pa.Table:
        """Return a row for each tuple, and one for each key that holds none.

        The columns are the key's, ``held``, ``counters``, ``nr`` (1 is the oldest) and the tuples'. Of an object there
        is its size, and what ``show`` makes of it.
        """
        order = self.in_order()
        lengths = self.contents.lengths[order]
        rows = np.maximum(lengths, 1)
        codes = np.repeat(order, rows)
        place = ranges(np.zeros_like(rows), rows)
        none = np.repeat(lengths == 0, rows)
        index = pa.array(self.contents.offsets[codes] + place, mask=none)
        columns = {n: c.take(pa.array(codes)) for n, c in zip(self.key_names, self.keys.columns, strict=True)}
        columns["held"] = pa.array(np.repeat(lengths, rows))
        width = self.contents.counters.shape[1]
        counters = self.contents.counters[codes].ravel()
        columns["counters"] = pa.FixedSizeListArray.from_arrays(pa.array(counters), width)
        columns["nr"] = pa.array(place + 1, mask=none)
        for name, column in self.fields(show).items():
            columns[f"{name} (tuple)" if name in columns else name] = column.take(index)
        return pa.table(columns)

    def fields(self, show: ShowObject | None = None) -> dict[str, pa.Array]:
        """Return the fields of all tuples by name; of an object its size, and what ``show`` makes of it."""
        tuples = self.contents.tuples
        fields = {name: tuples.field(number) for number, name in enumerate(self.names)}
        if not self.objects:
            return fields
        saved = fields[_OBJECT]
        shown = {"object": pa.array([show(each.as_py()) for each in saved], pa.string())} if show else {}
        return {"bytes": pc.binary_length(saved), **shown}


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A version of an operator's state, slot by slot."""

    restored: Restored
    slots: Mapping[str, SlotContents]


def read_state(
    versions: Versions, about: About, version: int, warn: Warn, *, key: str | None = None
) -> StateVersion:
    """Read a version; ``key`` is the text of the one key that is wanted. Damage is left out, and told of."""
    manifest = versions.manifest(version)
    restored = restore(
        versions,
        layout=manifest.layout,
        lost_until=None,
        # Nothing is loaded here: seals are looked at as far as there is a key.
        sealed=about.objects and versions.keyed,
        whole=about.whole,
        version=version,
        warn=warn,
    )
    if restored is None:
        raise CorruptValueError(
            f"version {version} of '{about.name}' cannot be read. 'riprap state verify' says what of it is damaged"
        )
    slots = {
        slot.removeprefix(f"{about.operator}/"): _holding(pages, about, key)
        for slot, pages in restored.slots.items()
        if not is_clock(slot)
    }
    return StateVersion(restored, slots)


def _holding(pages: Sequence[pa.RecordBatch], about: About, key: str | None) -> SlotContents:
    full = [page for page in pages if page.num_rows]
    if not full:
        nothing = Contents(np.zeros(1, np.int64), pa.array([], pa.struct([])), np.zeros((0, 1), np.int64))
        return SlotContents(KeyTable(np.empty(0, np.uint64), (), np.empty(0, bool)), nothing, (), ())
    keys, _ = join_tables([keys_in(page) for page in full])
    if key is not None:
        texts = key_texts(keys)
        keys = keys.take(np.array([code for code, text in enumerate(texts) if text == key], np.int64))
    layout = full[0].column("window").type.value_type
    width = full[0].column("counters").type.list_size
    contents = gather(full, keys, layout, width)
    # What a row says of a key that holds nothing is that it holds nothing.
    occupied = np.flatnonzero((contents.lengths > 0) | contents.counters.any(axis=1))
    if len(occupied) < len(keys):
        offsets = np.append(contents.offsets[occupied], contents.offsets[-1])
        keys, contents = keys.take(occupied), Contents(offsets, contents.tuples, contents.counters[occupied])
    columns = len(keys.columns)
    named = about.key if len(about.key) == columns else tuple(f"k{number}" for number in range(columns))
    return SlotContents(keys, contents, named, tuple(about.columns.get(f.name, f.name) for f in layout))


def key_texts(keys: KeyTable) -> list[str]:
    """Write keys as ``--key`` takes them: their columns with commas between.

    >>> from riprap.state.keys import encode_keys
    >>> key_texts(encode_keys([pa.array(["a"]), pa.array([1])], 1)[0])
    ['a,1']
    """
    if not keys.columns:
        return [""] * len(keys)
    columns = (["null" if v is None else str(v) for v in column.to_pylist()] for column in keys.columns)
    return [",".join(values) for values in zip(*columns, strict=True)]
