"""Bringing back a version of an operator's state as pages, with what was damaged or has gone stale left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from riprap.arrays import Floats, Ints
from riprap.errors import CorruptValueError, FormatError, SealError
from riprap.state.checkpoints.groups import put_together
from riprap.state.checkpoints.index import Came, Index, Reckoning
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved
from riprap.state.checkpoints.versions import Versions
from riprap.state.hashing import Hashes
from riprap.state.seals import KEY_FILE
from riprap.state.windows import align, remake_page, restrict, window_of

# Values are read and verified by so many threads.
_AT_ONCE = 4
# Told of something to know about: what it is about, and what it means.
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Restored:
    """The state of an operator as pages by slot, newest first; how many tuples damage cost, and how many were stale."""

    manifest: CheckpointManifest
    slots: dict[str, list[pa.RecordBatch]]
    damaged: int = 0
    stale: int = 0

    @property
    def tuples(self) -> int:
        return sum(live_tuples(pages) for pages in self.slots.values())


def restore(
    versions: Versions,
    *,
    layout: str,
    lost_until: float | None,
    slides: Collection[str] = (),
    sealed: bool = False,
    whole: bool = False,
    version: int | None = None,
    warn: Warn,
    refuse: Warn | None = None,
) -> Restored | None:
    """Bring back the newest version that can be used, or a certain one; None if there is none.

    Input from the version's time up to ``lost_until`` was lost (None: none was): from the slots in ``slides``, which
    hold the newest tuples of each key, as many of the oldest go as would have been pushed out. ``whole`` is for state
    of which a part is worse than nothing: a version with any damage is passed over. So is one that is not ``sealed`` as
    it should be, of which ``refuse`` (or ``warn``) hears; but if it was for that that none is left, or if there is no
    key to check a seal with, it is an error: a key that is not the right one must not cost the state.
    """
    refusals: list[SealError] = []
    for damage in versions.store.damage(versions.entry):
        warn(f"versions, or values, may be missing: {damage}")
    for number in versions.numbers() if version is None else [version]:
        try:
            manifest = versions.manifest(number)
        except (CorruptValueError, FormatError) as error:
            warn(f"version {number} cannot be used: {error}")
            continue
        if manifest.layout != layout:
            warn(f"version {number} is of another state: {manifest.layout!r}, and here it is {layout!r}")
            continue
        try:
            if sealed:
                versions.check_seal(number)
            restored = _load(versions, manifest, lost_until, slides, sealed, whole, warn)
        except SealError as error:
            if not versions.keyed:
                raise
            refusals.append(error)
            (refuse or warn)(f"{error}: it is passed over, and the one before it tried")
            continue
        if restored is not None:
            return restored
    if refusals:
        raise SealError(
            f"no version in {versions.entry} that can be used is sealed as it should be: {refusals[0]}. Name the key "
            f"they were saved with in {KEY_FILE}, none if they were saved without one, or let the state go with "
            "--ignore-state"
        )
    return None


def _load(
    versions: Versions,
    manifest: CheckpointManifest,
    lost_until: float | None,
    slides: Collection[str],
    sealed: bool,
    whole: bool,
    warn: Warn,
) -> Restored | None:
    slots: dict[str, list[pa.RecordBatch]] = {}
    damaged = stale = 0
    for slot, listed in manifest.slots.items():
        pages: list[pa.RecordBatch] = []
        for buckets in dict.fromkeys(saved.buckets for saved in listed):
            values = [saved for saved in listed if saved.buckets == buckets]
            sound = _read_range(versions, values, sealed, warn)
            if sound is None or (sound.lost and whole):
                warn(f"version {manifest.version} cannot be used: a value of slot {slot} is damaged")
                return None
            damaged += sound.lost
            restricted = [restrict(page, *buckets, manifest.buckets) for page in sound.pages]
            gone = None
            if lost_until is not None and slot in slides and restricted:
                gone, count = _drop_stale(restricted, values, sound.came, lost_until - manifest.time)
                stale += count
            pages += [gone, *restricted] if gone is not None else restricted
        slots[slot] = pages
    return Restored(manifest, slots, damaged, stale)


@dataclass(frozen=True, slots=True)
class _Range:
    """The pages of a range of buckets, newest first; how many tuples came in with each value; how many damage cost."""

    pages: list[pa.RecordBatch]
    came: list[Came]
    lost: int


def _read_range(versions: Versions, values: Sequence[Saved], sealed: bool, warn: Warn) -> _Range | None:
    """Read the values of a slot and a range of buckets; None if nobody can tell what a damaged one held."""
    groups: list[tuple[pa.RecordBatch | None, Index]] = []
    came, pages = [], []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = list(pool.map(lambda saved: versions.read(saved, sealed=sealed), values))
    for saved, decoded in zip(values, read, strict=True):
        if decoded.indexes is None:
            return None
        if not decoded.whole:
            damaged = zip(decoded.groups, decoded.indexes, strict=True)
            bad = sum(int(index.lengths.sum()) for group, index in damaged if group is None)
            warn(f"{bad} tuples of value {saved.name} are damaged, and are left out")
        groups += zip(decoded.groups, decoded.indexes, strict=True)
        came.append(decoded.came or Came.of(Index.over(decoded.indexes)))
        sound = [group for group in decoded.groups if group is not None]
        if sound:
            pages.append(put_together(sound))
    if all(group is not None for group, _ in groups):
        return _Range(pages, came, 0)
    hashes, holds, lost = _left_of([(group is not None, index) for group, index in groups])
    cap = cap_page(pages, lambda wanted, _: _look_up(hashes, holds, wanted))
    return _Range([cap, *pages] if cap is not None else pages, came, lost)


def _left_of(groups: Sequence[tuple[bool, Index]]) -> tuple[Hashes, Ints, int]:
    """Say how many tuples each key has left, of groups newest first of which some are gone; and how many are lost."""
    reckoning = Reckoning.begin()
    hashes, holds, lost = np.empty(0, np.uint64), np.empty(0, np.int64), 0
    for reads, index in groups:
        before = dict(zip(reckoning.hashes.tolist(), reckoning.missing.tolist(), strict=True))
        use = reckoning.take(index)
        if not reads:
            lost += use.tuples
            continue
        first = index.held.tolist()
        live = np.array(
            [
                min(before.get(key, held), length)
                for key, held, length in zip(
                    index.hashes.tolist(), first, index.lengths.tolist(), strict=True
                )
            ],
            np.int64,
        )
        all_hashes, old, new = align(hashes, index.hashes)
        total = np.zeros(len(all_hashes), np.int64)
        total[old >= 0] += holds[old[old >= 0]]
        total[new >= 0] += live[new[new >= 0]]
        hashes, holds = all_hashes, total
    return hashes, holds, lost


def _look_up(hashes: Hashes, values: Ints, wanted: Hashes) -> Ints:
    """Return the values of wanted hashes, 0 where there is none."""
    picked = np.zeros(len(wanted), values.dtype)
    if len(hashes):
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        same = hashes[at] == wanted
        picked[same] = values[at[same]]
    return picked


def cap_page(pages: Sequence[pa.RecordBatch], limit: Callable[[Hashes, Ints], Ints]) -> pa.RecordBatch | None:
    """Make a page to put in front of others, that says which keys hold fewer tuples from now on; None if none does."""
    seen = np.empty(0, np.uint64)
    parts = []
    for page in pages:
        index = Index.of(page)
        seen, before, row = align(seen, index.hashes)
        rows = row[(before < 0) & (row >= 0)]
        held = np.minimum(limit(index.hashes[rows], index.held[rows]), index.held[rows])
        fewer = held < index.held[rows]
        none = window_of(page)[1].slice(0, 0)
        zeros = np.zeros(int(fewer.sum()), np.int64)
        parts.append(remake_page(page, rows[fewer], held[fewer], zeros, none))
    if not sum(part.num_rows for part in parts):
        return None
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    return whole.take(pa.array(np.argsort(whole.column("hash").to_numpy())))


def _drop_stale(
    pages: Sequence[pa.RecordBatch], values: Sequence[Saved], came: Sequence[Came], seconds: float
) -> tuple[pa.RecordBatch | None, int]:
    """Say which tuples lost input would have pushed out, at each key's own rate; and how many that is.

    A key's rate is that of the newest value if the key is in it, else that over all values.
    """
    pace = _pace(values, came)
    if pace is None:
        return None, 0
    whole = pace.came
    rates: Floats = whole.counts / pace.seconds
    if values[0].seconds:
        recent = came[0].counts > 0
        at = np.searchsorted(whole.hashes, came[0].hashes[recent])
        rates[at] = came[0].counts[recent] / values[0].seconds
    gone: Ints = np.round(rates * max(seconds, 0.0)).astype(np.int64)
    before = live_tuples(pages)
    cap = cap_page(pages, lambda wanted, held: np.maximum(held - _look_up(whole.hashes, gone, wanted), 0))
    return cap, 0 if cap is None else before - live_tuples([cap, *pages])


@dataclass(frozen=True, slots=True)
class Pace:
    """How many tuples of each key came in, over so many seconds."""

    came: Came
    seconds: float


def newest_pace(versions: Versions, slot: str, layout: str) -> Pace | None:
    """Say how fast a slot was filled before now, as far as a version of the same state knows."""
    for number in versions.numbers():
        try:
            manifest = versions.manifest(number)
        except (CorruptValueError, FormatError):
            continue
        values = [saved for saved in manifest.slots.get(slot, ()) if saved.seconds]
        read = [versions.read(saved) for saved in values]
        came = [d.came or Came.of(Index.over(d.indexes)) for d in read if d.indexes is not None]
        if manifest.layout == layout and values and len(came) == len(values):
            return _pace(values, came)
    return None


def _pace(values: Sequence[Saved], came: Sequence[Came]) -> Pace | None:
    """Add up what values have counts of: not all have, if protection began with a state that was there already."""
    counted = [(v, counts) for v, counts in zip(values, came, strict=True) if v.seconds]
    if not counted:
        return None
    span = max(v.until for v, _ in counted) - min(v.begin for v, _ in counted)
    return Pace(Came.over([counts for _, counts in counted]), span)


def live_tuples(pages: Sequence[pa.RecordBatch]) -> int:
    """Count the tuples that some pages, newest first, hold."""
    reckoning = Reckoning.begin()
    return sum(reckoning.take(Index.of(page)).tuples for page in pages)
