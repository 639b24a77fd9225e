"""The finite input of a campaign, in memory, cut into blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from riprap.arrays import Floats, Ints
from riprap.compiler import Layout
from riprap.compiler.passes import is_aligned
from riprap.errors import GraphError
from riprap.feeds.listed_feed import ListedFeed, spool_rows
from riprap.feeds.reading import read_rows
from riprap.feeds.tables import Tables, load_tables
from riprap.graph.connectors import Files, Rows
from riprap.graph.graph import Graph
from riprap.kernels.chunk import order_numbers
from riprap.operators.lookup import Lookup
from riprap.operators.source import Source
from riprap.stage.arrival import ReadRows

_ALL = 2**60


@dataclass(frozen=True, slots=True)
class CampaignInput:
    """The rows of every source, and how far each one's block reaches.

    ``ends`` has for each source the number of its rows in all blocks up to each. ``marks`` has the last position
    of each block, or the last ordering number where there are several sources with one.
    """

    rows: Mapping[str, ReadRows]
    ends: Mapping[str, Ints]
    marks: Ints

    @property
    def blocks(self) -> int:
        return len(next(iter(self.ends.values())))

    def block(self, number: int) -> dict[str, ReadRows]:
        """Return the rows of a block."""
        block = {}
        for name, rows in self.rows.items():
            ends = self.ends[name]
            low, high = (int(ends[number - 1]) if number else 0), int(ends[number])
            block[name] = _slice(rows, low, high)
        return block


def _slice(rows: ReadRows, low: int, high: int) -> ReadRows:
    return ReadRows({n: c.slice(low, high - low) for n, c in rows.columns.items()}, rows.position[low:high])


def read_feed(graph: Graph, layout: Layout) -> dict[str, ReadRows]:
    """Read all there is of every source, in order of position."""
    needed = {e.name: plan.needed[e.name] for plan in layout.plans for e in plan.entries if not plan.inlets}
    return {source.name: _read(source, sorted(needed[source.name])) for source in graph.of_kind(Source)}


def _read(source: Source, columns: Sequence[str]) -> ReadRows:
    if not isinstance(source.connector, Files | Rows):
        raise GraphError(
            f"{source}: faults are injected into a feed that can be read again and again. Give it files or rows"
        )
    with tempfile.TemporaryDirectory(prefix="riprap-feed-") as name:
        folder = Path(name)
        spool_rows(source, folder)
        feed = ListedFeed(source, folder, folder / "quarantine", finite=True)
        feed.find(_ALL)
        rows = read_rows(feed.log.segments, 0, feed.log.rows, source, columns)
    order = np.argsort(rows.position, kind="stable")
    ordered = rows if bool((order == np.arange(len(order))).all()) else rows.take(order)
    again = np.flatnonzero(ordered.position[1:] == ordered.position[:-1])
    if len(again):
        raise GraphError(
            f"{source}: position {ordered.position[again[0]]} is there twice, so tuples cannot be told apart: name a "
            "column that numbers them"
        )
    return ordered


def read_tables(graph: Graph) -> dict[str, pa.Table]:
    """Read the tables of lookups, once and for all."""
    with tempfile.TemporaryDirectory(prefix="riprap-tables-") as name:
        Tables(Path(name), graph).settle(0)
        # A table that is mapped outlives its file.
        return load_tables(Path(name), 0) if graph.of_kind(Lookup) else {}


def times_of(graph: Graph, clock: str) -> Floats:
    """Return the time at each row of the source that has a column for it, in seconds."""
    sources = [s for s in graph.of_kind(Source) if clock in s.schema.names]
    if len(graph.of_kind(Source)) != 1 or not sources:
        raise GraphError(
            f"clock='{clock}': the campaign's one source must have that column, and its time in it"
        )
    (source,) = sources
    wanted = {clock, *([source.position] if source.position else [])}
    column = _read(source, sorted(wanted)).columns[clock]
    if pa.types.is_timestamp(column.type):
        column = pa.compute.divide(column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise GraphError(f"clock='{clock}': it is {column.type}; give a timestamp, or seconds as a number")
    times: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return times


def cut_feed(
    graph: Graph, rows: Mapping[str, ReadRows], *, block_rows: int, bounds: Sequence[int] = ()
) -> CampaignInput:
    """Cut a feed into blocks of about so many rows; of a single source also at some positions."""
    sources = graph.of_kind(Source)
    total = sum(part.rows for part in rows.values())
    many = max(1, -(-total // block_rows))
    if len(sources) == 1:
        (only,) = rows.values()
        ends = np.unique(
            np.concatenate(
                [
                    np.arange(1, many + 1) * only.rows // many,
                    np.searchsorted(only.position, np.asarray(bounds, np.int64)),
                ]
            )
        )
        ends = ends[ends > 0] if only.rows else np.zeros(1, np.int64)
        marks = only.position[ends - 1] if only.rows else np.zeros(1, np.int64)
        return CampaignInput(rows, {sources[0].name: ends}, marks)
    if not is_aligned(graph):
        cuts = {name: np.arange(1, many + 1) * part.rows // many for name, part in rows.items()}
        return CampaignInput(rows, cuts, np.arange(many))
    numbers = {
        s.name: order_numbers(rows[s.name].columns[s.ordering]) for s in sources if s.ordering is not None
    }
    marks = np.unique(
        np.quantile(np.concatenate(list(numbers.values())), np.arange(1, many + 1) / many, method="higher")
    )
    return CampaignInput(
        rows, {name: np.searchsorted(own, marks, "right") for name, own in numbers.items()}, marks
    )
