"""A case of the fault matrix, run: one life after the other, by processes that really die."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.regions.building import application
from tests.regions.cases import Case, Life
from tests.regions.making import BATCH
from tests.regions.sinks import KINDS, Place, Row
from tests.regions.topologies import TOPOLOGIES
from tests.regions.traps import Trap, end, kill_stopped, put_back, sprung, take_away
from tests.runtime.checkpointing.leaving import lines_so_far, lose_host
from tests.runtime.harness import Programs, only_run, page_folder, wait_until
from tests.services.redis import Redis

import riprap as rr
from riprap.operators.sink import Sink
from riprap.runtime.agent.lock import await_saver
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.supervision.real_crashes import kill_host

OPTIONS: Mapping[str, Any] = {"batch_rows": BATCH, "buckets": 4, "parallelism": 2}
CLUSTER = "local-cluster[1,2,1024]"
# From here on what reads is held up until there is a cut, where one is to be read.
HELD_UP_FROM = 400
# From here on nothing is saved, where a batch is to be computed again.
STILL_FROM = 1000
# These are told when what is gone is brought back.
BACK = {"restored", "computed again", "gone back"}


@dataclass
class Running:
    """A case on its way: ``work`` is its own folder, ``server`` that of its store."""

    case: Case
    spark: SparkSession
    programs: Programs
    work: Path
    place: Place
    server: Redis | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the run, once there is one."""
        runs = self.work / "runs"
        return only_run(runs) if runs.exists() else None

    def live(self) -> None:
        """Go through all lives, and where the run has not ended by then, a last one in which nothing happens."""
        wiped_at = None
        for number, life in enumerate(self.case.lives):
            if "unmounted" in life.faults:
                take_away(self.work / "store")
                (self.work / "store").mkdir()
            with self._watched(life):
                if life.apart:
                    self._apart(life, self.work / f"life-{number}")
                else:
                    self._here(life)
            kill_stopped(self.work / "stopped")
            for trap in self._traps(life):
                assert sprung(self.work / "markers", trap), f"{trap} did not happen"
                end(self.work / "markers", trap)
            if life.refused:
                self._put_back()
            if life.wiped:
                # Who died on the way back may not have brought anything back yet.
                self._lose_memory(some=wiped_at is None)
            if life.loses_memory and wiped_at is None:
                wiped_at = len(self.events()) if life.wiped else 0
        if not self.case.lives[-1].ends:
            with self._application(()).run(spark=self.spark, folder=self.folder, **self._options) as run:
                assert run.wait(timeout=240), "the run did not end"
        if wiped_at is not None:
            assert {e["event"] for e in self.events()[wiped_at:]} & BACK, "nothing was brought back"

    def held(self) -> dict[str, list[Row]]:
        """Return what the sinks hold, by stream."""
        sinks = self._application(()).graph().of_kind(Sink)
        names = {sink.name.removesuffix("_out"): sink.schema.names for sink in sinks}
        return {name: KINDS[self.case.sink].read(self.place, name, c) for name, c in names.items()}

    def events(self) -> list[dict[str, Any]]:
        """Return what the run has told so far."""
        return lines_so_far(self.folder / "events.jsonl") if self.folder is not None else []

    def _application(self, traps: tuple[Trap, ...]) -> rr.Application:
        case = self.case
        terms: dict[str, Any] = {"period": case.period, "attempts": case.attempts}
        return application(case.topology, case.sink, self.work, self.place, traps, **terms)

    def _traps(self, life: Life) -> tuple[Trap, ...]:
        paths = {"store-down": "store", "store-up": "store", "table": ""}
        paths |= {what: f"{what}-done" for what in ("host", "server-down", "server-up")}
        if life.others_first:
            # Elements that are behind must have come to it.
            paths["driver"] = f"life-{self.case.lives.index(life)}/crashed"
        traps = [
            Trap(seq, what, str(self.work / paths[what]) if what in paths else "") for what, seq in life.traps
        ]
        if life is self.case.lives[0] and self.case.restored is not None:
            traps.insert(0, Trap(HELD_UP_FROM, "cut", str(self.work / "runs"), self.case.restored))
        if life is self.case.lives[0] and self.case.computes_again:
            traps.append(Trap(STILL_FROM, "still", str(self.work / "stopped")))
        return tuple(traps)

    @property
    def _store(self) -> str:
        if self.server is not None:
            return self.server.url
        folder = str(self.work / "store")
        return f"rocksdb://{folder}" if self.case.store == "rocksdb" else folder

    @property
    def _options(self) -> dict[str, Any]:
        batch_rows = TOPOLOGIES[self.case.topology].batch_rows
        return {**OPTIONS, "batch_rows": batch_rows, "store": self._store}

    @property
    def _which(self) -> dict[str, Any]:
        """Return the options by which a run is begun, or taken up."""
        where = {"runs": str(self.work / "runs")} if self.folder is None else {"folder": str(self.folder)}
        return {**self._options, **where}

    def _here(self, life: Life) -> None:
        def run() -> None:
            with self._application(self._traps(life)).run(spark=self.spark, **self._which) as running:
                assert running.wait(timeout=240), "the run did not end"

        if life.fails:
            with pytest.raises(
                rr.RiprapError, match="store|consistent region" if life.refused else "the trap at"
            ):
                run()
        else:
            run()

    def _apart(self, life: Life, work: Path) -> None:
        spec = {
            "topology": self.case.topology,
            "sink": self.case.sink,
            "period": self.case.period,
            "work": str(self.work),
            "place": self.place.spec(),
            "traps": [astuple(trap) for trap in self._traps(life)],
            "attempts": self.case.attempts,
            "options": {**self._which, "master": CLUSTER if life.cluster else "local[2]"},
            "supervised": life.supervised,
            "reset": "reset" in life.faults,
            "reads_apart": life.reads_apart,
        }
        program = self.programs.start("run_topology.py", work, spec, life.crash_at)
        if "host" in dict(life.traps):
            self._lose_host_of(program, life)
        self.programs.finish(program, code=-signal.SIGKILL if life.killed else int(life.fails))
        if life.crash_at is not None:
            assert (work / "crashed").exists(), f"nobody died at {life.crash_at}"
        if "reset" in life.faults:
            assert [e for e in self.events() if e["event"] == "region reset asked"], "nothing was halted"
        if life.supervised and life.killed:
            folder = self.folder
            assert folder is not None
            wait_until(lambda: not any(p.alive() for p in find_presences(folder)))

    @contextlib.contextmanager
    def _watched(self, life: Life) -> Iterator[None]:
        """Kill and start the store's server when traps ask for it, which wait for that."""
        over = threading.Event()

        def watch() -> None:
            for trap in traps:
                while not sprung(self.work / "markers", trap):
                    if over.wait(0.01):
                        return
                assert self.server is not None
                {"server-down": self.server.kill, "server-up": self.server.start}[trap.what]()
                Path(trap.path).touch()

        traps = [trap for trap in self._traps(life) if trap.what.startswith("server-")]
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()

    def _put_back(self) -> None:
        if self.server is not None:
            self.server.start()
        else:
            put_back(self.work / "store")

    def _lose_host_of(self, program: Any, life: Life) -> None:
        (trap,) = (trap for trap in self._traps(life) if trap.what == "host")
        wait_until(lambda: sprung(self.work / "markers", trap) or program.poll() is not None)
        folder = self.folder
        assert folder is not None
        (presence,) = find_presences(folder)
        kill_host(folder, next(iter(presence.pages)))
        Path(trap.path).touch()

    def _lose_memory(self, *, some: bool) -> None:
        folder = self.folder
        assert folder is not None
        for home in (folder / "elements").iterdir():
            await_saver(home, print)
        assert not some or list(page_folder(folder).glob("*/*/*.page")), "there was no memory to lose"
        lose_host(folder, some=some)
