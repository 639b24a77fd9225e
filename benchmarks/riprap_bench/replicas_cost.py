"""What replicas cost while nothing happens: events a second, processor time and memory of all processes together.

A finite feed is read as fast as it goes, by variants that take turns. What is twice there is compared with the same
elements in the same number of places without replicas: the group's operators in a process of their own, or all but the
source and the sink. The whole application in one element is measured too. The answer is checked after each run.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.errors import RunError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import supervise
from riprap_bench.answers import difference, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.checkpoint_plan import Track
from riprap_bench.feed import FeedFiles, make_feed
from riprap_bench.measuring import Memory, middle, spread
from riprap_bench.replicas_plan import DESCRIBE, FIRST, Plan, Variant, options

# What replicas are compared with.
BESIDE: Mapping[Variant, Variant] = {"group": "placed", "all": "placed all"}
_WARM_UP_SHARE = 0.2
_SAMPLE_SECONDS = 0.25
# Adding up the pages of a large process takes the kernel milliseconds.
_SAMPLES_A_MEMORY = 4
_PATIENCE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run: its events a second after the warm-up, processor seconds for a million of them, and its peak memory."""

    variant: Variant
    events_per_s: float
    cpu_per_million: float
    memory_mb: float


@dataclass(slots=True)
class Usage:
    """Watches over all processes under this one: the processor time they have had, by and by, and their memory.

    Those that have ended count with what was seen of them last.
    """

    memory: Memory = field(default_factory=Memory)
    _seconds: dict[tuple[int, float], float] = field(default_factory=dict)
    _samples: list[tuple[float, float]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def between(self, began: float, ended: float) -> float:
        """Return the processor seconds that all had between two moments."""
        moments, seconds = zip(*self._samples, strict=True)
        return float(np.diff(np.interp([began, ended], moments, seconds))[0])

    def _watch(self) -> None:
        number = 0
        while not self._over.wait(_SAMPLE_SECONDS):
            processes = psutil.Process(os.getpid()).children(recursive=True)
            for process in processes:
                try:
                    times = process.cpu_times()
                    self._seconds[process.pid, process.create_time()] = times.user + times.system
                except psutil.Error:
                    continue
            self._samples.append((time.time(), sum(self._seconds.values())))
            if number % _SAMPLES_A_MEMORY == 0:
                self.memory.see(processes)
            number += 1


def measure_cost(
    plan: Plan, folder: Path, track: Track, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run all variants so many rounds; ``keep`` hears of the result after each."""
    share = plan.estimate()["cost"] / (plan.rounds * len(plan.variants))
    feed = make_feed(folder / "feed", plan.events, rows_per_file=500_000, seed=plan.seed)
    run_bare(feed.files, out=folder / "oracle")
    right = read_answer(folder / "oracle")
    ran: list[Ran] = []
    for number in range(plan.rounds):
        # Nobody always comes first.
        turn = number % len(plan.variants)
        for variant in (*plan.variants[turn:], *plan.variants[:turn]):
            ran.append(_run(variant, feed, right, plan, folder / "run"))
            track.report(
                f"[{number + 1}/{plan.rounds}] {variant}: {ran[-1].events_per_s:,.0f} events/s, "
                f"{ran[-1].cpu_per_million:.2f} s of processors a million, {ran[-1].memory_mb:,.0f} MB"
            )
            track.pass_(share)
        keep(summed(plan, ran))
    return summed(plan, ran)


def _run(variant: Variant, feed: FeedFiles, right: pa.Table, plan: Plan, folder: Path) -> Ran:
    out = folder / "out"
    app = bargain(rr.files(list(map(str, feed.files))), rr.parquet(out, roll=0))
    DESCRIBE[variant](app)
    with (
        Usage() as usage,
        supervise(app.graph(), options(folder / "runs", batch_rows=plan.batch_rows), spare=False) as run,
    ):
        if not run.wait(_PATIENCE_SECONDS):
            raise RunError(f"{variant}: not done after {_PATIENCE_SECONDS:.0f} s")
        lines = list(RunFolder(run.folder, time.time).read_metrics())
    wrong = difference(right, read_answer(out))
    if wrong is not None:
        raise RunError(f"{variant}: the answer is another: {wrong}")
    ran = measured(variant, lines, usage, feed.events)
    shutil.rmtree(folder)
    return ran


def measured(variant: Variant, lines: Sequence[Mapping[str, Any]], usage: Usage, events: int) -> Ran:
    """Sum up a run from the end of its warm-up, a fifth of the events, until its sink has all."""
    first = [line for line in lines if line["element"] == FIRST]
    came = np.cumsum([line["rows"] for line in first])
    if not len(came) or came[-1] != events:
        raise RunError(f"{variant}: {came[-1] if len(came) else 0:,} events came in, of {events:,}")
    warm = int(np.searchsorted(came, _WARM_UP_SHARE * events))
    began = first[warm]["time"]
    ended = max(line["time"] for line in lines if line["total"]["out"])
    rows = events - int(came[warm])
    cpu = usage.between(began, max(line["time"] for line in lines))
    return Ran(
        variant=variant,
        events_per_s=rows / (ended - began),
        cpu_per_million=cpu / rows * 1e6,
        memory_mb=usage.memory.total,
    )


def summed(plan: Plan, ran: Sequence[Ran]) -> dict[str, Any]:
    """Return medians and spread of each variant, and its ratios to what it is compared with, round by round."""
    figures = ("events_per_s", "cpu_per_million", "memory_mb")
    by = {v: [r for r in ran if r.variant == v] for v in plan.variants if any(r.variant == v for r in ran)}
    lines = {}
    for variant, runs in by.items():
        values = {name: [getattr(r, name) for r in runs] for name in figures}
        line: dict[str, Any] = {n: {"median": middle(v), "spread": spread(v)} for n, v in values.items()}
        for what, other in (("ratios", BESIDE.get(variant)), ("ratios_to_single", "single")):
            if other in by and other != variant:
                pairs = list(zip(runs, by[other], strict=False))
                line[what] = {
                    name: middle([getattr(a, name) / getattr(b, name) for a, b in pairs]) for name in figures
                }
        lines[variant] = line
    return {
        "lines": lines,
        "events": plan.events,
        "batch_rows": plan.batch_rows,
        "runs": [asdict(r) for r in ran],
        "same_answer": True,
    }
