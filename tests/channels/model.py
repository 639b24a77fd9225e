"""A channel as a plain list of rows, and batches to put into one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.channels import ChannelWriter, Footer
from riprap.channels.folder import list_segments
from riprap.channels.segment import SegmentFile
from riprap.state.hashing import buckets_of, hash_arrays

Row = dict[str, Any]
SCHEMA = pa.schema([("name", pa.string()), ("price", pa.float64()), ("size", pa.int64())])
BEGIN = -(2**64)


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    return table.to_pylist()


def batch_of(rows: list[Row], tags: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([*schema, *tag_fields(tags)]))


def tag_fields(tags: int) -> list[tuple[str, pa.DataType]]:
    return [(f"${n}", pa.int64()) for n in range(tags)]


def open_writer(
    folder: Path,
    *,
    tags: int = 2,
    key: tuple[str, ...] | None = ("name",),
    buckets: int = 4,
    readers: tuple[str, ...] = ("a",),
    schema: pa.Schema = SCHEMA,
    stream: str = "trades",
    holds: bool = False,
) -> ChannelWriter:
    return ChannelWriter(
        folder,
        stream=stream,
        schema=schema,
        tags=tags,
        key=key,
        buckets=buckets,
        readers=readers,
        holds=holds,
    )


def simple(batch: int, count: int = 10) -> pa.RecordBatch:
    """Return a batch whose frontier value is its number."""
    numbers = range(batch * 100, batch * 100 + count)
    return batch_of(
        [{"name": f"n{n % 7}", "price": n / 4, "size": n, "$0": batch, "$1": n} for n in numbers], tags=2
    )


def ticks(*tags: tuple[int, int]) -> pa.RecordBatch:
    return batch_of([{"$0": a, "$1": b} for a, b in tags], 2, pa.schema([]))


def fill(writer: ChannelWriter, batches: int, count: int = 10) -> None:
    """Append on, with batch numbers as frontiers."""
    for batch in range(writer.batch + 1, batches):
        writer.append(
            batch, simple(batch, count), None, frontier=batch, sources={"feed": [batch * 10, batch * 10 + 10]}
        )


@dataclass
class Model:
    """What a channel should hold: for every batch its frontier, tuples and punctuations."""

    tags: int
    key: tuple[str, ...] | None
    buckets: int
    schema: pa.Schema = SCHEMA
    batches: list[tuple[int, list[Row], list[Row]]] = field(default_factory=list)

    @property
    def frontier(self) -> int | None:
        return self.batches[-1][0] if self.batches else None

    def tuples(
        self, after: int | None, upto: int, columns: list[str], span: tuple[int, int] | None
    ) -> list[Row]:
        kept = [*columns, *(name for name, _ in tag_fields(self.tags))]
        return [
            {name: row[name] for name in kept}
            for row in self.all_between(after, upto)
            if span is None or span[0] <= self.bucket(row) < span[1]
        ]

    def all_between(self, after: int | None, upto: int) -> list[Row]:
        return [
            row
            for _, rows, _ in self.batches
            for row in rows
            if (BEGIN if after is None else after) < row["$0"] <= upto
        ]

    def punctuations(self, after: int | None, upto: int) -> list[Row]:
        low = BEGIN if after is None else after
        return [row for _, _, rows in self.batches for row in rows if low < row["$0"] <= upto]

    def next(
        self, after: int | None, limit: int, skipped: tuple[int | None, int] | None = None
    ) -> int | None:
        low = BEGIN if after is None else after
        ends = sorted({frontier for frontier, _, _ in self.batches if frontier > low})

        def lost(row: Row) -> bool:
            return (
                skipped is not None
                and (BEGIN if skipped[0] is None else skipped[0]) < row["$0"] <= skipped[1]
            )

        within = [e for e in ends if sum(not lost(r) for r in self.all_between(after, e)) <= limit]
        return max(within, default=None) if within else (ends[0] if ends else None)

    def bucket(self, row: Row) -> int:
        if self.key is None:
            return 0
        columns = [pa.array([row[name]], self.schema.field(name).type) for name in self.key]
        return int(np.asarray(buckets_of(hash_arrays(columns), self.buckets))[0])


@dataclass(frozen=True)
class LogBlock:
    """Rows of one kind and bucket from one batch, as a log has them."""

    segment: Footer
    kind: str
    bucket: int
    position: int
    rows: pa.RecordBatch


def newest_first(folder: Path) -> list[LogBlock]:
    """Return the blocks of a log, newest first, whatever their kind."""
    files = [SegmentFile(folder, name) for name in reversed(list_segments(folder))]
    return [
        LogBlock(file.footer, block.kind, block.bucket, block.position, file.read(number))
        for file in files
        for number, block in reversed(list(enumerate(file.footer.blocks)))
    ]
