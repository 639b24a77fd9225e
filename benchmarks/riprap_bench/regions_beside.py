"""The same jobs in a consistent region and on plain Structured Streaming with its checkpoints, taking turns.

Plain Spark gets the same files: as many a trigger as make it quick, and then one, for the time of a batch. It has so
many seconds; what it has read by then is what it is measured by. All answers are those of other programs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq

from riprap.errors import RunError
from riprap.runtime.link import environment_with, search_path
from riprap_bench.checkpoint_feeds import Feed
from riprap_bench.checkpoint_plan import Track
from riprap_bench.checkpoint_ratios import median_of
from riprap_bench.measuring import end, middle
from riprap_bench.regions_jobs import Job, job_of
from riprap_bench.regions_oracle import wrong
from riprap_bench.regions_plain import BATCHES, FIRST_SECONDS, Completions, PlainJob, Store
from riprap_bench.regions_plan import PLAIN_AROUND_SECONDS, RUN_SECONDS, Name, Plan
from riprap_bench.regions_runs import Bench, Measured

Keep = Callable[[dict[str, Any]], None]
# Plain Spark is slower: a run of Riprap's is measured over so much input that Spark's takes a few times as long.
_SHARE = 0.35
FILES_A_TRIGGER = 8
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Plain:
    """A run of plain Spark: so many rows a second after the first quarter of its batches, and how long one took."""

    store: Store
    files_a_trigger: int
    rows: int
    of: int
    rate: float
    batch_seconds: float

    @property
    def told(self) -> str:
        part = "" if self.rows == self.of else f" ({self.rows:,} of {self.of:,} rows in time)"
        return f"{self.rate:,.0f} with {self.files_a_trigger} files a trigger, {self.store}{part}"


@dataclass(frozen=True, slots=True)
class Turn:
    """A run of Riprap's and those of plain Spark beside it."""

    ours: Measured
    quick: tuple[Plain, ...]
    single: Plain

    @property
    def quickest(self) -> Plain:
        return max(self.quick, key=lambda plain: plain.rate)


def measure_plain(plan: Plan, bench: Bench, track: Track, keep: Keep) -> dict[str, Any]:
    """Run each job both ways over the same files; keep what there is after each turn."""
    turns: dict[str, list[Turn]] = {name: [] for name in plan.plain_names}
    for number in range(plan.repetitions):
        for name in plan.plain_names:
            turns[name].append(_turn(plan, bench, name, number, track))
            keep(_result(turns))
    return _result(turns)


def _turn(plan: Plan, bench: Bench, name: Name, number: int, track: Track) -> Turn:
    job, folder = job_of(name, plan.seed), bench.folder / f"plain-{name}"
    feeds = folder / "feed"
    if not feeds.exists():
        job.write(feeds, bench.batches_for(job, feeds, _SHARE * plan.seconds))
    feed = job.write(feeds, len(list(feeds.iterdir())))
    ours = bench.run(job, feed, plan.plain_period, check=True)
    track.report(f"{name}: {ours.rate:,.0f} tuples/s in a region")
    track.pass_(plan.seconds + RUN_SECONDS)
    quick: list[Plain] = []
    apart = set_apart(feed.files, folder / "apart")

    def plain(store: Store, files_a_trigger: int) -> Plain:
        described = PlainJob(
            name=name,
            files=tuple(map(str, apart)),
            files_a_trigger=files_a_trigger,
            store=store,
            seconds=plan.plain_seconds,
        )
        found = run_plain(job, feed, described, folder / f"plain-{number}-{store}-{files_a_trigger}")
        track.report(f"{name}: plain Spark {found.told}")
        track.pass_(plan.plain_seconds + PLAIN_AROUND_SECONDS)
        return found

    stores: tuple[Store, ...] = get_args(Store)
    quick += [plain(store, FILES_A_TRIGGER) for store in stores]
    best = max(quick, key=lambda each: each.rate)
    return Turn(ours, tuple(quick), plain(best.store, 1))


