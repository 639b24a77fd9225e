"""What windows leave of themselves in the output log of their operator, and how that is found again.

A *window* is all that an operator keeps for a key. A batch leaves a record of each that opened in it (``OPEN``), that
closed with another open in its place (``AGAIN``), that was chosen (``CHECK``), and that closed (``CLOSED``): so of each
open window the newest record is in the log, with its state at the end of that batch. A control page has a row a record,
in order of hash:

    hash: uint64 | kind: int8 | before: int64 | key: struct<...> | <slot>:counters | <slot>:window | ...

``before`` is the batch of the record before it, -1 if there is none. Counters and window of each slot are as in pages
of state (`riprap.state.windows`), with all that the key holds. The operator's state has an index of its own: of each
open window the batch of its newest record, counted from 1, as a counter without tuples.

Read backwards, the first sight of a window counts, until as many are found as were open at the end (`read_back`). They
are a *recollection*: the same page with ``batch`` in place of ``before``, closed windows included, for as long as a
batch before they closed is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Bools, Ints
from riprap.errors import ChannelError
from riprap.state.hashing import Hashes
from riprap.state.keys import KeyTable, join_tables
from riprap.state.windows import (
    Contents,
    counters_of,
    gather,
    hashes_of,
    held_of,
    keys_in,
    look_up,
    make_page,
    window_of,
)

OPEN, AGAIN, CHECK, CLOSED = range(4)
KINDS = ("open", "again", "check", "closed")
StatePages = Sequence[pa.RecordBatch]
_NO_TUPLE = pa.struct([])
_COUNTERS, _WINDOW = ":counters", ":window"


@dataclass(frozen=True, slots=True)
class CheckOrder:
    """Which windows are to be recorded beside those that must be: at most so many, whose newest record is of a batch up
    to one."""

    upto: int = -1
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedState:
    """What a batch did to an operator's state, slot by slot: what came in with it, and all pages as they are now.

    ``records`` is the index as it was before, and ``reopens`` whether windows close and others open in their place.
    """

    fresh: Mapping[str, pa.RecordBatch]
    now: Mapping[str, StatePages]
    records: StatePages
    reopens: bool


@dataclass(frozen=True, slots=True)
class Footprints:
    """The records of a batch: as a control page, and what changes in the index."""

    control: pa.RecordBatch
    index: pa.RecordBatch


def find_footprints(touched: TouchedState, batch: int, order: CheckOrder = CheckOrder()) -> Footprints | None:
    """Record the windows that opened and closed in a batch, and those that are due; None if there are none."""
    parts, kinds = [], []
    if touched.fresh:
        keys, kind = _changed(touched)
        which = np.flatnonzero(kind >= 0)
        parts, kinds = [keys.take(which)], [kind[which]]
    own_alone = len(touched.now) == 1
    if order.most > 0:
        due = _due(touched.records, order, parts[0].hashes if parts else np.empty(0, np.uint64))
        if len(due):
            parts.append(due)
            kinds.append(np.full(len(due), CHECK, np.int8))
            own_alone = False
    # Without a key there is one window, and tables are not joined by it.
    parts, kinds = [p for p in parts if len(p)], [k for k in kinds if len(k)]
    if not parts:
        return None
    keys, kind = parts[0], kinds[0]
    if len(parts) > 1:
        keys, places = join_tables(parts)
        kind = np.empty(len(keys), np.int8)
        for place, each in zip(places, kinds, strict=True):
            kind[place] = each
    known = gather(touched.records, keys, _NO_TUPLE).counters[:, 0]
    # Of a window that has opened nothing is in older pages.
    now = {s: [touched.fresh[s]] for s in touched.now} if own_alone else touched.now
    control = _control_page(keys, kind, known - 1, now)
    index = np.where(kind == CLOSED, 0, batch + 1).reshape(-1, 1)
    return Footprints(control, _index_page(keys, index))


def _changed(touched: TouchedState) -> tuple[KeyTable, npt.NDArray[np.int8]]:
    """Return the keys that a batch touched, and which record is due of each; -1 for none."""
    tables = [keys_in(page) for page in touched.fresh.values()]
    keys = tables[0] if len(tables) == 1 else join_tables(tables)[0]
    known = gather(touched.records, keys, _NO_TUPLE).counters[:, 0] > 0
    has = np.zeros(len(keys), bool)
    for pages in touched.now.values():
        has |= holding(pages, keys.hashes)
    kind = np.full(len(keys), -1, np.int8)
    kind[has & ~known] = OPEN
    kind[known & ~has] = CLOSED
    if touched.reopens and len(touched.now) == 1:
        (page,) = touched.fresh.values()
        held, lengths = held_of(page), np.diff(window_of(page)[0])
        kind[has & known & (held > 0) & (lengths >= held)] = AGAIN
    return keys, kind


def holding(pages: StatePages, hashes: Hashes) -> Bools:
    """Say of keys whether they hold anything, in pages from the newest to the oldest."""
    unseen, has = np.ones(len(hashes), bool), np.zeros(len(hashes), bool)
    for page in pages:
        rows, places = look_up(hashes_of(page), hashes)
        first = unseen[places]
        rows, places = rows[first], places[first]
        unseen[places] = False
        has[places] = (held_of(page)[rows] > 0) | counters_of(page)[rows].any(axis=1)
        if not unseen.any():
            break
    return has


def _due(records: StatePages, order: CheckOrder, besides: Hashes) -> KeyTable:
    """Return the keys with the oldest records, of batches up to one, that are not recorded anyway."""
    if not records:
        return KeyTable(np.empty(0, np.uint64), (), np.empty(0, bool))
    hashes = np.concatenate([hashes_of(page) for page in records])
    batches = np.concatenate([counters_of(page)[:, 0] for page in records]) - 1
    # The first of equal ones is of the newest page.
    _, first = np.unique(hashes, return_index=True)
    first = first[(batches[first] >= 0) & (batches[first] <= order.upto)]
    first = first[~np.isin(hashes[first], besides)]
    if len(first) > order.most:
        first = first[np.argsort(batches[first], kind="stable")[: order.most]]
        first = first[np.argsort(hashes[first])]
    key = pa.concat_arrays([page.column("key") for page in records]).take(pa.array(first))
    columns = tuple(key.field(i) for i in range(key.type.num_fields))
    return KeyTable(hashes[first], columns, np.zeros(len(first), bool))


def _control_page(
    keys: KeyTable, kind: npt.NDArray[np.int8], before: Ints, now: Mapping[str, StatePages]
) -> pa.RecordBatch:
    """Put the records of some keys, in order of hash, into a page with all that they hold."""
    columns: dict[str, pa.Array] = {
        "hash": pa.array(keys.hashes),
        "kind": pa.array(kind),
        "before": pa.array(before),
    }
    for slot, pages in now.items():
        if not pages:
            continue
        layout, width = pages[0].column("window").type.value_type, pages[0].column("counters").type.list_size
        page = make_page(keys, gather(pages, keys, layout, width))
        columns["key"] = page.column("key")
        columns[slot + _COUNTERS], columns[slot + _WINDOW] = page.column("counters"), page.column("window")
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _index_page(keys: KeyTable, numbers: Ints) -> pa.RecordBatch:
    nothing = pa.Array.from_buffers(_NO_TUPLE, 0, [None])
    return make_page(keys, Contents(np.zeros(len(keys) + 1, np.int64), nothing, numbers))


def kinds_in(control: pa.RecordBatch) -> npt.NDArray[np.int8]:
    """Return the kind of each record of a control page, or of a recollection."""
    kinds: npt.NDArray[np.int8] = control.column("kind").to_numpy()
    return kinds


def numbers_in(page: pa.RecordBatch, column: str) -> Ints:
    """Return a column of whole numbers: ``before`` of a control page, ``batch`` of a recollection."""
    numbers: Ints = page.column(column).to_numpy()
    return numbers


@dataclass(slots=True)
class ReadBack:
    """Windows found so far in a log that is read backwards from the end of a batch, at which so many were ``open``."""

    open: int
    _pages: list[pa.RecordBatch] = field(default_factory=list)
    _batches: list[int] = field(default_factory=list)
    # How many rows there were when it was last looked how many windows that is.
    _looked: int = 0
    _found: int = 0

    def add(self, batch: int, control: pa.RecordBatch) -> None:
        """Add the records of a batch; those of newer batches have been added."""
        self._pages.append(control)
        self._batches.append(batch)

    @property
    def complete(self) -> bool:
        """Whether all windows are found. Looking takes time for all that was read, so it is done now and then."""
        rows = sum(page.num_rows for page in self._pages)
        if self._found < self.open and rows >= max(self.open, 2 * self._looked):
            self._look(rows)
        return self._found >= self.open

    def _look(self, rows: int) -> None:
        self._looked = rows
        kinds = np.concatenate([kinds_in(page) for page in self._pages])
        self._found = int(np.count_nonzero(kinds[self._first()] != CLOSED))

    def _first(self) -> Ints:
        """Return the rows with the first sight of each window, in order of hash."""
        hashes = [hashes_of(page) for page in self._pages]
        _, first = np.unique(np.concatenate(hashes) if hashes else np.empty(0, np.uint64), return_index=True)
        return first

    def recollect(self) -> tuple[int | None, pa.RecordBatch | None]:
        """Return the oldest batch of a window's record, and the windows; None if there are none.

        That fewer are found than there were is a ChannelError.
        """
        if not self.open:
            return None, None
        first = self._first()
        batches = np.repeat(self._batches, [page.num_rows for page in self._pages])[first]
        kinds = np.concatenate([kinds_in(page) for page in self._pages])[first]
        opened = kinds != CLOSED
        if int(opened.sum()) != self.open:
            raise ChannelError(f"{int(opened.sum())} open windows are found, and there were {self.open}")
        oldest = int(batches[opened].min())
        wanted = opened | (batches > oldest)
        rows = _alike(self._pages).take(pa.array(first[wanted]))
        columns = {name: rows.column(name) for name in rows.schema.names if name != "before"}
        columns["batch"] = pa.array(batches[wanted])
        return oldest, pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _alike(controls: StatePages) -> pa.RecordBatch:
    """Put control pages one after the other; where a slot is missing nothing was in it yet."""
    kinds = {field.name: field.type for page in reversed(controls) for field in page.schema}
    parts = []
    for page in controls:
        columns = [
            page.column(name) if name in page.schema.names else _nothing(kind, page.num_rows)
            for name, kind in kinds.items()
        ]
        parts.append(pa.RecordBatch.from_arrays(columns, list(kinds)))
    table = pa.Table.from_batches(parts).combine_chunks()
    batch: pa.RecordBatch = table.to_batches()[0]
    return batch


def _nothing(kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        zeros = pa.array(np.zeros(rows * kind.list_size, np.int64))
        return pa.FixedSizeListArray.from_arrays(zeros, kind.list_size)
    none = pa.array([], kind.value_type)
    return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), none)


def later(recollection: pa.RecordBatch, batch: int) -> Hashes:
    """Return, in order, the hashes of windows whose records hold a batch already, or a later one."""
    return hashes_of(recollection)[numbers_in(recollection, "batch") >= batch]


def pages_at(
    recollection: pa.RecordBatch, batch: int
) -> tuple[dict[str, pa.RecordBatch], pa.RecordBatch | None]:
    """Return pages of state, by slot, with the windows whose records are of a batch, and the page of the index."""
    chosen = (numbers_in(recollection, "batch") == batch) & (kinds_in(recollection) != CLOSED)
    rows = recollection.filter(pa.array(chosen))
    if not rows.num_rows:
        return {}, None
    pages = {}
    for name in rows.schema.names:
        if not name.endswith(_WINDOW):
            continue
        slot = name.removesuffix(_WINDOW)
        lengths = pc.list_value_length(rows.column(name)).cast(pa.int64())
        page = pa.RecordBatch.from_arrays(
            [
                rows.column("hash"),
                rows.column("key"),
                lengths,
                rows.column(slot + _COUNTERS),
                rows.column(name),
            ],
            ["hash", "key", "held", "counters", "window"],
        )
        full = (held_of(page) > 0) | counters_of(page).any(axis=1)
        pages[slot] = page if full.all() else page.filter(pa.array(full))
    hashes = hashes_of(rows)
    key = rows.column("key")
    columns = tuple(key.field(i) for i in range(key.type.num_fields))
    keys = KeyTable(hashes, columns, np.zeros(len(hashes), bool))
    index = _index_page(keys, np.full((len(hashes), 1), batch + 1))
    return {slot: page for slot, page in pages.items() if page.num_rows}, index
