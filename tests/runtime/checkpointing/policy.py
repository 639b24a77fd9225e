"""The policy, plainly: what an operator's state is after it was restored, tuple by tuple.

The test keeps every tuple an operator holds with the time it came in. Of a checkpoint it knows the state as it was, and
from the manifest which values there are and between which times their tuples came in; nothing else of what was stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from riprap.state.checkpoints.manifest import CheckpointManifest, Saved

Key = Hashable
Harm = Mapping[str, str]


class Held(NamedTuple):
    """What an operator holds: a tuple, and when the batch it came in with was put on record."""

    time: float
    what: Any


# By slot and key, oldest first.
Slots = dict[str, dict[Key, list[Held]]]


@dataclass(frozen=True)
class Expected:
    """What a restore is to come to."""

    version: int
    batch: int
    slots: Slots
    damaged: int
    stale: int

    @property
    def tuples(self) -> int:
        return sum(len(held) for keys in self.slots.values() for held in keys.values())


@dataclass
class Version:
    """A checkpoint: its manifest, and the operator's state at the time."""

    manifest: CheckpointManifest
    slots: Slots


@dataclass
class Book:
    """The checkpoints of an operator.

    ``bucket`` says where a key is. An operator that is ``whole`` comes back undamaged, or from an older version.
    """

    bucket: Callable[[Key], int]
    slides: Collection[str]
    whole: bool
    versions: dict[int, Version] = field(default_factory=dict)
    history: dict[float, Slots] = field(default_factory=dict)
    # What was saved whole at some moment has the counts of a version before it.
    before: dict[tuple[str, str], Version | None] = field(default_factory=dict)

    def batch(self, time: float, slots: Slots) -> None:
        """Note what the state is after a batch that was put on record at some time."""
        self.history[time] = copy.deepcopy(slots)

    def add(self, manifest: CheckpointManifest, slots: Slots, there: Collection[int], harm: Harm) -> None:
        """Note a checkpoint that is in the store now, and which versions, and harm, there were before it."""
        for slot, values in manifest.slots.items():
            for value in values:
                if value.since == value.until and (slot, value.name) not in self.before:
                    last = self._last(slot, there, harm) if slot in self.slides else None
                    assert (value.over is None) == (last is None), "what can be known of the time before is"
                    self.before[slot, value.name] = last
        self.versions[manifest.version] = Version(manifest, copy.deepcopy(slots))

    def _last(self, slot: str, there: Collection[int], harm: Harm) -> Version | None:
        """Find the newest version of which one can tell how fast a slot was filled."""
        for number in sorted(there, reverse=True):
            version = self.versions[number]
            counted = {v.name for v in version.manifest.slots[slot] if v.seconds}
            if version.manifest.key not in harm and counted and "gone" not in {harm.get(n) for n in counted}:
                return version
        return None

    def expect(self, there: Collection[int], harm: Harm, lost_until: float) -> Expected | None:
        """Say what comes back, if these versions are there; ``harm`` says what was done to which keys of the store:

        "broken": a manifest cannot be read; "gone": nothing of a value can; "damaged": its tuples cannot.
        """
        for number in sorted(there, reverse=True):
            version = self.versions[number]
            if version.manifest.key not in harm and not self._useless(version.manifest, harm):
                return self._restored(version, harm, lost_until)
        return None

    def _useless(self, manifest: CheckpointManifest, harm: Harm) -> bool:
        found = {harm[name] for name in manifest.values if name in harm}
        return "gone" in found or (self.whole and bool(found))

    def _restored(self, version: Version, harm: Harm, lost_until: float) -> Expected:
        manifest, slots = version.manifest, copy.deepcopy(version.slots)
        damaged = stale = 0
        for slot, keys in slots.items():
            for key, held in keys.items():
                bucket = self.bucket(key)
                values = [s for s in manifest.slots[slot] if s.buckets[0] <= bucket < s.buckets[1]]
                sound = [h for h in held if _value_of(h, values).name not in harm]
                lost = self._lost(slot, key, version, values, lost_until) if slot in self.slides else 0
                keys[key] = sound[lost:]
                damaged += len(held) - len(sound)
                stale += len(sound) - len(keys[key])
        return Expected(manifest.version, manifest.batch, slots, damaged, stale)

    def _lost(self, slot: str, key: Key, version: Version, values: list[Saved], lost_until: float) -> int:
        """Say how many tuples of a key lost input would have pushed out, at the rate the key had."""
        # Where the first version ever is of a state that was there before, nobody has counted.
        counted = [v for v in values if v.seconds]
        if not counted:
            return 0
        many = {v.name: self._came(slot, key, v) for v in counted}
        newest = values[0]
        if newest in counted and many[newest.name]:
            rate = many[newest.name] / newest.seconds
        else:
            span = max(v.until for v in counted) - min(v.begin for v in counted)
            rate = sum(many.values()) / span
        return round(rate * max(lost_until - version.manifest.time, 0.0))

    def _came(self, slot: str, key: Key, value: Saved) -> int:
        """Count the tuples of a key that came in while a value was filled: those each batch left in the state."""
        if value.over is not None:
            bucket, before = self.bucket(key), self.before[slot, value.name]
            values = before.manifest.slots[slot] if before is not None else ()
            return sum(
                self._came(slot, key, v)
                for v in values
                if v.seconds and v.buckets[0] <= bucket < v.buckets[1]
            )
        return sum(
            sum(h.time == time for h in slots[slot].get(key, []))
            for time, slots in self.history.items()
            if value.since < time <= value.until
        )


def _value_of(held: Held, values: list[Saved]) -> Saved:
    """Find the value that has a tuple: what was saved at once has all that came before."""
    (found,) = (v for v in values if (v.since < held.time <= v.until) or (v.since == v.until >= held.time))
    return found