def set_apart(files: Sequence[Path], folder: Path) -> list[Path]:
    """Return the files, as copies if some are links of others: Spark takes files by age, which links share."""
    if all(file.stat().st_nlink == 1 for file in files):
        return list(files)
    folder.mkdir(exist_ok=True)
    copies = [folder / file.name for file in files]
    for file, copy in zip(files, copies, strict=True):
        if not copy.exists():
            shutil.copyfile(file, copy)
    return copies


def run_plain(job: Job, feed: Feed, described: PlainJob, folder: Path) -> Plain:
    """Run a plain job in a process of its own, check its answer, and say how quick it was."""
    assert described.seconds is not None
    child = start_plain(described, folder)
    patience = described.seconds + 2 * FIRST_SECONDS
    deadline = time.monotonic() + patience
    try:
        while not (folder / BATCHES).exists():
            if child.poll() is not None or time.monotonic() > deadline:
                what = f"ended with code {child.poll()}" if child.poll() is not None else "was not done"
                lines = (folder / "log").read_text(errors="replace").splitlines()[-20:]
                raise RunError(
                    f"{described.name}: plain Spark {what} within {patience:.0f} s:\n" + "\n".join(lines)
                )
            time.sleep(_LOOK_SECONDS)
    finally:
        end(child)
    batches: Completions = [tuple(b) for b in json.loads((folder / BATCHES).read_text())["batches"]]
    if not batches:
        # It is slower than that.
        rows = sum(feed.rows[: described.files_a_trigger])
        return Plain(
            described.store, described.files_a_trigger, 0, sum(feed.rows), rows / FIRST_SECONDS, FIRST_SECONDS
        )
    read = min(described.files_a_trigger * len(batches), len(feed.files))
    rows = sum(count for count, _, _ in batches)
    # To Riprap the end of a log is a line.
    if abs(rows - list(accumulate(feed.rows))[read - 1]) > 1:
        raise RunError(f"{described.name}: plain Spark read {rows:,} rows, which is not {read} files")
    # A batch that it was stopped in may have left a part.
    outs = [folder / "out" / f"batch={number}" for number in range(len(batches))]
    found = pq.read_table([str(file) for out in outs for file in sorted(out.glob("*.parquet"))])
    # Attacks that are over come out with the next batch.
    other = wrong(job, feed.files[:read], found, over=max(0, read - described.files_a_trigger))
    if other is not None:
        raise RunError(f"{described.name}: plain Spark has {other}")
    shutil.rmtree(folder)
    seconds = middle([s for _, _, s in batches])
    return Plain(described.store, described.files_a_trigger, rows, sum(feed.rows), _rate(batches), seconds)


def start_plain(described: PlainJob, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process of a plain job; what is in its folder already it takes up."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(asdict(described)))
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "riprap_bench.regions_plain", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment_with(search_path()),
        )  # fmt: skip


def _rate(batches: Completions) -> float:
    """Return the rows a second after the first quarter of the batches; of a single one, all there is."""
    if len(batches) == 1:
        return batches[0][0] / batches[0][2]
    warm = ceil(len(batches) / 4)
    return sum(rows for rows, _, _ in batches[warm:]) / (batches[-1][1] - batches[warm - 1][1])


def _result(turns: dict[str, list[Turn]]) -> dict[str, Any]:
    return {"lines": [_line(name, each) for name, each in turns.items() if each]}


def _line(name: str, turns: Sequence[Turn]) -> dict[str, Any]:
    throughput = median_of([turn.ours.rate / turn.quickest.rate for turn in turns])
    ours_s = middle([turn.ours.batch_seconds for turn in turns])
    plain_s = middle([turn.single.batch_seconds for turn in turns])
    return {
        "case": name,
        "throughput": throughput,
        "tuples_per_s": middle([turn.ours.rate for turn in turns]),
        "plain_tuples_per_s": middle([turn.quickest.rate for turn in turns]),
        "batch_seconds": ours_s,
        "plain_batch_seconds": plain_s,
        "plain": [asdict(plain) for turn in turns for plain in (*turn.quick, turn.single)],
        "met": {"throughput": throughput["median"] > 1, "latency": ours_s < plain_s},
    }
