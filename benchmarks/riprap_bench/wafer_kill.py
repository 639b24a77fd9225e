"""Crash the model of wafer yield for real: its driver process is killed with all it started, and its pages are wiped.

A supervisor notices, waits as long as the model is to be down, and has a spare process take its place.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import riprap as rr
from riprap.apps.wafer import wafer
from riprap.errors import RunError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.journal import Recovered
from riprap.runtime.supervision.real_crashes import kill_host
from riprap_bench.wafer_trial import Pace, Point, Scenario, Seen, Trial, Wafers, hand_out, judge

MODEL, PROCESS = "model", "model"
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Killing:
    """A feed and a folder for trials, one at a time."""

    wafers: Wafers
    pace: Pace
    folder: Path

    def home(self, point: Point, scenario: Scenario) -> Path:
        """Return the folder of a trial."""
        return self.folder / f"kill-{point.number}-{scenario}"

    def crash(self, point: Point, scenario: Scenario) -> Trial:
        """Run the application under a supervisor, kill its model once, and return what came of it."""
        return _kill(self.wafers, self.pace, point, scenario, self.home(point, scenario))


def _kill(wafers: Wafers, pace: Pace, point: Point, scenario: Scenario, home: Path) -> Trial:
    out = {name: home / name for name in ("predictions", "lots")}
    app = wafer(
        wafers.connector(home / "feed", pace, point),
        rr.parquet(out["lots"]),
        protect=pace.policy(scenario),
        predictions=rr.parquet(out["predictions"]),
        process=PROCESS,
    )
    patience = Patience(delay=point.down)
    with supervise(
        app.graph(),
        rr.RunOptions(
            master="local[1,2]",
            config={"spark.log.level": "OFF"},
            trigger=f"{pace.trigger}s",
            buckets=1,
            parallelism=1,
            runs=home / "runs",
        ),
        patience=patience,
        spare=True,
    ) as run:
        kept = RunFolder(run.folder, time.time)
        _until(run, lambda: _came(kept, MODEL, "Model") >= point.crash)
        crashed = time.time()
        kill_host(run.folder, MODEL)
        _until(run, lambda: _recoveries(run))
        back = _recoveries(run)[0]
        hand_out(home / "feed")
        _until(run, lambda: _came(kept, "wafer", "Source") == wafers.table.num_rows)
    seen = Seen(
        predictions=pq.read_table(out["predictions"]),
        lots=pq.read_table(out["lots"]),
        events=list(kept.read_events()),
        metrics=list(kept.read_metrics()),
    )
    seconds = back.detect + back.restart + back.restore
    trial = judge(
        wafers, seen, point, scenario=scenario, way="processes", crashed=crashed, seconds=seconds
    )  # fmt: skip
    shutil.rmtree(home)
    return trial


def _recoveries(run: Supervised) -> list[Recovered]:
    return [recovered for recovered in run.recoveries() if recovered.element == MODEL]


def _came(folder: RunFolder, element: str, operator: str) -> int:
    """Count the tuples that have reached an operator."""
    lines = (line["operators"].get(operator) for line in folder.read_metrics() if line["element"] == element)
    return sum(int(did["in"]) for did in lines if did is not None)


def _until(run: Supervised, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if not run.running:
            # It raises what went wrong.
            run.wait()
        if time.monotonic() > deadline:
            raise RunError(f"the run in {run.folder} came no further")
        time.sleep(_LOOK_SECONDS)
