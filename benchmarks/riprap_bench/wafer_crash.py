"""Crash the model of wafer yield inside one Spark session, so that many trials can run side by side.

    its query is cut off -> its pages are wiped -> it stays down, the others go on -> it is prepared, passes over what
    it missed, and starts

The way back is that of an element which a supervisor starts again; what is missing is the death of a process.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

import riprap as rr
from riprap.apps.wafer import wafer
from riprap.compiler import compile_graph
from riprap.errors import RunError
from riprap.graph.graph import Graph
from riprap.runtime.crew import Crew
from riprap.runtime.folder import RunFolder
from riprap.runtime.launch import Launch
from riprap.runtime.meter import Progress
from riprap.runtime.run import Close, close_books
from riprap.runtime.site import take_hold
from riprap.runtime.start import keep_state_layout
from riprap.runtime.supervision.real_crashes import wipe_pages
from riprap_bench.wafer_trial import Pace, Point, Scenario, Seen, Trial, Wafers, agree, hand_out, judge

ELEMENTS = SOURCE, MODEL, LAST = "wafer", "model", "quality"
_LOOK_SECONDS = 0.01
_CHECK_SECONDS = 1.0
_PATIENCE_SECONDS = 600.0
_ROWS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A session and a folder for trials, from any number of threads."""

    session: SparkSession
    folder: Path
    wafers: Wafers
    pace: Pace

    def crash(self, point: Point, scenario: Scenario) -> Trial:
        """Run the application, crash its model once, and return what came of it."""
        home = self.home(point, scenario)
        running = self._start(home, scenario, point)
        try:
            running.await_wafers(MODEL, point.crash)
            crashed = running.crash()
            running.idle(crashed + point.down)
            running.restart()
            seconds = time.time() - crashed
            hand_out(home / "feed")
            seen = running.finish(self.wafers.table.num_rows)
        except BaseException:
            running.abandon()
            raise
        trial = judge(
            self.wafers, seen, point, scenario=scenario, way="session", crashed=crashed, seconds=seconds
        )  # fmt: skip
        # Not if it failed: then people want to look.
        shutil.rmtree(home)
        return trial

    def home(self, point: Point, scenario: Scenario) -> Path:
        """Return the folder of a trial."""
        return self.folder / f"{point.number}-{scenario}"

    def undisturbed(self) -> dict[int, float]:
        """Run the application without a crash; return the quality of each lot."""
        running = self._start(self.folder / "undisturbed", "none")
        try:
            seen = running.finish(self.wafers.table.num_rows)
        except BaseException:
            running.abandon()
            raise
        return agree("no crash", self.wafers, seen, None)

    def _start(self, home: Path, scenario: Scenario, point: Point | None = None) -> Running:
        app = wafer(
            self.wafers.connector(home / "feed", self.pace, point),
            rr.memory(),
            protect=self.pace.policy(scenario),
            predictions=rr.memory(),
        )
        running = Running(app.graph(), self.session, home / "runs", self.pace)
        try:
            running.start()
        except BaseException:
            running.abandon()
            raise
        return running


class Running:
    """A run whose model is cut off and started again."""

    def __init__(self, graph: Graph, session: SparkSession, runs: Path, pace: Pace) -> None:
        self._folder = RunFolder.create(runs, graph.name, time.time)
        layout = compile_graph(graph, buckets=1, tasks=1)
        keep_state_layout(self._folder, layout)
        self._housing, self._lease = take_hold(self._folder, None, None, one_host=True)
        options = rr.RunOptions(trigger=pace.trigger, batch_rows=_ROWS)
        launch = Launch(graph=graph, session=session, folder=self._folder, resume=False, options=options)
        special = {
            # One batch of the source at a time, so that it can be cut off after a chosen wafer.
            MODEL: replace(options, batch_rows=1),
            LAST: replace(options, trigger=pace.last_trigger),
        }
        self._crew = Crew(launch, layout.plans, self._housing, options=special)
        self._checked = 0.0

    def start(self) -> None:
        """Start all elements, the source last: the pace begins with it."""
        for name in reversed(ELEMENTS):
            self._crew.begin([name], resume=())
        self._check()

    def crash(self) -> float:
        """Cut the model off and wipe what the host's memory has of it; return when."""
        crashed = time.time()
        self._crew.cut_off(MODEL)
        folders = (self._housing.state, self._housing.results)
        wipe_pages(str(Path(folder) / MODEL) for folder in folders)
        return crashed

    def restart(self) -> None:
        """Start the model again, as a supervisor has it done."""
        self._crew.begin([MODEL], resume=[MODEL])

    def finish(self, wafers: int) -> Seen:
        """Wait for the last of so many wafers, end the run, and return what it left."""
        self.await_wafers(LAST, wafers)
        last = self._crew.elements[LAST]
        predictions, lots = (last.publishers[name].table() for name in ("Predictions", "Sink"))
        seen = Seen(
            predictions=predictions,
            lots=lots,
            events=list(self._folder.read_events()),
            metrics=list(self._folder.read_metrics()),
        )
        self._end(ended=True)
        return seen

    def abandon(self) -> None:
        """End a run that failed; its folder stays."""
        self._end(ended=False)
        self._housing.remove()

    def await_wafers(self, name: str, wafers: int) -> None:
        """Wait until an element has so many wafers on record, and has handed them over.

        What it reads is counted in batches of the source.
        """
        self.until(lambda: self._has(SOURCE, {"Source": wafers}))
        came, edge = 0, 0
        for line in self._folder.read_metrics():
            if line["element"] == SOURCE and came < wafers:
                came, edge = came + line["rows"], line["batch"]
        self.until(lambda: self._has(name, {SOURCE: edge}))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for progress, and raise what went wrong instead."""
        done, moved = 0, time.monotonic()
        while not condition():
            now = time.monotonic()
            batches = sum(element.batch for element in self._crew.going)
            if batches != done:
                done, moved = batches, now
            if now > moved + _PATIENCE_SECONDS:
                raise RunError(f"the run in {self._folder.path} came no further")
            if now > self._checked + _CHECK_SECONDS:
                self._checked = now
                self._check()
            time.sleep(_LOOK_SECONDS)

    def idle(self, end: float) -> None:
        """Let time pass while the other elements go on."""
        self.until(lambda: time.time() >= end)

    def _has(self, name: str, edge: dict[str, int | None]) -> bool:
        element = self._crew.elements[name]
        return not element.behind(edge) and not element.owes

    def _check(self) -> None:
        self._crew.watch()
        for error in self._crew.errors.values():
            raise error

    def _end(self, *, ended: bool) -> None:
        self._crew.halt()
        nothing = Progress(tuples_out={}, seconds=0.0)
        how: Close = "ended" if ended else "interrupted"
        close_books(self._folder, self._lease, self._housing, nothing, how)
