"""What the cases of the adapter benchmark are made of: rows to move, and the two ways to move them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.feeds.feed import open_feed
from riprap.feeds.reading import read_rows
from riprap.graph.connectors import SourceConnector
from riprap.operators.source import Source

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ticker", pa.string()),
        ("price", pa.float64()),
        ("size", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
BATCH_ROWS = 250_000

# Moves all rows once, within a fresh folder, and returns how many there were.
Work = Callable[[Path], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One adapter: ``bar`` is what share of the plain loop's rate it must reach."""

    name: str
    library: str
    rows: int
    bar: float
    plain: Work
    riprap: Work
    # Counts what is in the sink after Riprap wrote to it, where writing does not tell.
    check: Work | None = None


class NoServerError(Exception):
    """Why a case cannot be measured here."""


def server(variable: str, what: str) -> str:
    """Return the address of a server, from the environment."""
    address = os.environ.get(variable)
    if not address:
        raise NoServerError(f"no {what}: name one in {variable}")
    return address


def make_table(rows: int, seed: int) -> pa.Table:
    """Make rows like those of a market feed."""
    random = np.random.default_rng(seed)
    return pa.table(
        [
            pa.array(np.arange(rows)),
            pa.array([f"T{number}" for number in range(3000)]).take(pa.array(random.integers(0, 3000, rows))),
            pa.array(np.round(random.lognormal(3.0, 1.0, rows), 2)),
            pa.array(random.integers(1, 1000, rows)),
            pa.array(1_700_000_000_000_000 + np.arange(rows) * 1000).cast(pa.timestamp("us", "UTC")),
        ],
        schema=SCHEMA,
    )


def in_batches(table: pa.Table) -> Sequence[pa.Table]:
    """Cut a table into the batches a sink gets."""
    return [table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS)]


def fetch(connector: SourceConnector, rows: int, folder: Path) -> int:
    """Read a source as a run does, but for Spark: find its rows, number them, read them batch by batch."""
    app = rr.Application("bench")
    app.sink("sink", app.source("source", connector), rr.memory())
    source = app.graph()["source"]
    assert isinstance(source, Source)
    feed = open_feed(
        source, folder / "source", folder / "quarantine", finite=True, batch_rows=BATCH_ROWS, tell=_ignore
    )
    start = 0
    while start < rows:
        end = feed.upto(start, BATCH_ROWS)
        if end == start:
            time.sleep(0.001)
            continue
        found = read_rows(feed.log.between(start, end), start, end, source, source.schema.names)
        if found.position[0] != start or found.rows != end - start:
            raise AssertionError(f"asked for rows {start} to {end}, got {found.rows}")
        feed.release(end)
        start = end
    return start


def _ignore(kind: str, **details: Any) -> None: ...
