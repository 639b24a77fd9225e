"""An application whose sums run as replicas, and what goes on in it: files that keep coming, and who is killed when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from tests.runtime.harness import lines_of, wait_until
from tests.runtime.supervision.watched import put_file

import riprap as rr
from riprap.runtime import Supervised
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.supervision.real_crashes import Killed, kill_host
from riprap.runtime.switch import read_switch

SINKS = ("by_caller", "by_callee")
_PACE_SECONDS = 0.15


def replicated(calls: Path, out: Path, *, region: bool = False, cut_by_file: bool = False) -> rr.Application:
    """Describe sums by caller and counts by callee, each with a sink of its own; nothing is replicated yet.

    They may be a region, that is cut by time, or after each file.
    """
    put_file(calls, 0)
    app = rr.Application("replicated")
    protect = rr.consistent(period="500ms") if region else None
    protect = rr.consistent(trigger="operator") if cut_by_file else protect
    files = rr.folder_scan(str(calls)) if cut_by_file else rr.files(str(calls))
    stream = app.source("calls", files, position="seq", protect=protect)
    sums = app.aggregate(
        "sums",
        stream,
        by="caller",
        window=rr.sliding(tuples=4),
        select="sum(minutes) as total, last(callee) as callee",
    )
    counts = app.aggregate(
        "counts", sums, by="callee", window=rr.tumbling(tuples=3), select="count(*) as n, max(total) as top"
    )
    app.sink("by_caller", sums, rr.parquet(out / "by_caller", roll=0))
    app.sink("by_callee", counts, rr.parquet(out / "by_callee", roll=0))
    return app


class Feeding:
    """Files that come, one after the other, as long as it is open."""

    def __init__(self, calls: Path) -> None:
        self._calls = calls
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self.files = 0

    def _feed(self) -> None:
        while not self._over.wait(_PACE_SECONDS):
            put_file(self._calls, self.files)
            self.files += 1

    def __enter__(self) -> Self:
        self.files = 1
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


class Scene:
    """A supervised run with replicas, to do something to and see what comes of it."""

    def __init__(self, run: Supervised) -> None:
        self.run = run
        self._deaths: Counter[str] = Counter()
        self._elements: dict[str, set[str]] = {}

    def replicas(self, group: str) -> tuple[str, str]:
        """Name the processes of the active replica of a group, and of the other."""
        active = read_switch(self.run.folder, group).active
        return f"{group}~{active}", f"{group}~{'b' if active == 'a' else 'a'}"

    def kill(self, process: str, victim: psutil.Process | None = None) -> None:
        """Kill the driver of a process, or who else it cannot live without."""
        self._note_death(process)
        (victim or self.driver(process)).kill()

    def lose_host(self, process: str) -> Killed:
        """Kill all of a process, and wipe its memory."""
        self._note_death(process)
        return kill_host(self.run.folder, process)

    def until_active(self, process: str) -> None:
        """Wait until a replica is active."""
        group, _, letter = process.partition("~")
        self.until(lambda: read_switch(self.run.folder, group).active == letter)
        self.until_told("failed over")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in lines_of(self.run.folder / "events.jsonl") if event["event"] == kind]

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for progress of a run that goes on."""
        wait_until(lambda: condition() or not self.run.running)
        assert self.run.running, (self.events("failure"), self.events("failed"))

    def until_told(self, kind: str, times: int = 1) -> dict[str, Any]:
        """Wait until an event has been told so often, and return the last."""
        self.until(lambda: len(self.events(kind)) >= times)
        return self.events(kind)[-1]

    def until_back(self, process: str) -> None:
        """Wait until all elements of a process have come back, as often as it has died."""

        def back(element: str) -> bool:
            return sum(r.element == element for r in self.run.recoveries()) >= self._deaths[process]

        self.until(lambda: all(map(back, self._elements[process])))

    def _note_death(self, process: str) -> None:
        self._deaths[process] += 1
        if process not in self._elements:
            (presence,) = [p for p in find_presences(self.run.folder) if p.process == process]
            self._elements[process] = set(presence.pages)

    def until_further(self) -> None:
        """Wait until sinks have had some more."""
        before = self.run.progress().tuples_out
        self.until(lambda: all(n > before[sink] for sink, n in self.run.progress().tuples_out.items()))

    def driver(self, process: str) -> psutil.Process:
        """Return the driver process of a replica."""
        (presence,) = [p for p in find_presences(self.run.folder) if p.process == process]
        return psutil.Process(presence.pid)

    def jvm(self, process: str) -> psutil.Process:
        """Return the JVM of a replica."""
        found = []
        for child in self.driver(process).children(recursive=True):
            # Others come and go.
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                found += [child] if "SparkSubmit" in " ".join(child.cmdline()) else []
        (jvm,) = found
        return jvm
