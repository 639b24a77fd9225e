"""A channel's folder: what is fixed for the channel's life, and the listing that is the index of its log.

<channel>/                      readable by its owner only
    channel.json                stream, key, buckets, tags, schema; written when the channel is made
    <...>.segment               the log, see riprap.channels.segment
    older/<...>.segment         its beginning, once there are many: who is not behind need not list it
    held/<...>.segment          segments that no reader may see yet, of an element whose results may come out otherwise
    readers/<reader>.json       how far each reader is, see riprap.channels.notes
    finished                    exists once nothing more comes

A file is written under a temporary name, which starts with a dot, and renamed.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.channels.segment import BEGIN, FORMAT, SUFFIX, TEMPORARY, SegmentName, parse_name
from riprap.channels.tags import ROW, tag_columns, tag_fields
from riprap.errors import ChannelError
from riprap.state.durable_files import checking, load_json, save_json

FINISHED = "finished"
HELD = "held"
OLDER = "older"
_CHANNEL = "channel.json"
_FILE = attrgetter("file")
_ENTRIES = {"stream": str, "key": list | None, "buckets": int, "tags": int, "schema": str, "arrow": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """What is fixed for the life of a channel. Without a key there is one bucket."""

    stream: str
    key: tuple[str, ...] | None
    buckets: int
    tags: int
    schema: pa.Schema

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", None)
            object.__setattr__(self, "buckets", 1)
        problem = None
        if self.tags < 1 or self.buckets < 1:
            problem = f"it has {self.tags} tag columns and {self.buckets} buckets; both must be at least 1"
        elif lacking := [name for name in self.key or () if name not in self.schema.names]:
            problem = f"its key names {', '.join(lacking)}, which its schema lacks: {self.columns}"
        elif taken := {ROW, *self.tag}.intersection(self.schema.names):
            problem = f"its schema has {', '.join(sorted(taken))}, a name kept for the order of tuples"
        if problem is not None:
            raise ChannelError(f"the channel of stream '{self.stream}' cannot be made: {problem}")

    @property
    def tag(self) -> tuple[str, ...]:
        """The names of the tag columns."""
        return tuple(tag_columns(self.tags))

    @property
    def columns(self) -> str:
        """The schema as text."""
        return ", ".join(f"{field.name} {field.type}" for field in self.schema)

    def fields(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of some columns with the tag."""
        fields = [pa.field(name, self.schema.field(name).type) for name in columns]
        return pa.schema([*fields, *tag_fields(self.tags)])

    def describe(self) -> dict[str, Any]:
        """Return what channel.json says, for people and for the next process; ``arrow`` is the schema in full."""
        plain = pa.schema([pa.field(field.name, field.type) for field in self.schema])
        return {
            "format": FORMAT,
            "stream": self.stream,
            "key": None if self.key is None else list(self.key),
            "buckets": self.buckets,
            "tags": self.tags,
            "schema": self.columns,
            "arrow": base64.b64encode(plain.serialize().to_pybytes()).decode(),
        }

    def make(self, folder: Path) -> None:
        """Make the channel's folder, or find that it is this channel's."""
        make_private(folder)
        fixed, wanted = load_json(folder / _CHANNEL, FORMAT, _ENTRIES), self.describe()
        if fixed is None:
            if scan(folder):
                raise ChannelError(
                    f"{folder} has segments but no {_CHANNEL}, so nobody knows how to read them. Restore it, or "
                    "remove the folder"
                )
            save_json(folder / _CHANNEL, wanted)
            return
        for what in ("stream", "key", "buckets", "tags", "schema"):
            if fixed.get(what) != wanted[what]:
                raise ChannelError(
                    f"the channel in {folder} has {what} {fixed.get(what)!r}, not {wanted[what]!r}: that is fixed "
                    "for its life. Take the run up as it was started, or start a new one"
                )

    @classmethod
    def find(cls, folder: Path) -> Channel:
        """Read what a channel is."""
        fixed = load_json(folder / _CHANNEL, FORMAT, _ENTRIES)
        if fixed is None:
            raise ChannelError(
                f"there is no channel in {folder}: its producer has not begun, or wrote elsewhere"
            )
        with checking(folder / _CHANNEL):
            return cls(
                stream=fixed["stream"],
                key=None if fixed["key"] is None else tuple(fixed["key"]),
                buckets=fixed["buckets"],
                tags=fixed["tags"],
                schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fixed["arrow"]))),
            )


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may look into, unless there is one."""
    # Given a mode and parents, mkdir leaves the mode of the parents open.
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def scan(folder: Path) -> list[SegmentName]:
    """List the segments as the folder shows them, oldest first."""
    try:
        files = sorted(file for file in os.listdir(folder) if file.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    return [name for file in files if (name := parse_name(file)) is not None]


def list_segments(folder: Path, low: int = BEGIN) -> list[SegmentName]:
    """List the segments without a hole, oldest first; a hole that is really there is an error.

    Those that end at the frontier ``low`` or before may be left out. A file that comes or goes during a scan may or may
    not be seen, and another that came later or goes earlier may.
    """
    listed = _scan_beyond(folder, low)
    holes = _holes(listed)
    if holes:
        # By now a file that was new has been seen, and of those that went all older ones are gone.
        again = [name for name in _scan_beyond(folder, low) if name.batch <= listed[-1].batch]
        if lost := holes & (still := _holes(again)):
            raise ChannelError(
                f"the log in {folder} has no segment of batch {min(lost)}, though it has older and newer ones. "
                "Restore the file, or start a new run"
            )
        listed = [name for name in again if name.batch > max(still, default=-1)]
    if twice := [b.batch for a, b in pairwise(listed) if a.batch == b.batch]:
        raise ChannelError(
            f"the log in {folder} has two segments of batch {twice[0]}: two producers wrote to it. Stop one, and "
            "start a new run"
        )
    return listed


def _scan_beyond(folder: Path, low: int) -> list[SegmentName]:
    listed = scan(folder)
    if not listed or not listed[0].batch or listed[0].frontier <= low:
        return listed
    # In this order: what was set aside meanwhile is seen there, if not here.
    older = scan(folder / OLDER)
    return sorted({*older, *listed}, key=_FILE) if older else listed


def _holes(listed: Sequence[SegmentName]) -> set[int]:
    batches = {name.batch for name in listed}
    if not batches or max(batches) - min(batches) + 1 == len(batches):
        return set()
    return set(range(min(batches), max(batches))) - batches


def sweep(folder: Path) -> None:
    """Remove what a dead writer left half-written."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)
