"""What the applications of the fault matrix are made of: rows, and sources with traps behind them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.regions.sinks import Place

import riprap as rr
from riprap.expressions import parse_schema

ROWS = 2_400
FILES = 24
BATCH = 20
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = parse_schema("seq bigint, at timestamp, k string, v bigint")
TICKS = parse_schema("at timestamp")

Streams = dict[str, rr.Stream]
# Rows of sources: which one, from which row on, up to which.
Lost = tuple[tuple[str, int, int], ...]


def rows_of(seed: int = 0) -> pa.Table:
    """Return the rows of a source: times rise, some keys are rare, values go up and down."""
    rows = [
        {"seq": n, "at": START + timedelta(seconds=n // 3), "k": "aabacadbe"[(n + seed) % 9], "v": (n + seed) * 37 % 23}
        for n in range(ROWS)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


@dataclass
class Made:
    """An application in the making: where its files and servers are, how regions start, what sources lack."""

    app: rr.Application
    work: Path
    place: Place
    start: rr.Policy | None
    lost: Lost = ()

    @property
    def out_of_it(self) -> rr.Policy | None:
        """Return what keeps an operator out of regions."""
        return rr.autonomous() if self.start is not None else None

    def source(self, name: str, *, seed: int = 0, start: bool = True, **options: Any) -> rr.Stream:
        """Add a source and what has traps happen."""
        protect = self.start if start else None
        read = self.app.source(name, rr.rows(self.left(name, rows_of(seed))), protect=protect, **options)
        return self.trapped(f"{name}_read", read)

    def trapped(self, name: str, read: rr.Stream) -> rr.Stream:
        """Add what has traps happen."""
        return self.app.functor(name, read, where="trapped(seq) >= 0")

    def left(self, source: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a source but for those that are lost."""
        return less(self.lost, source, rows)


def less(lost: Lost, source: str, rows: pa.Table) -> pa.Table:
    """Return the rows of a source but for those that are lost."""
    gone = {n for name, first, end in lost if name == source for n in range(first, end)}
    return rows.take([n for n in range(rows.num_rows) if n not in gone])
