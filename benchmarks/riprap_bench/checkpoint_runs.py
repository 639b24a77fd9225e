"""One run of the join, protected or not: how fast, how much processor time, which checkpoints, which answer.

All runs share a session, and so its workers and compiled code. What is measured lies between the end of a warm-up batch
and the end of the last one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psutil
import pyarrow as pa
import pyarrow.csv as pa_csv
import xxhash

import riprap as rr
from riprap.errors import RunError
from riprap.graph.connectors import SinkConnector
from riprap.protection import Checkpoint
from riprap.state.leases import sweep
from riprap.state.pages import page_root
from riprap_bench.checkpoint_feeds import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riprap.runtime.run import Run

KEEP = 3
# Of the pairs, one in so many is put out: what is found is counted, what is kept is compared.
SAMPLE = 61
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 900.0
_LINE_SECONDS = 10.0

Group = int | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the join is protected."""

    every: float
    group: Group

    def build(self) -> Checkpoint:
        return rr.checkpoint(every=self.every, keep=KEEP, group=self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a run put out: how many matches, and of those kept how many and their digest."""

    matches: int
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A checkpoint: what was written, over how long, and how many tuples had entered since the one before it."""

    written: int
    seconds: float
    entered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a run; ``busy`` is the time its batches took, which is less than all of it where input is paced,
    ``work`` what the join took of it, summed over tasks, and ``saving`` the processor time of the thread that saves."""

    policy: Policy | None
    rows: int
    seconds: float
    cpu: float
    busy: float
    work: float
    answer: Answer
    checkpoints: tuple[Taken, ...] = ()
    missed: int = 0
    failed: int = 0
    saving: float = 0.0

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tuples_per_s": self.rate}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Take up a run that was measured in an earlier sitting."""
        fields = {name: value for name, value in told.items() if name != "tuples_per_s"}
        fields["policy"] = Policy(**told["policy"]) if told["policy"] is not None else None
        fields["answer"] = Answer(**told["answer"])
        fields["checkpoints"] = tuple(Taken(**each) for each in told["checkpoints"])
        return cls(**fields)


def join_app(
    feed: Feed,
    *,
    by: str,
    window: int,
    policy: Policy | None,
    sample: int = SAMPLE,
    out: SinkConnector | None = None,
) -> rr.Application:
    """Describe the join of S1, of which a window is held, with S2, of which none is."""
    app = rr.Application("checkpoint_bench")
    both = app.source("Feed", rr.folder_scan(list(feed.files)))
    s1 = app.functor("S1", both, where="side = 1", select="whole, number, other, text")
    s2 = app.functor("S2", both, where="side = 2", select="whole, number, word")
    joined = app.join(
        "Join",
        s1,
        s2,
        by=by,
        windows=(rr.sliding(tuples=window), rr.sliding(tuples=0)),
        where="S1.number = S2.number" if by == "whole" else None,
        select="S1.number as number, S1.other as other, S1.text as text, S2.word as word",
        protect=policy.build() if policy is not None else None,
    )
    kept = app.functor("Kept", joined, where=f"other % {sample} = 0", select="number, other, text, word")
    app.sink("Out", kept, rr.memory() if out is None else out)
    return app


@dataclass(slots=True)
class Bench:
    """A session and a folder in which runs are made one after the other."""

    session: SparkSession
    folder: Path
    runs: int = 0

    def run(
        self,
        app: rr.Application,
        feed: Feed,
        policy: Policy | None,
        *,
        warm_up: int,
        trigger: str | None = None,
    ) -> Measured:
        """Run an application over its feed, and measure from the end of ``warm_up`` batches to that of the last."""
        self.runs += 1
        runs = self.folder / f"runs-{self.runs}"
        with app.run(spark=self.session, batch_rows=max(feed.rows), runs=runs, trigger=trigger) as run:
            before = _wait(run, warm_up)
            after = _wait(run, len(feed.rows))
            lines = _lines(run, len(feed.rows))
            table = run.table("Out")
        # With the folder gone, nobody can take up what a run left in host memory.
        shutil.rmtree(runs)
        sweep(page_root())
        lines = lines[: len(feed.rows)]
        if [line["rows"] for line in lines] != list(feed.rows):
            raise RunError(f"a batch is not what its file holds: {[line['rows'] for line in lines][:10]} ...")
        span = lines[warm_up:]
        known = [line["checkpoints"]["Join"] for line in lines] if policy is not None else []
        return Measured(
            policy=policy,
            rows=sum(line["rows"] for line in span),
            seconds=lines[-1]["time"] - lines[warm_up - 1]["time"],
            cpu=after - before,
            busy=sum(line["seconds"]["compute"] + line["seconds"]["publish"] for line in span),
            work=sum(line["operators"]["Join"]["seconds"] for line in span),
            answer=_answer(lines, table),
            checkpoints=taken(known, feed.entering),
            missed=known[-1]["missed"] if known else 0,
            failed=known[-1]["failed"] if known else 0,
            saving=known[-1]["cpu"] - known[warm_up - 1]["cpu"] if known else 0.0,
        )


def _wait(run: Run, batches: int) -> float:
    """Wait until so many batches are done; return the processor time that this process and all under it had then."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while run.progress().batches < batches:
        if not run.running:
            # It raises what went wrong; a feed that is shorter than it should be is told of later.
            run.wait()
            break
        if time.monotonic() > deadline:
            raise RunError(f"batch {batches} was not done after {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    return processor_seconds(os.getpid())


def _lines(run: Run, batches: int) -> list[dict[str, Any]]:
    """Read what so many batches noted; the last line comes a moment after its batch counts as done."""
    from riprap.runtime.folder import RunFolder

    deadline = time.monotonic() + _LINE_SECONDS
    while True:
        whole = list(RunFolder(run.folder, time.time).read_metrics())
        if len(whole) >= batches or time.monotonic() > deadline:
            return whole
        time.sleep(_LOOK_SECONDS)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and all under it, those included that have ended and were waited for."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def taken(known: Sequence[Mapping[str, Any]], entering: Sequence[int]) -> tuple[Taken, ...]:
    """List the checkpoints that the lines of a run tell of; a batch in which two were taken tells of the later one."""
    found, version, batch, total = [], 0, -1, 0
    for status in known:
        if status["version"] == version:
            continue
        entered = sum(entering[batch + 1 : status["batch"] + 1])
        found.append(Taken(written=status["total"] - total, seconds=status["seconds"], entered=entered))
        version, batch, total = status["version"], status["batch"], status["total"]
    return tuple(found)


def _answer(lines: Sequence[Mapping[str, Any]], table: pa.Table) -> Answer:
    # As text, so that how the rows are laid out in memory does not matter.
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table.combine_chunks(), sink)
    return Answer(
        matches=sum(line["operators"]["Join"]["out"] for line in lines),
        rows=table.num_rows,
        checksum=xxhash.xxh3_128_hexdigest(sink.getvalue()),
    )
