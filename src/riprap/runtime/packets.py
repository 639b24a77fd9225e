"""Tuples that cross Spark travel as packets: one row holds many tuples as Arrow bytes.

Spark shuffles and stores packets; it never looks inside. A packet's ``label`` sends it to a task: labels are chosen so
that Spark's own hash puts label ``labels(n)[t]`` into partition ``t`` of ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from riprap.compiler import Plan
from riprap.expressions import normalise
from riprap.operators.arrival import Entry, Rows
from riprap.runtime.task import bucket_tasks
from riprap.state.keys import encode_keys

SCHEMA = "label int, source smallint, rows int, first bigint, last bigint, payload binary"
_ARROW = pa.schema(
    [
        ("label", pa.int32()),
        ("source", pa.int16()),
        ("rows", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("payload", pa.binary()),
    ]
)
_POSITION = "$position"


def pack(plan: Plan, source: int, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Cut rows up by task and pack each part."""
    if not rows.rows:
        return
    label = labels(plan.tasks)
    batch = pa.RecordBatch.from_arrays(
        [*rows.columns.values(), pa.array(rows.position)], [*rows.columns, _POSITION]
    )
    for number, part in enumerate(_parts(plan, plan.entries[source], rows, batch)):
        if part.num_rows:
            position = part.column(_POSITION).to_numpy()
            values = [label[number], source, part.num_rows, position.min(), position.max(), _to_bytes(part)]
            yield pa.RecordBatch.from_arrays(
                [pa.array([v], f.type) for v, f in zip(values, _ARROW, strict=True)], schema=_ARROW
            )


def _parts(plan: Plan, entry: Entry, rows: Rows, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield what each task gets: its keys, or an equal share; of ticks, all of them."""
    if plan.keyed and entry.tick is None:
        keys, code = encode_keys(_key_columns(plan, entry, rows), rows.rows)
        task = bucket_tasks(plan, keys.hashes)[code]
        for number in range(plan.tasks):
            mine = np.flatnonzero(task == number)
            yield batch.take(pa.array(mine)) if len(mine) < rows.rows else batch
        return
    for number in range(plan.tasks):
        low, high = rows.rows * number // plan.tasks, rows.rows * (number + 1) // plan.tasks
        yield batch if plan.keyed else batch.slice(low, high - low)


def _key_columns(plan: Plan, entry: Entry, rows: Rows) -> list[pa.Array]:
    """Return the columns of the stage's key; a source that has none of its own stays together under null."""
    if entry.key is not None:
        return [rows.columns[k] for k in entry.key]
    keyed = next((e for e in plan.entries if e.key is not None), None)
    kinds = (
        [plan.graph[keyed.name].schema.field(k).type for k in keyed.key or ()] if keyed is not None else []
    )
    return [pa.nulls(rows.rows, kind) for kind in kinds]


def unpack(plan: Plan, packets: Iterable[pa.RecordBatch]) -> dict[str, Rows]:
    """Put the tuples of packets together again, by source."""
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in packets:
        for source, payload in zip(batch.column("source").to_pylist(), batch.column("payload"), strict=True):
            parts.setdefault(source, []).append(_from_bytes(payload.as_buffer()))
    parts = {source: _alike(batches) for source, batches in parts.items()}
    found = {}
    for number, entry in enumerate(plan.entries):
        if number in parts:
            table = pa.Table.from_batches(parts[number]).unify_dictionaries().combine_chunks()
            columns = {c: _one(table.column(c)) for c in table.column_names}
            position = columns.pop(_POSITION).to_numpy()
            found[entry.name] = Rows(columns, position)
        else:
            schema = plan.graph[entry.name].schema
            columns = {c: pa.array([], schema.field(c).type) for c in sorted(plan.needed[entry.name])}
            found[entry.name] = Rows(columns, np.empty(0, np.int64))
    return found


def _alike(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Decode dictionaries where packets differ in which columns have them, as files may."""
    if all(batch.schema == batches[0].schema for batch in batches):
        return batches
    return [
        pa.RecordBatch.from_arrays([normalise(column) for column in batch.columns], batch.schema.names)
        for batch in batches
    ]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(payload: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(payload).read_next_batch()


@lru_cache(maxsize=8)
def labels(tasks: int) -> Sequence[int]:
    """Choose, for each task, the smallest label that Spark's hash partitioning sends to it."""
    found: dict[int, int] = {}
    label = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(label) % tasks, label)
        label += 1
    return tuple(found[t] for t in range(tasks))


def spark_hash(value: int) -> int:
    """Hash an int as Spark does to place a row: Murmur3, 32 bits, seed 42."""
    k = value * 0xCC9E2D51 & 0xFFFFFFFF
    k = (k << 15 | k >> 17) & 0xFFFFFFFF
    h = 42 ^ (k * 0x1B873593 & 0xFFFFFFFF)
    h = (h << 13 | h >> 19) & 0xFFFFFFFF
    h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h
