"""A run's folder: settings, versions, events and metrics, for people and for later commands.

<root>/<application>/<date>-<time>-<id>/      and  <root>/<application>/latest -> the newest that has begun
    run.json         command line, options, notes (such as the seed of the feed), versions
    state.json       how state is cut up: elements, buckets, and the columns of every stateful operator; and what
                     belongs to each replica group
    events.jsonl     started, resumed, failed, interrupted, stopped (to be taken up), ended; failures and what was
                     decided about them
    metrics.jsonl    one line a batch of an element: per operator tuples in and out, seconds, state; latency
                     (docs/profiles.md describes the line)
                     both are put aside when they are large, as events-0000000001.jsonl (riprap.runtime.rolled_lines)
    elements/<name>/ of each processing element:
        setting-0.json   what its processes share;  plan-0.pickle: the compiled graph; -1 if taken up again
        ledger/ spark/ sources/ tables/
        restore.json     which operators are to start from an older checkpoint, or afresh
        saver.lock       held by the agent that saves it (riprap.runtime.agent)
    checkpoints/     those of protected operators, where no other store is named (riprap.state.stores)
    channels/<name>/ the streams between elements
    quarantine/<source>/  records that could not be read (format: riprap.adapters.bad_records)
    switches/        which replica of each group counts (riprap.runtime.switch)
    regions.json     how its consistent regions stand (riprap.runtime.supervision.regions)
    processes/       of a supervised run, which driver processes it has (riprap.runtime.supervision.presence)
    spark.log        what JVMs and Python workers print, where Riprap made the session; runs of one process, and so of
                     one JVM, share it
    graph.pickle     the application, and how it is run, for the driver processes of a supervised run
    key              seals objects of users' classes (riprap.state.seals);  lease: its driver's (riprap.state.leases)
    results/         results on their way to sinks, where the user names a folder for pages
    ended            exists once the run has ended
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from riprap.adapters.bad_records import count_quarantined
from riprap.errors import RunError
from riprap.runtime.rolled_lines import Following, RolledLines
from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-run/1"
# Counting takes at most one part in so many of the time.
_COUNT_SHARE = 50


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self._clock = clock
        self._events = RolledLines(path, "events")
        self._metrics = RolledLines(path, "metrics")
        self._quarantined: tuple[float, dict[str, int]] = (-math.inf, {})

    @classmethod
    def create(cls, root: Path, application: str, clock: Callable[[], float]) -> RunFolder:
        """Make a new dated folder."""
        stamp = datetime.fromtimestamp(clock(), UTC).strftime("%Y-%m-%d-%H%M%S")
        path = (root / application / f"{stamp}-{uuid.uuid4().hex[:6]}").absolute()
        path.mkdir(mode=0o700, parents=True)
        return cls(path, clock)

    @classmethod
    def reopen(cls, path: Path, application: str, clock: Callable[[], float]) -> RunFolder:
        """Open the folder of an earlier run, to take it up again."""
        resolved = path.resolve()
        if not resolved.exists():
            raise RunError(
                f"there is no folder {path}: folder= takes up an earlier run. A new one gets a folder of its own, "
                "under runs="
            )
        opened = cls(resolved, clock)
        data = opened.about()
        if data["application"] != application:
            raise RunError(f"{path} is a run of '{data['application']}', not of '{application}'")
        return opened

    def about(self) -> dict[str, Any]:
        """Read what is run, and how."""
        about = read_about(self.path)
        if about is None:
            raise RunError(
                f"{self.path} is not a run folder: it has no run.json. folder= takes up an earlier run; runs= is where "
                "new ones get theirs"
            )
        return about

    def be_latest(self) -> None:
        """Let ``latest`` beside it point to it: from now on there is something to take up."""
        link = self.path.parent / f".latest-{uuid.uuid4().hex[:6]}"
        link.symlink_to(self.path.name)
        link.rename(self.path.parent / "latest")

    @property
    def identity(self) -> str:
        return f"{self.path.parent.name}-{self.path.name}"

    def describe(
        self,
        application: str,
        options: Mapping[str, Any],
        notes: Mapping[str, Any],
        *,
        master: str,
        java: str,
    ) -> None:
        """Write down what is run, how, and with which versions."""
        libraries = ("riprap", "pyspark", "pyarrow", "numpy", "numba", "pandas", "sqlglot")
        about = {
            "format": FORMAT,
            "application": application,
            "command": sys.argv,
            "options": {
                k: v if isinstance(v, str | int | float | bool | None) else str(v) for k, v in options.items()
            },
            "notes": dict(notes),
            "master": master,
            "python": platform.python_version(),
            "java": java,
            "versions": {name: version(name) for name in libraries},
            "cores": os.cpu_count(),
            "started": self._clock(),
        }
        save_json(self.path / "run.json", about, indent=2)

    def event(self, kind: str, **details: Any) -> None:
        """Note that something happened."""
        self._events.append({"time": self._clock(), "event": kind, **details})

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Yield what happened, oldest first; a line that is being written is left out."""
        yield from self._events.read()

    def follow_events(self, *, all_of_them: bool = False) -> Following:
        """Return what gives the events from now on, or from the first."""
        return self._events.follow(all_of_it=all_of_them)

    def quarantine(self, source: str) -> Path:
        """Return where a source's bad records go."""
        return self.path / "quarantine" / source

    def quarantined(self) -> dict[str, int]:
        """Count the bad records of each source that has any.

        Asked for many times a second: what takes long to count is counted anew only now and then.
        """
        due, counts = self._quarantined
        began = time.monotonic()
        if began >= due:
            root = self.path / "quarantine"
            folders = sorted(root.iterdir()) if root.exists() else []
            counts = {folder.name: count_quarantined(folder) for folder in folders}
            ended = time.monotonic()
            self._quarantined = (ended + _COUNT_SHARE * (ended - began), counts)
        return counts

    def metrics(self, line: Mapping[str, Any]) -> None:
        """Note what a batch did."""
        self._metrics.append(line)

    def read_metrics(self) -> Iterator[dict[str, Any]]:
        """Yield what the batches did, oldest first; of a repeated batch, each time."""
        yield from self._metrics.read()

    def last_metrics(self, elements: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the last line of each element that has one."""
        newest: dict[str, dict[str, Any]] = {}
        wanted = set(elements)
        for line in self._metrics.backwards():
            if line["element"] in wanted:
                newest.setdefault(line["element"], line)
            if newest.keys() == wanted:
                break
        return newest

    def follow_metrics(self, *, all_of_them: bool = False) -> Following:
        """Return what gives the lines of batches from now on, or from the first."""
        return self._metrics.follow(all_of_it=all_of_them)

    def state_layout(self) -> dict[str, Any] | None:
        """Return how the run's state is cut up, None before it is."""
        remedy = (
            "Put it back from a copy, or from another run of the application that has as many buckets; or start a new "
            "run"
        )
        entries = {"elements": dict, "buckets": int, "operators": dict}
        return load_json(self.path / "state.json", None, entries, remedy=remedy)

    def keep_state_layout(self, layout: Mapping[str, Any]) -> None:
        """Write down how state is cut up; refuse another way than the run began with, for it would be misread."""
        kept = self.state_layout()
        if kept is not None and kept["buckets"] != layout["buckets"]:
            raise RunError(
                f"the run in {self.path} has {kept['buckets']} buckets, not {layout['buckets']}: the number is fixed "
                f"for the life of the state. Give buckets={kept['buckets']}, or none"
            )
        before, now = (kept or layout)["operators"], layout["operators"]
        changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
        if changed:
            raise RunError(
                f"the run in {self.path} has state of {', '.join(changed)} that this application would misread: "
                f"{before.get(changed[0], 'nothing')} there, {now.get(changed[0], 'nothing')} here. Take it up with "
                "the application it was started with, or start a new run"
            )
        if kept is not None and kept["elements"] != layout["elements"]:
            raise RunError(
                f"the run in {self.path} has processing elements {kept['elements']}, and here they are "
                f"{layout['elements']}: state and channels would not be found. Take it up with the application it was "
                "started with, or start a new run"
            )
        self.replace_state_layout(layout)

    def replace_state_layout(self, layout: Mapping[str, Any]) -> None:
        """Write down how state is cut up from now on."""
        save_json(self.path / "state.json", layout)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return (self.path / "ended").exists()

    def end(self) -> None:
        """Mark the run as ended: it cannot be taken up again, and its pages may go."""
        (self.path / "ended").touch()


def read_about(run_folder: Path) -> dict[str, Any] | None:
    """Read what a run's folder says of it, None if it says nothing yet."""
    remedy = (
        "Put it back from a copy, or from another run of the application (its 'options' say where checkpoints are); or "
        "start a new run"
    )
    return load_json(run_folder / "run.json", FORMAT, {"application": str, "options": dict}, remedy=remedy)
