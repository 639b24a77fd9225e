"""An aggregate that records its windows, computed batch by batch in one process: its log is in files, as a run's is.

No Spark: what is measured is the operator's kernel, what recording adds to it, and the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.channels import ChannelReader, ChannelWriter
from riprap.channels.tags import tag_columns
from riprap.compiler import Plan, compile_graph
from riprap.kernels.chunk import Chunk
from riprap.protection import WindowTerms
from riprap.runtime.checkpointing.recollection import recollect
from riprap.runtime.window_log import WindowLog
from riprap.stage.arrival import ReadRows
from riprap.stage.batch import compute, take_in
from riprap.stage.fused import Outcome
from riprap.stage.recording import RecordOrder, leave_out, put_in, recollected, record_windows
from riprap.state.footprints import CHECK, kinds_in
from riprap.state.windows import merge

# Native; records of windows made and not written; records in the log.
How = Literal["none", "memory", "log"]
TUPLE_BYTES = 100
_BUCKETS = 1
_ALL_BATCHES = 1 << 40


@dataclass
class RecordingElement:
    """The paper's operator: the average price of so many purchases of each item."""

    folder: Path
    items: int
    window: int
    how: How = "log"
    terms: WindowTerms = field(default_factory=WindowTerms)
    seed: int = 7
    # What a cut would save each time that so many tuples have come in, for comparison; 0: none is worked out.
    cut_every: int = 0

    def __post_init__(self) -> None:
        self.plan = _plan(self.items, self.window)
        assert self.plan.recorded is not None
        self._state: dict[str, Sequence[pa.RecordBatch]] = dict.fromkeys(self.plan.slots, ())
        self._random = np.random.default_rng(self.seed)
        self._schema = self.plan.graph["means"].schema
        (self._stream,) = self.plan.outlets
        (channel, *_) = self.plan.outlets[self._stream]
        self.log, home = self.folder / "log", self.folder / "home"
        home.mkdir(parents=True)
        self._tags = channel.tags
        self._writer = ChannelWriter(
            self.log,
            stream="means",
            schema=channel.schema,
            tags=channel.tags,
            key=None,
            buckets=1,
            readers=("reader",),
        )
        self._columns = channel.schema.names
        self._reader = ChannelReader(self.log, "reader")
        self.windows = WindowLog(self.terms, home, self._tell, operator="means")
        self.batches: list[ReadRows] = []
        self.bytes = self.checks = self.cut_bytes = 0
        self._since_cut: tuple[int, pa.RecordBatch | None] = (0, None)

    def _tell(self, kind: str, **details: Any) -> None:
        """Nobody looks at events here."""

    def draw(self, rows: int) -> ReadRows:
        """Draw a batch of purchases, items at random."""
        batch = len(self.batches)
        columns = {
            "item": pa.array(self._random.integers(0, self.items, rows), pa.int64()),
            "price": pa.array(self._random.integers(1, 1000, rows), pa.int64()),
        }
        tags = (np.full(rows, batch), np.zeros(rows, np.int64), np.arange(rows))
        return ReadRows(columns, np.arange(rows), tuple(t.astype(np.int64) for t in tags))

    def run(self, rows: ReadRows) -> float:
        """Compute a batch and put it into the log; return how many seconds of the processor that took.

        Other work on the machine is not in that, and neither is waiting for the disk.
        """
        batch, began = len(self.batches), time.process_time()
        order = self.windows.due(batch) if self.how != "none" else RecordOrder()
        outcome = self._compute(rows, batch)
        controls: list[pa.RecordBatch] = []
        if self.how != "none":
            started = time.perf_counter()
            footprints = record_windows(self.plan, self._state, outcome, batch, order)
            if footprints is not None:
                controls = [footprints.control]
                checks = int(np.count_nonzero(kinds_in(footprints.control) == CHECK))
                self.windows.learn(time.perf_counter() - started, footprints.control.num_rows, checks)
                self.checks += checks
        self._put(batch, rows, outcome, controls)
        self._state = {slot: outcome.pages_of(slot, older) for slot, older in self._state.items()}
        taken = time.process_time() - began
        self.batches.append(rows)
        if self.cut_every and "means/0" in outcome.fresh:
            self._cut(rows.rows, outcome.fresh["means/0"])
        return taken

    def _cut(self, rows: int, fresh: pa.RecordBatch) -> None:
        """Work out what a cut saves: what came in since the one before, and still counts."""
        count, page = self._since_cut
        count, page = count + rows, fresh if page is None else merge(fresh, page)
        if count >= self.cut_every:
            self.cut_bytes += page.nbytes
            count, page = 0, None
        self._since_cut = count, page

    def _compute(self, rows: ReadRows, batch: int, left_out: pa.RecordBatch | None = None) -> Outcome:
        arrival = take_in(self.plan, {"bought": rows}, (0, _BUCKETS), batch=batch)
        if left_out is not None:
            arrival = leave_out(arrival, left_out, batch)
        return compute(self.plan, arrival, self._state, (0, _BUCKETS))

    def _put(self, batch: int, rows: ReadRows, outcome: Outcome, controls: list[pa.RecordBatch]) -> None:
        (chunk,) = outcome.outputs.values()
        tuples = _results(chunk, outcome, self._columns, self._tags)
        opened = self.windows.count(batch, controls, tuples.num_rows, rows.rows)
        windows = {"read": rows.rows, "open": opened or 0} if self.how == "log" else None
        self._writer.append(
            batch,
            tuples,
            None,
            frontier=batch,
            sources={},
            controls=controls if self.how == "log" else (),
            windows=windows,
        )
        self.bytes += sum(control.nbytes for control in controls)
        self.windows.noted(batch)
        self._reader.acknowledge(batch)
        self._writer.trim(wanted=self.windows.kept if self.how == "log" else None)

    def come_back(self) -> dict[str, Any]:
        """Lose all state and come back from the log; say what that took of the processor, and check what came of it."""
        before, status = self._contents(), self.windows.status
        newest, began = len(self.batches) - 1, time.process_time()
        found = recollect(self.log, upto=newest, after=-1, tell=self._tell, operator="means")
        self._state = dict.fromkeys(self.plan.slots, ())
        if found.page is not None:
            pages = recollected(self.plan, found.page, found.base)
            self._state |= {slot: (page,) for slot, page in pages.items()}
        loaded = time.process_time()
        rows = 0
        for batch in range(found.base + 1, newest + 1):
            outcome = self._compute(self.batches[batch], batch, found.page)
            if found.page is not None:
                put_in(self.plan, self._state, outcome, found.page, batch)
            self._state = {slot: outcome.pages_of(slot, older) for slot, older in self._state.items()}
            rows += self.batches[batch].rows
        done = time.process_time()
        if self._contents() != before:
            raise AssertionError("the state that came back is not the one that was lost")
        return {
            "load_seconds": loaded - began,
            "replay_seconds": done - loaded,
            "replay_bytes": rows * TUPLE_BYTES,
            "replay_tuples": rows,
            "extent": status["extent"],
            "open": status["open"],
            "checks": self.checks,
            "record_bytes": self.bytes / sum(batch.rows for batch in self.batches),
            "cut_bytes": self.cut_bytes / sum(batch.rows for batch in self.batches),
        }

    def _contents(self) -> tuple[int, int]:
        """Return how many tuples the windows hold, and a sum that changes with any of them."""
        # Records of all windows there are, as of now: each with all that it holds.
        outcome = Outcome(
            take_in(self.plan, {"bought": self.draw(0)}, (0, _BUCKETS), batch=len(self.batches))
        )
        footprints = record_windows(
            self.plan, self._state, outcome, _ALL_BATCHES, RecordOrder(upto=_ALL_BATCHES, most=_ALL_BATCHES)
        )
        if footprints is None:
            return 0, 0
        window = footprints.control.column("means/0:window")
        sizes = np.diff(window.offsets.to_numpy())
        values = np.asarray(window.flatten().field(0).to_numpy(zero_copy_only=False), np.int64)
        places = np.arange(1, len(values) + 1)
        return int(sizes.sum()), int((values * places % 1_000_003).sum())


def _results(chunk: Chunk, outcome: Outcome, names: Sequence[str], tags: int) -> pa.RecordBatch:
    numbers = outcome.arrival.tags_at(chunk.rank, chunk.path)
    columns = [*(chunk.columns[name] for name in names), *map(pa.array, numbers)]
    return pa.RecordBatch.from_arrays(columns, [*names, *tag_columns(tags)])


def _plan(items: int, window: int) -> Plan:
    app = rr.Application("purchases")
    bought = app.source("bought", rr.rows([], "item bigint, price bigint"))
    means = app.aggregate(
        "means",
        bought,
        by="item",
        window=rr.tumbling(tuples=window),
        select="avg(price) as price",
        protect=rr.eventual(),
    )
    app.sink("out", means, rr.memory())
    plans = compile_graph(app.graph(), buckets=_BUCKETS, tasks=1).plans
    return next(plan for plan in plans if plan.recorded is not None)
