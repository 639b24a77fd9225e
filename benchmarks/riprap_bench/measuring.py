"""Measure trials in processes of their own: steady rates, peak memory, medians and spread, the machine."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from riprap.errors import RunError
from riprap.runtime.link import environment_with, search_path
from riprap_bench.trial import Trial

Report = Callable[[str], None]

_SAMPLE_SECONDS = 0.5  # the kernel takes milliseconds to add up the pages of a large process
_MB = 1e6


@dataclass(slots=True)
class Memory:
    """The highest memory seen, in MB: of all processes of a trial, and of its JVM and its Pythons alone.

    It is resident memory. A page that processes share counts once: each has its part of it. Where the system does not
    tell (it is Linux that does), it counts in each of them.
    """

    total: float = 0.0
    jvm: float = 0.0
    python: float = 0.0

    def see(self, processes: Sequence[psutil.Process]) -> None:
        """Take a sample."""
        sums = dict.fromkeys(("total", "jvm", "python"), 0.0)
        for process in processes:
            try:
                memory, name = process.memory_full_info(), process.name()
            except psutil.Error:
                continue
            resident = getattr(memory, "pss", memory.rss) / _MB
            sums["total"] += resident
            sums["jvm" if name == "java" else "python"] += resident
        for part, size in sums.items():
            setattr(self, part, max(getattr(self, part), size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a trial told and what was seen of it from outside."""

    trial: Trial
    told: Mapping[str, Any]
    memory: Memory

    @property
    def batches(self) -> list[tuple[int, float]]:
        return [(rows, end) for rows, end in self.told["batches"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Which source tree a trial is of: the program, and the folders from which its modules come if not from ours."""

    program: str = "riprap_bench.trial"
    folders: tuple[Path, ...] = ()


def measure(trial: Trial, *, timeout: float = 1800.0, tree: Tree | None = None) -> Outcome:
    """Run a trial in a fresh process and watch its memory; ``tree`` is where to find its program, if not here."""
    tree = Tree() if tree is None else tree
    folder = Path(trial.folder)
    folder.mkdir(parents=True)
    trial.save(folder / "trial.json")
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", tree.program, "trial.json", "result.json"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=environment_with(list(map(str, tree.folders)) or search_path()),
        )  # fmt: skip
        memory = Memory()
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(child.pid, memory, over), daemon=True)
        watch.start()
        try:
            code = child.wait(timeout)
        except BaseException as error:
            end(child)
            if isinstance(error, subprocess.TimeoutExpired):
                message = f"{trial.variant} was not done after {timeout:.0f} s:\n{_tail(folder)}"
                raise RunError(message) from error
            raise
        finally:
            over.set()
            watch.join()
    if code != 0 or not (folder / "result.json").exists():
        raise RunError(f"{trial.variant} failed (exit code {code}):\n{_tail(folder)}")
    outcome = Outcome(trial=trial, told=json.loads((folder / "result.json").read_text()), memory=memory)
    events = sum(rows for rows, _ in outcome.batches)
    if events != trial.events:
        raise RunError(f"{trial.variant} processed {events:,} events of {trial.events:,}")
    return outcome


def _watch(pid: int, memory: Memory, over: threading.Event) -> None:
    while not over.wait(_SAMPLE_SECONDS):
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            memory.see([root, *root.children(recursive=True)])


def end(child: subprocess.Popen[bytes]) -> None:
    """End a trial and everything it started."""
    try:
        family = psutil.Process(child.pid).children(recursive=True)
    except psutil.Error:
        family = []
    child.kill()
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue
    child.wait()


def _tail(folder: Path, lines: int = 30) -> str:
    return "\n".join((folder / "log").read_text(errors="replace").splitlines()[-lines:])


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What to leave out at the start: so many batches, and more until so many seconds have passed."""

    batches: int
    seconds: float

    def drop(self, batches: Sequence[tuple[int, float]], started: float) -> int:
        """Return how many batches are warm-up; the later half is always left to measure."""
        late = [end >= started + self.seconds for _, end in batches]
        count = max(self.batches, late.index(True) + 1 if True in late else len(batches))
        return max(1, min(count, len(batches) // 2))


def steady_rate(outcome: Outcome, warm_up: WarmUp) -> float:
    """Return events a second from the completion of the last warm-up batch to that of the last batch."""
    batches = outcome.batches
    if len(batches) < 3:
        raise RunError(f"{outcome.trial.variant}: a rate takes three batches, and there are {len(batches)}")
    # Warm-up is counted from the first completion; before it lies the start of Spark.
    dropped = warm_up.drop(batches, batches[0][1])
    events = sum(rows for rows, _ in batches[dropped:])
    return events / (batches[-1][1] - batches[dropped - 1][1])


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return float(median(values))


def spread(values: Sequence[float]) -> list[float]:
    """Return the least and the greatest."""
    return [min(values), max(values)]


def rounded(value: Any, digits: int = 4) -> Any:
    """Round every number inside a JSON-able value to some significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {k: rounded(v, digits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v, digits) for v in value]
    return value


def about(**more: Any) -> dict[str, Any]:
    """Describe the machine, the versions and the moment."""
    libraries = ("riprap", "pyspark", "pyarrow", "numpy", "numba", "pandas")
    return {
        "date": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in libraries},
        **more,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
