"""Minutes of load with a random crash every few seconds: nothing lost, nothing doubled, nothing that grows.

    python -m riprap_bench.soak --minutes 10 --seed 1

Bargain Discovery and word count run under supervision, one after the other, half the time each. Driver processes and
workers are killed at random moments, also while the last one is still being replaced; and whole hosts, their memory
wiped, which takes a consistent region, but with ``--no-hosts``. In the end the sink must hold exactly what a plain loop
says. Disk, memory and descriptors are looked at all the while; the run's own folder and its pages count, its input and
its results do not. The seed decides which crashes there are and when, not how far the run has come by then. A run
that failed is kept, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

import riprap as rr
from riprap.errors import RunError
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.supervision.real_crashes import kill_executor, kill_host, kill_process
from riprap_bench.measuring import Memory, Report, middle
from riprap_bench.protecting import protected
from riprap_bench.soak_loads import Bargains, Load, Words

PERIOD = "2s"
_KILLS: dict[str, Callable[[Path, str], Any]] = {
    "process": kill_process,
    "worker": kill_executor,
    "host": kill_host,
}
_TICK_SECONDS = 0.25
_SAMPLE_SECONDS = 2.0
# Starting, and coming to an end.
_AROUND_SECONDS = 45.0
# After the last crash something new has to come out within such a time, until everything is there.
_PATIENCE_SECONDS = 180.0
# What a quantity may be above a third of the time earlier: so many times as much, and so much more.
_SHARE = 1.25
_ROOM = {"disk_mb": 8.0, "pages_mb": 8.0, "memory_mb": 150.0, "descriptors": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how hard and with which crashes."""

    minutes: float = 10.0
    seed: int = 1
    hosts: bool = True
    pause: tuple[float, float] = (2.0, 8.0)
    rate: float = 2_000.0

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("process", "worker", "host") if self.hosts else ("process", "worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a run takes at a moment."""

    seconds: float
    disk_mb: float
    pages_mb: float
    memory_mb: float
    descriptors: float


def soak(plan: Plan, report: Report) -> dict[str, Any]:
    """Put both applications under load, one after the other; raise what is wrong."""
    found = {}
    seconds = 30 * plan.minutes
    top = Path(tempfile.mkdtemp(prefix="riprap-soak-"))
    loads: list[Load] = [
        Bargains(top / "bargain", seconds=seconds, rate=plan.rate, seed=plan.seed),
        Words(top / "wordcount", seed=plan.seed),
    ]
    report(
        f"this takes about {(2 * (seconds + _AROUND_SECONDS)) / 60:.0f} minutes, and {_PATIENCE_SECONDS / 60:.0f} more "
        "each if something hangs"
    )
    for load in loads:
        report(f"{load.name}: {seconds:.0f} s of load, crashes of {' and '.join(plan.kinds)}")
        try:
            found[load.name] = _Soaking(plan, load, top / load.name / "runs", seconds, report).carry_out()
        except BaseException:
            report(f"what {load.name} left is in {top / load.name}")
            raise
    shutil.rmtree(top)
    return {"loads": found, "plan": asdict(plan)}


@dataclass(frozen=True, slots=True)
class _Soaking:
    plan: Plan
    load: Load
    runs: Path
    seconds: float
    report: Report

    def carry_out(self) -> dict[str, Any]:
        most = int(self.seconds / self.plan.pause[0]) + 10
        # Crashes are meant here, however many, also in a row before a region is back. Spark counts the failures of a
        # task that stays for as long as it does.
        terms = rr.consistent(period=PERIOD, max_consecutive_reset_attempts=most)
        graph = protected(self.load.graph(), terms if self.plan.hosts else None)
        patience = Patience(restarts=most, retries=most, backoff=(0.0,))
        options = rr.RunOptions(
            master=f"local[2,{most}]",
            config={"spark.log.level": "OFF"},
            runs=self.runs,
            trigger=self.load.trigger,
        )
        with supervise(graph, options, patience=patience, spare=True) as run:
            run.await_up()
            crashes, samples = self._crash(run)
            shown = ", ".join(f"{many} {kind}" for kind, many in sorted(crashes.items())) or "no crash"
            self.load.close()
            self._await(run, shown)
            if run.running:
                run.stop()
            back = run.recoveries()
        away = middle([each.seconds for each in back]) if back else 0.0
        wrong = self.load.wrong()
        if wrong is not None:
            raise RunError(f"{self.load.name}, after {shown} (seed {self.plan.seed}): {wrong}")
        growing = grown(samples)
        self.report(
            f"{self.load.name}: killed {shown}; back after {away:.1f} s; nothing lost, nothing doubled; "
            f"{'nothing' if not growing else ', '.join(growing)} grew"
        )
        for name, (was, now) in medians(samples).items():
            self.report(f"    {name}: {was:,.0f} in the second third, {now:,.0f} in the last")
        return {
            "crashes": dict(crashes),
            "recoveries": len(back),
            "recovery_seconds": away,
            "grown": growing,
            "samples": [asdict(each) for each in samples],
        }

    def _crash(self, run: Supervised) -> tuple[Counter[str], list[Sample]]:
        """Crash things until the time is over; return how often what was, and what the run took meanwhile."""
        draw = random.Random(f"{self.plan.seed} {self.load.name}")
        crashes: Counter[str] = Counter()
        samples: list[Sample] = []
        began = time.monotonic()
        crash, look = draw.uniform(*self.plan.pause), 0.0
        while (now := time.monotonic() - began) < self.seconds and run.running and not run.halted:
            self.load.tick()
            if now >= look:
                samples.append(sample(run.folder, now))
                look = now + _SAMPLE_SECONDS
            if now >= crash:
                kind = draw.choice(self.plan.kinds)
                crashes[kind if self._kill(run, kind) else "too early"] += 1
                crash = now + draw.uniform(*self.plan.pause)
            time.sleep(_TICK_SECONDS)
        return crashes, samples

    def _kill(self, run: Supervised, kind: str) -> bool:
        try:
            _KILLS[kind](run.folder, self.load.element)
        except (RunError, psutil.Error):
            # What was killed before is still down.
            return False
        return True

    def _await(self, run: Supervised, shown: str) -> None:
        """Wait until all has come out; ``shown`` is what was killed."""
        deadline, come = time.monotonic() + _PATIENCE_SECONDS, -1
        after = f"{self.load.name}, after {shown} (seed {self.plan.seed})"
        while run.running and not self.load.arrived():
            if run.halted:
                raise RunError(f"{after}: a region is halted: {'; '.join(run.halted.values())}")
            if (now := len(list(self.load.out.glob("part-*")))) > come:
                deadline, come = time.monotonic() + _PATIENCE_SECONDS, now
            if time.monotonic() > deadline:
                raise RunError(f"{after}: the run in {run.folder} does not come to its end")
            time.sleep(_TICK_SECONDS)


def sample(folder: Path, seconds: float) -> Sample:
    """Look at what a run takes: its folder, its pages, the memory and the descriptors of all its processes."""
    ours = psutil.Process()
    processes = [ours, *ours.children(recursive=True)]
    memory = Memory()
    memory.see(processes)
    pages = {Path(place) for p in find_presences(folder) for each in p.pages.values() for place in each}
    return Sample(
        seconds=seconds,
        disk_mb=_size(folder),
        pages_mb=sum(_size(place) for place in pages),
        memory_mb=memory.total,
        descriptors=sum(_descriptors(process) for process in processes),
    )


def _size(folder: Path) -> float:
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(at, name)).st_size
            except OSError:
                continue
    return total / 1e6


