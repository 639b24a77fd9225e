"""One run of an application, in a consistent region or not: how fast, how much processor time, which answer.

All runs share a session, and so its workers and compiled code. What is measured lies between the end of the warm-up
and the last batch of the last processing element; results are published by then.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import riprap as rr
from riprap.errors import RunError
from riprap.state.leases import sweep
from riprap.state.pages import page_root
from riprap_bench.checkpoint_feeds import Feed
from riprap_bench.checkpoint_runs import processor_seconds
from riprap_bench.measuring import middle
from riprap_bench.protecting import protected
from riprap_bench.regions_jobs import Job
from riprap_bench.regions_oracle import wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.02
# What takes longer hangs.
_PATIENCE_SECONDS = 600.0
# To learn a rate: so many batches, or as many as take so long.
_TRIAL_BATCHES, _TRIAL_SECONDS = 8, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a run left at its sink: how many rows, and their digest in their order."""

    rows: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a run; ``policy`` is the period of its region, ``batch_seconds`` the median of a batch from when it
    was begun until its results were published."""

    policy: float | None
    rows: int
    seconds: float
    cpu: float
    busy: float
    batch_seconds: float
    answer: Answer

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tuples_per_s": self.rate}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Take up a run that was measured in an earlier sitting."""
        fields = {name: value for name, value in told.items() if name != "tuples_per_s"}
        return cls(**{**fields, "answer": Answer(**told["answer"])})


@dataclass(slots=True)
class Bench:
    """A session and a folder in which runs are made one after the other; ``protecting`` is that of the plan."""

    session: SparkSession
    folder: Path
    protecting: bool = True
    runs: int = 0

    def run(self, job: Job, feed: Feed, period: float | None, *, check: bool = False) -> Measured:
        """Run an application over its feed; with ``check``, what comes of it must be what another program says."""
        from riprap.runtime.folder import RunFolder
        from riprap.runtime.start import layout_of
        from riprap.runtime.start import run as start

        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        policy = rr.consistent(period=period) if period is not None and self.protecting else None
        graph = protected(job.build(feed, rr.parquet(folder / "out")).graph(), policy)
        # The first element has the sources: nobody computes anything before it.
        first = layout_of(graph).plans[0].name
        options = rr.RunOptions(spark=self.session, batch_rows=max(feed.rows), runs=folder / "runs")
        with start(graph, options) as run:
            metrics = RunFolder(run.folder, time.time).follow_metrics(all_of_them=True)
            lines: list[dict[str, Any]] = []
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while run.running and sum(line["element"] == first for line in lines) < job.warm_up:
                if time.monotonic() > deadline:
                    raise RunError(f"batch {job.warm_up} was not done after {_PATIENCE_SECONDS:.0f} s")
                time.sleep(_LOOK_SECONDS)
                lines += metrics.new()
            before = processor_seconds(os.getpid())
            if not run.wait(max(0.0, deadline - time.monotonic())):
                raise RunError(f"a run of {graph.name} was not done after {_PATIENCE_SECONDS:.0f} s")
            after = processor_seconds(os.getpid())
            lines += metrics.new()
        measured = _measured(job, feed, period, lines, first, after - before, answer_in(folder / "out"))
        if check:
            other = wrong(job, feed.files, pq.read_table(folder / "out"))
            if other is not None:
                raise RunError(f"{graph.name}: there are {other}")
        # With the folder gone, nobody can take up what a run left in host memory.
        shutil.rmtree(folder)
        sweep(page_root())
        return measured

    def batches_for(self, job: Job, folder: Path, seconds: float) -> int:
        """Return how many batches an unprotected run does in so many seconds, with its warm-up."""
        batches = job.warm_up + _TRIAL_BATCHES
        run = self.run(job, job.write(folder, batches), None)
        if run.seconds < _TRIAL_SECONDS:
            batches = job.warm_up + ceil(_TRIAL_BATCHES * min(20.0, _TRIAL_SECONDS / run.seconds))
            run = self.run(job, job.write(folder, batches), None)
        return job.warm_up + max(3, ceil(run.rate * seconds / job.rows))


def _measured(
    job: Job,
    feed: Feed,
    period: float | None,
    lines: list[dict[str, Any]],
    element: str,
    cpu: float,
    answer: Answer,
) -> Measured:
    """Sum up the lines of a run; those of the ``element`` that has the sources say what came in."""
    first = [line for line in lines if line["element"] == element]
    came = sum(line["rows"] for line in first)
    if came != sum(feed.rows):
        raise RunError(f"{came:,} tuples came in, and the feed has {sum(feed.rows):,}")
    # Before the first batch of all lies the start of the query.
    warm = first[: min(job.warm_up, len(first) - 1)]
    began = warm[-1]["time"]
    span = [line for line in lines if line["time"] > began]
    seconds = [line["seconds"]["compute"] + line["seconds"]["publish"] for line in span]
    return Measured(
        policy=period,
        rows=came - sum(line["rows"] for line in warm),
        seconds=max(line["time"] for line in lines) - began,
        cpu=cpu,
        busy=sum(seconds),
        batch_seconds=middle(seconds),
        answer=answer,
    )


def answer_in(folder: Path) -> Answer:
    """Read what a run left in a folder: the digest does not depend on how rows are dealt to files.

    Columns are digested one by one, values and validity, so that many rows need little memory.
    """
    digests: dict[str, Any] = {}
    rows = 0
    for path in sorted(folder.glob("part-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches():
            rows += batch.num_rows
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                known = column.is_valid().to_numpy(zero_copy_only=False).tobytes()
                for what, content in ((name, _bytes_of(column)), (f"{name} is there", known)):
                    digests.setdefault(what, xxhash.xxh3_128()).update(content)
    together = b"".join(name.encode() + digests[name].digest() for name in sorted(digests))
    return Answer(rows=rows, checksum=xxhash.xxh3_128_hexdigest(together))


def _bytes_of(column: pa.Array) -> bytes:
    if pa.types.is_string(column.type):
        # A null is told by the validity.
        return "\n".join(value or "" for value in column.to_pylist()).encode() + b"\n"
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return bytes(column.fill_null(0).to_numpy(zero_copy_only=False).tobytes())
