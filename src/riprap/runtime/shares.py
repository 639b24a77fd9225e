"""Each value of a large batch is decoded by one task: it leaves what it has decoded as pages, and all take their rows.

A task of a keyed stage needs the rows of its keys, and they are anywhere in a batch. Files are decoded by the block: a
row group of a Parquet file, column by column. So the tasks deal the blocks' columns out among themselves, in two
rounds:

    read      a task decodes its share, and leaves it; beside a key, the task that each row is for
    compute   it maps what all have left, and takes the rows that are for it

The columns of a key stay together. All tasks deal alike, from the files' own lists of blocks. A page is named after the
attempt that wrote it: those of the answer count. They are collected with all pages that the batch's record does not
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.feeds.reading import blocks, put_together, read_rows
from riprap.operators.source import Source
from riprap.runtime.offsets import Piece
from riprap.runtime.site import Site
from riprap.runtime.source_inflow import read_source
from riprap.stage.arrival import Intake, ReadRows
from riprap.state.hashing import buckets_of
from riprap.state.keys import encode_keys
from riprap.state.ledger import page_name
from riprap.state.pages import PageStore

# Of rows that every task but one would decode in vain: fewer cost no more than the pages and a second round do.
LEAST_REPEATED = 200_000
# The column with the task of each row.
_TASK = "$task"


class SharedPage(NamedTuple):
    """A page with some columns of a source's rows, from number ``low`` on."""

    source: str
    low: int
    page: str


def is_worth_sharing(plan: Plan, piece: Piece) -> bool:
    """Say whether the tasks had better share the decoding of a batch; mapped files need none."""
    shared = [piece.sources[e.name] for e in _shared(plan, piece)]
    decoded = [s for _, _, segments in shared for s in segments if s.kind == "parquet"]
    rows = sum(high - low for low, high, _ in shared)
    return plan.tasks > 1 and plan.keyed and bool(decoded) and rows * (plan.tasks - 1) >= LEAST_REPEATED


def leave_share(plan: Plan, site: Site, piece: Piece, *, batch: int, attempt: str) -> list[SharedPage]:
    """Decode a task's share of a batch, and leave it as pages."""
    name = partial(page_name, epoch=site.ledger.epoch, batch=batch, attempt=attempt)
    parts = []
    for entry in _shared(plan, piece):
        start, end, segments = piece.sources[entry.name]
        source, key = plan.graph[entry.name], entry.key
        assert isinstance(source, Source)
        assert key is not None
        others = sorted(plan.needed[entry.name] - set(key))
        bounds = [*blocks(segments, start, end, source), end]
        cuts = _deal(bounds, [key, *((c,) for c in others)], piece.task, plan.tasks)
        for number, (low, high, columns) in enumerate(cuts):
            decoded = dict(read_rows(segments, low, high, source, columns, position=False).columns)
            if key[0] in decoded:
                decoded[_TASK] = pa.array(_tasks(plan, [decoded[k] for k in key]))
            page = pa.RecordBatch.from_arrays(list(decoded.values()), list(decoded))
            written = site.results.write(name(slot=f"{entry.name}/share{number}"), page)
            parts.append(SharedPage(entry.name, low, written))
    return parts


def take_up(plan: Plan, site: Site, piece: Piece, parts: Sequence[SharedPage]) -> dict[str, ReadRows]:
    """Return a task's rows of what all have left; of a source that is not shared, all rows."""
    shared = {e.name for e in _shared(plan, piece)}
    return {
        name: _gather(plan, site.results, piece, name, [p for p in parts if p.source == name])
        if name in shared
        else read_source(plan, name, *rows)
        for name, rows in piece.sources.items()
    }


def _shared(plan: Plan, piece: Piece) -> list[Intake]:
    """Return the sources whose rows are of some task by their key; ticks are for every task."""
    return [e for e in plan.entries if e.key and e.tick is None and e.name in piece.sources]


def _deal(
    bounds: Sequence[int], columns: Sequence[tuple[str, ...]], task: int, tasks: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield a task's share of the columns of blocks: rows [low, high) and columns, equal runs of what there is.

    >>> for task in (0, 1):
    ...     print(list(_deal([0, 5, 10, 15], [("k",), ("a",)], task, 2)))
    [(0, 5, ('k', 'a')), (5, 10, ('k',))]
    [(5, 10, ('a',)), (10, 15, ('k', 'a'))]
    """
    width = len(columns)
    units = (len(bounds) - 1) * width
    unit, end = units * task // tasks, units * (task + 1) // tasks
    while unit < end:
        block, first = divmod(unit, width)
        # As many whole blocks as there are, or what there is of one.
        whole = (end - unit) // width if not first else 0
        last = width if whole else min(width, first + end - unit)
        yield (
            bounds[block],
            bounds[block + max(whole, 1)],
            tuple(c for group in columns[first:last] for c in group),
        )
        unit += max(whole * width, last - first)


def _tasks(plan: Plan, key: Sequence[pa.Array]) -> np.ndarray:
    """Return the task of each row."""
    keys, codes = encode_keys(key, len(key[0]))
    ends = [plan.span(task)[1] for task in range(plan.tasks)]
    of_key = np.searchsorted(ends, buckets_of(keys.hashes, plan.buckets), side="right").astype(np.uint16)
    tasks: np.ndarray = of_key[codes]
    return tasks


def _gather(plan: Plan, pages: PageStore, piece: Piece, name: str, parts: Sequence[SharedPage]) -> ReadRows:
    source, (start, end, _) = plan.graph[name], piece.sources[name]
    assert isinstance(source, Source)
    shared = [(part.low - start, pages.read(part.page)) for part in sorted(parts, key=lambda p: p.low)]
    having = {
        c: [(low, page) for low, page in shared if c in page.schema.names]
        for c in (_TASK, *sorted(plan.needed[name]))
    }
    for column, pieces in having.items():
        if sum(page.num_rows for _, page in pieces) != end - start:
            raise RunError(
                f"source '{name}' ({source.location}): the tasks have not left all of rows {start} to {end} of "
                f"'{column}'. Has a file changed while it was read? Take the run up again"
            )
    tasks = [page.column(_TASK).to_numpy() for _, page in having.pop(_TASK)]
    rows = np.flatnonzero(np.concatenate(tasks or [np.empty(0, np.uint16)]) == piece.task)
    columns = {}
    for column, pieces in having.items():
        cuts = np.searchsorted(rows, [low for low, _ in pieces] + [end - start])
        columns[column] = [
            page.column(column).take(pa.array(rows[cuts[i] : cuts[i + 1]] - low))
            for i, (low, page) in enumerate(pieces)
        ]
    return put_together(columns, source, rows + start)
