"""What a log of a replica has in a stretch, as a digest in which its batches do not show; and where logs differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from riprap.channels.reader import LaidSegment
from riprap.channels.segment import DATA, PUNCTUATION
from riprap.channels.tags import ROW, is_tag
from riprap.state.digests import digest_of

_KINDS = (DATA, PUNCTUATION)
# So many rows of a side are looked through one by one.
_LOOKED_THROUGH = 10_000


class LaidRows:
    """The rows of a log between two frontiers, which stay readable while it is trimmed.

    A row's place in its batch does not count, nor do its neighbours of other buckets: its tag says where it belongs.
    """

    def __init__(self, segments: Sequence[LaidSegment]) -> None:
        self._segments = segments
        self.segments = len(segments)
        self.blocks = sum(len(segment.blocks) for segment in segments)
        self.size = sum(block.length for segment in segments for block in segment.blocks)

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        if all(segment.whole for segment in self._segments):
            return sum(b.count for segment in self._segments for b in segment.blocks if b.kind in _KINDS)
        return sum(b.num_rows for kind in _KINDS for batches in self._laid[kind].values() for b in batches)

    @cached_property
    def checksums(self) -> tuple[int, ...] | None:
        """What tells the rows without a look at them, in logs that were cut alike; None where a segment is cut."""
        if not all(segment.whole for segment in self._segments):
            return None
        # A number for each, since there are many.
        return tuple(
            hash(
                (
                    segment.part.name.frontier,
                    *(
                        (b.kind, b.bucket, b.count, b.length, b.checksum)
                        for b in segment.blocks
                        if b.kind in _KINDS
                    ),
                )
            )
            for segment in self._segments
        )

    @cached_property
    def _laid(self) -> dict[str, dict[int, list[pa.RecordBatch]]]:
        """The rows by kind and bucket; mostly this is where the segments are mapped, not a copy."""
        laid: dict[str, dict[int, list[pa.RecordBatch]]] = {kind: {} for kind in _KINDS}
        for segment in self._segments:
            for number, block in enumerate(segment.blocks):
                if block.kind in laid:
                    rows = segment.read(number)
                    if rows.num_rows:
                        laid[block.kind].setdefault(block.bucket, []).append(rows)
        return laid

    @cached_property
    def digest(self) -> int:
        """A number that is the same for the same rows, however they were cut and encoded."""
        digest = xxhash.xxh3_64()
        for kind, by_bucket in self._laid.items():
            ordered = [(bucket, by_bucket[bucket]) for bucket in sorted(by_bucket)]
            counts = [(bucket, sum(b.num_rows for b in batches)) for bucket, batches in ordered]
            digest.update(repr([kind, counts]).encode())
            if ordered:
                whole = _joined([batch for _, batches in ordered for batch in batches])
                digest.update(_digest(whole).to_bytes(8, "little"))
        return digest.intdigest()

    def rows(self, kind: str) -> pa.RecordBatch | None:
        """Return the rows of a kind in the order of their tags, None if there are none."""
        batches = [batch for batches in self._laid[kind].values() for batch in batches]
        if not batches:
            return None
        whole = _joined(batches)
        tags = [whole.column(name).to_numpy() for name in whole.schema.names if is_tag(name)]
        return whole.take(pa.array(np.lexsort(tags[::-1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """Of each of some logs how many rows it has that not all have, and the first of them. A count may be more than is
    told where very many differ."""

    counts: Mapping[str, int]
    tuples: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)


def find_differing(logs: Mapping[str, LaidRows], first: int) -> Differing:
    """Work out in which rows logs differ, and return the first few of each."""
    tuples: dict[str, list[dict[str, Any]]] = {name: [] for name in logs}
    for kind in (DATA, PUNCTUATION):
        rows = {name: log.rows(kind) for name, log in logs.items()}
        schema = next((batch.schema for batch in rows.values() if batch is not None), None)
        if schema is not None:
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            parts = _without_ends([empty if batch is None else batch for batch in rows.values()])
            for name, found in zip(rows, _only_in_some(parts), strict=True):
                tuples[name] += found if kind == DATA else [{"punctuation": True, **row} for row in found]
    counts = {name: len(found) for name, found in tuples.items()}
    return Differing(counts=counts, tuples={name: found[:first] for name, found in tuples.items()})


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Make one batch, without places and encodings."""
    if any(pa.types.is_dictionary(field.type) for field in batches[0].schema):
        batches = [_decoded(batch) for batch in batches]
    whole = pa.concat_batches(batches)
    return whole.select([name for name in whole.schema.names if name != ROW])


def _decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _digest(rows: pa.RecordBatch) -> int:
    """Digest rows; of lists and structs what they are made of, to the last bit."""
    digest = xxhash.xxh3_64()
    for column in rows.columns:
        for part in _parts(column):
            digest.update(digest_of(pa.RecordBatch.from_arrays([part], ["part"])).to_bytes(8, "little"))
    return digest.intdigest()


def _parts(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield pc.list_value_length(column)
        yield from _parts(column.flatten())
    elif pa.types.is_struct(kind):
        yield column.is_valid()
        for part in column.flatten():
            yield from _parts(part)
    else:
        yield column


def _without_ends(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Leave out the rows at both ends that all have."""
    shortest = min(part.num_rows for part in parts)
    before = _most(shortest, lambda n: _alike([part.slice(0, n) for part in parts]))
    after = _most(shortest - before, lambda n: _alike([part.slice(part.num_rows - n) for part in parts]))
    return [part.slice(before, part.num_rows - before - after) for part in parts]


def _alike(parts: Sequence[pa.RecordBatch]) -> bool:
    return len({_digest(pa.concat_batches([part])) for part in parts}) == 1


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit that holds, where all below it do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _only_in_some(parts: Sequence[pa.RecordBatch]) -> list[list[dict[str, Any]]]:
    parts = [part.slice(0, _LOOKED_THROUGH) for part in parts]
    keys = [_row_keys(part) for part in parts]
    common = Counter(keys[0])
    for each in keys[1:]:
        common &= Counter(each)
    found = []
    for part, part_keys in zip(parts, keys, strict=True):
        left, alone = common.copy(), []
        for row, key in enumerate(part_keys):
            if left[key]:
                left[key] -= 1
            else:
                alone.append(row)
        found.append([_shown(each) for each in part.take(pa.array(alone, pa.int64())).to_pylist()])
    if any(found):
        return found
    # The same rows, in bits that have no text, or another order of equal tags.
    return [[_shown(each) for each in part.to_pylist()] for part in parts]


def _row_keys(rows: pa.RecordBatch) -> list[str]:
    columns = [
        column.view(f"int{column.type.bit_width}") if pa.types.is_floating(column.type) else column
        for column in rows.columns
    ]
    return [repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_json(value) for name, value in row.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