def _descriptors(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except psutil.Error:
        return 0


def grown(samples: Sequence[Sample]) -> list[str]:
    """Name what is more in the last third of the time than in the third before it; at first everything is."""
    return [
        f"{name} ({was:,.0f} to {now:,.0f})"
        for name, (was, now) in medians(samples).items()
        if now > _SHARE * was + _ROOM[name]
    ]


def medians(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return what a run took in the middle third of the time and in the last, by quantity.

    A process that starts, or a spare beside it, takes some for a while, so it is the medians that are compared.
    """
    third = len(samples) // 3
    if not third:
        return {}
    before, last = samples[third : 2 * third], samples[2 * third :]

    def median(name: str, part: Sequence[Sample]) -> float:
        return middle([float(getattr(each, name)) for each in part])

    return {name: (median(name, before), median(name, last)) for name in _ROOM}


def main(arguments: Sequence[str]) -> int:
    """Soak, and tell; 1 if something grew, or is lost or doubled."""
    parser = argparse.ArgumentParser(prog="make soak", description="Minutes of load with random crashes.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of load, half of them each (10)")
    parser.add_argument("--seed", type=int, default=1, help="other crashes for each number (1)")
    parser.add_argument(
        "--hosts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="lose hosts too, under a consistent region",
    )
    given = parser.parse_args(arguments)
    plan = Plan(minutes=given.minutes, seed=given.seed, hosts=given.hosts)
    try:
        result = soak(plan, lambda line: print(line, flush=True))
    except RunError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    return int(any(found["grown"] for found in result["loads"].values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
