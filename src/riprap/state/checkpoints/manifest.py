"""A checkpoint's manifest: written last, it says which values make up one version of an operator's state.

Under the key ``manifest-0000000012`` in the operator's entry of the store, a line of JSON and then JSON under zlib:

    {"format": "riprap-checkpoint/2", "digest": "...", "seal": "..."}       of what follows, as it is stored

    {"operator": "sums", "layout": "sliding(5 tuples) by ticker, ...",      what the state is of
     "version": 12, "time": 1731690000.0, "batch": 41, "buckets": 8,        when it was so
     "rate": 5120.0,                                                        tuples a second that came in
     "slots": {"0": [{"name": "9f...", "size": 46080,                      a value, named after its content
                      "groups": 1, "tuples": 512,                           how many it has
                      "buckets": [0, 4], "since": ..., "until": ...,        its tuples came in between these times
                      "over": 17.5,                                         or, with none in between, see below
                      "seal": "..."}]}}                                     HMAC of the value, where a key is configured

The values of a slot are newest first, for each range of buckets. One that is the whole state of some moment, because
its run was taken up again, has no time between ``since`` and ``until``: nobody knows when its tuples came in. It has
the counts, by key, of the version before it instead, and ``over`` how many seconds those were.

Where a key is configured, the manifest has a seal too, made for its entry and its version: a value that was sealed once
cannot be named by another's manifest, nor a manifest be put under another number. Format 1 is the same without ``over``
and without that seal, and can be read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riprap.errors import CorruptValueError, FormatError
from riprap.state.checkpoints.groups import digest
from riprap.state.durable_files import fields_of

FORMAT = "riprap-checkpoint/2"
_KNOWN = (FORMAT, "riprap-checkpoint/1")
_PREFIX = "manifest-"
# A part of it is digests, which do not get smaller: the quickest will do.
_LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A value in the store, and what it has: tuples of a range of buckets that came in between two times.

    ``over`` is of the whole state of some moment: how many seconds the counts are of that it has from before.
    """

    name: str
    size: int
    groups: int
    tuples: int
    buckets: tuple[int, int]
    since: float
    until: float
    seal: str | None = None
    over: float | None = None

    @property
    def seconds(self) -> float:
        """Over how long the tuples it has counts of came in, 0 if nobody knows."""
        return self.until - self.since or self.over or 0.0

    @property
    def begin(self) -> float:
        """When its counts began."""
        return self.until - self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """One version of an operator's state."""

    operator: str
    layout: str
    version: int
    time: float
    batch: int
    buckets: int
    rate: float
    slots: Mapping[str, tuple[Saved, ...]] = field(default_factory=dict)
    seal: str | None = None

    @property
    def key(self) -> str:
        return manifest_key(self.version)

    @property
    def values(self) -> dict[str, Saved]:
        """The values it names."""
        return {saved.name: saved for slot in self.slots.values() for saved in slot}

    @property
    def size(self) -> int:
        return sum(saved.size for saved in self.values.values())

    @property
    def tuples(self) -> int:
        return sum(saved.tuples for saved in self.values.values())

    def to_bytes(self, seal: Callable[[bytes], str | None] = lambda body: None) -> bytes:
        """Write it down, sealed by what ``seal`` returns for its body."""
        fields = {
            "operator": self.operator,
            "layout": self.layout,
            "version": self.version,
            "time": self.time,
            "batch": self.batch,
            "buckets": self.buckets,
            "rate": self.rate,
            "slots": {slot: [_to_entry(saved) for saved in listed] for slot, listed in self.slots.items()},
        }
        body = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), _LEVEL)
        head = {"format": FORMAT, "digest": digest(body), "seal": seal(body)}
        return json.dumps({k: v for k, v in head.items() if v is not None}).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointManifest:
        """Read a manifest; one that is damaged, or of another format, is an error."""
        head, _, body = data.partition(b"\n")
        try:
            heading = json.loads(head)
            if heading["format"] not in _KNOWN:
                raise FormatError(
                    f"a checkpoint's manifest is of format {heading['format']!r}, not {FORMAT!r}"
                )
            if heading["digest"] != digest(body):
                raise CorruptValueError("a checkpoint's manifest does not have its digest: it is damaged")
            fields = json.loads(zlib.decompress(body))
            slots = {name: tuple(map(_from_entry, listed)) for name, listed in fields["slots"].items()}
            return cls(**{**fields, "slots": slots, "seal": heading.get("seal")})
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise CorruptValueError(f"a checkpoint's manifest is damaged: {error!r}") from error


def _to_entry(saved: Saved) -> dict[str, Any]:
    return {name: value for name, value in fields_of(saved).items() if value is not None}


def _from_entry(fields: Mapping[str, Any]) -> Saved:
    low, high = fields["buckets"]
    return Saved(**{**fields, "buckets": (low, high)})


def manifest_key(version: int) -> str:
    """Return the key that a version's manifest has in the store."""
    return f"{_PREFIX}{version:010d}"


def version_of(key: str) -> int | None:
    """Return the version whose manifest has a key, None if it is the key of a value."""
    return int(key.removeprefix(_PREFIX)) if key.startswith(_PREFIX) else None
