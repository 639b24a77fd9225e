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

from riprap.channels.reader import LaidBlock
from riprap.channels.segment import DATA, PUNCTUATION
from riprap.channels.tags import ROW, is_tag
from riprap.state.digests import digest_of

# So many rows of a side are looked through one by one.
_LOOKED_THROUGH = 10_000


class LaidRows:
    """The rows of a log between two frontiers, which stay readable while it is trimmed.

    A row's place in its batch does not count, nor do its neighbours of other buckets: its tag says where it belongs.
    """

    def __init__(self, blocks: Sequence[LaidBlock]) -> None:
        self._blocks = [block for block in blocks if block.info.kind in (DATA, PUNCTUATION)]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(b.info.count if b.whole else self._rows[n].num_rows for n, b in enumerate(self._blocks))

    @property
    def size(self) -> int:
        return sum(block.info.length for block in self._blocks)

    @cached_property
    def checksums(self) -> tuple[tuple[Any, ...], ...] | None:
        """What tells the rows without a look at them, in logs that were cut alike; None where a segment is cut."""
        if not all(block.whole for block in self._blocks):
            return None
        infos = [(block.frontier, block.info) for block in self._blocks]
        return tuple((frontier, i.kind, i.bucket, i.count, i.length, i.checksum) for frontier, i in infos)

    @cached_property
    def _rows(self) -> list[pa.RecordBatch]:
        # Mostly this is where the segments are mapped, not a copy.
        return [_plain(block.read()) for block in self._blocks]

    @cached_property
    def digest(self) -> int:
        """A number that is the same for the same rows, however they were cut and encoded."""
        digest = xxhash.xxh3_64()
        for kind in (DATA, PUNCTUATION):
            by_bucket: dict[int, list[pa.RecordBatch]] = {}
            for block, rows in zip(self._blocks, self._rows, strict=True):
                if block.info.kind == kind:
                    by_bucket.setdefault(block.info.bucket, []).append(rows)
            counts = [(bucket, sum(b.num_rows for b in by_bucket[bucket])) for bucket in sorted(by_bucket)]
            digest.update(repr([kind, *(each for each in counts if each[1])]).encode())
            batches = [batch for bucket, count in counts if count for batch in by_bucket[bucket]]
            if batches:
                digest.update(_digest(pa.concat_batches(batches)).to_bytes(8, "little"))
        return digest.intdigest()

    def rows(self, kind: str) -> pa.RecordBatch | None:
        """Return the rows of a kind in the order of their tags, None if there are none."""
        laid = zip(self._blocks, self._rows, strict=True)
        batches = [rows for block, rows in laid if block.info.kind == kind]
        if not batches:
            return None
        whole = pa.concat_batches(batches)
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


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name != ROW:
            columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


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
