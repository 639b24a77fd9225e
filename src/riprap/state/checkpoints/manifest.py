"""A checkpoint's manifest: written last, it says which values make up one version of an operator's state.

Under the key ``manifest-0000000012`` in the operator's entry of the store, a line of JSON and then JSON under zlib:

    {"format": "riprap-checkpoint/1", "digest": "..."}                      of what follows, as it is stored

    {"operator": "sums", "layout": "sliding(5 tuples) by ticker, ...",      what the state is of
     "version": 12, "time": 1731690000.0, "batch": 41, "buckets": 8,        when it was so
     "rate": 5120.0,                                                        tuples a second that came in
     "slots": {"0": [{"name": "9f...", "header": 512,                      a value, named after its content
                      "buckets": [0, 4], "since": ..., "until": ...,        its tuples came in between these times
                      "groups": [[20480, "...", 512]],                      length, digest and tuples of each
                      "index": [640, "..."],                                length and digest
                      "seal": "..."}]}}                                     HMAC of the value, where a key is configured

In a value the header, the groups and the index follow one another. A window in small groups has hundreds of them, and
every manifest names them all: hence no names for their fields, and zlib.

The values of a slot are newest first, for each range of buckets.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from riprap.errors import CorruptValueError, FormatError
from riprap.state.checkpoints.groups import Block, digest

FORMAT = "riprap-checkpoint/1"
_PREFIX = "manifest-"
# Half of it is digests, which do not get smaller: the quickest will do.
_LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A value in the store, and what it has: tuples of a range of buckets that came in between two times."""

    name: str
    size: int
    header: int
    buckets: tuple[int, int]
    since: float
    until: float
    groups: tuple[Block, ...]
    index: Block
    seal: str | None = None

    @property
    def tuples(self) -> int:
        return sum(group.tuples for group in self.groups)


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

    def to_bytes(self) -> bytes:
        told = {
            "operator": self.operator,
            "layout": self.layout,
            "version": self.version,
            "time": self.time,
            "batch": self.batch,
            "buckets": self.buckets,
            "rate": self.rate,
            "slots": {slot: [_told(saved) for saved in listed] for slot, listed in self.slots.items()},
        }
        body = zlib.compress(json.dumps(told, separators=(",", ":")).encode(), _LEVEL)
        return json.dumps({"format": FORMAT, "digest": digest(body)}).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointManifest:
        """Read a manifest; one that is damaged, or of another format, is an error."""
        head, _, body = data.partition(b"\n")
        try:
            known = json.loads(head)
            if known["format"] != FORMAT:
                raise FormatError(f"a checkpoint's manifest is of format {known['format']!r}, not {FORMAT!r}")
            if known["digest"] != digest(body):
                raise CorruptValueError("a checkpoint's manifest does not have its digest: it is damaged")
            found = json.loads(zlib.decompress(body))
            slots = {name: tuple(map(_heard, listed)) for name, listed in found["slots"].items()}
            return cls(**{**found, "slots": slots})
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise CorruptValueError(f"a checkpoint's manifest is damaged: {error!r}") from error

    def numbered(self, version: int) -> CheckpointManifest:
        """Return it as another version."""
        return replace(self, version=version)


def _told(saved: Saved) -> dict[str, Any]:
    return {
        "name": saved.name,
        "header": saved.header,
        "buckets": saved.buckets,
        "since": saved.since,
        "until": saved.until,
        "groups": [(group.length, group.digest, group.tuples) for group in saved.groups],
        "index": (saved.index.length, saved.index.digest),
        **({"seal": saved.seal} if saved.seal is not None else {}),
    }


def _heard(told: Mapping[str, Any]) -> Saved:
    groups, end = [], told["header"]
    for length, known, tuples in told["groups"]:
        groups.append(Block(offset=end, length=length, digest=known, tuples=tuples))
        end += length
    length, known = told["index"]
    return Saved(
        name=told["name"],
        size=end + length,
        header=told["header"],
        buckets=(told["buckets"][0], told["buckets"][1]),
        since=told["since"],
        until=told["until"],
        groups=tuple(groups),
        index=Block(offset=end, length=length, digest=known),
        seal=told.get("seal"),
    )


def manifest_key(version: int) -> str:
    """Return the key that a version's manifest has in the store."""
    return f"{_PREFIX}{version:010d}"


def version_of(key: str) -> int | None:
    """Return the version whose manifest has a key, None if it is the key of a value."""
    return int(key.removeprefix(_PREFIX)) if key.startswith(_PREFIX) else None
