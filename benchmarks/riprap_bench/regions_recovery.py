"""From the loss of a host to the next new batch on record: a consistent region, and plain Structured Streaming.

Bargain Discovery replays a feed at a steady pace in a region. All of its processes are killed and its memory is wiped,
as ``riprap kill RUN PE --host`` does; then again, once batches come steadily. What is on record already is not new: a
batch that is computed again has its old record. Where the time goes is what the run's own events tell. Plain Spark runs
VWAP, with its checkpoints on disk. It is killed too, and started again at once: it need not find out that it is dead.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.errors import RunError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.journal import Recovered
from riprap.runtime.supervision.real_crashes import kill_host, kill_process
from riprap.state.ledger import Ledger
from riprap_bench.answers import difference, first_of, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.checkpoint_plan import Track
from riprap_bench.consumers import FolderWatch
from riprap_bench.feed import make_feed
from riprap_bench.measuring import end, middle, spread
from riprap_bench.protecting import protected
from riprap_bench.regions_beside import start_plain
from riprap_bench.regions_jobs import Vwap
from riprap_bench.regions_plain import STARTED, PlainJob
from riprap_bench.regions_plan import LOSS_SECONDS, Plan

PERIOD = "2s"
_ELEMENT = "bargain"
_RECORD = r"\d+-\d+\.json"
_STEADY_RECORDS = 20
_STEADY_COMMITS = 5
_SECONDS_A_LOSS = 40.0
_PLAIN_ROWS = 1_000
_LOOK_SECONDS = 0.005
_PATIENCE_SECONDS = 240.0
# Batches that take so many times as long as before a loss are usual ones.
_USUAL = 1.5


def measure_recovery(
    plan: Plan, folder: Path, track: Track, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Lose the host of a region again and again, and the process of plain Spark; ``keep`` hears of the first."""
    ours = _Losing(plan, folder / "region", track).carry_out()
    keep({"region": ours, "met": {}})
    plain = _plain(plan, folder / "plain", track)
    return {
        "region": ours,
        "plain": plain,
        "met": {"seconds": ours["seconds"] < plain["seconds"]},
    }


@dataclass(frozen=True, slots=True)
class _Losing:
    plan: Plan
    folder: Path
    track: Track

    def carry_out(self) -> dict[str, Any]:
        plan, out, losses = self.plan, self.folder / "out", self.plan.losses
        events = int(plan.rate * (60 + _SECONDS_A_LOSS * losses))
        feed = make_feed(self.folder / "feed", events, rows_per_file=500_000, seed=plan.seed)
        app = bargain(rr.files(list(map(str, feed.files)), rate=plan.rate), rr.parquet(out))
        graph = protected(app.graph(), rr.consistent(period=PERIOD) if plan.protecting else None)
        options = rr.RunOptions(
            master=f"local[2,{losses + 4}]",
            config={"spark.log.level": "OFF"},
            runs=self.folder / "runs",
        )
        patience = Patience(restarts=losses + 1, backoff=(0.0,))
        with supervise(graph, options, patience=patience, spare=True) as run:
            run.await_up()
            with FolderWatch(run.folder / "elements" / _ELEMENT / "ledger", _RECORD) as records:
                silences = [self._lose(run, records, number) for number in range(losses)]
            run.stop()
            back = run.recoveries()
        ledger = Ledger(str(run.folder / "elements" / _ELEMENT / "ledger"))
        came = ledger.get(ledger.batches()[-1]).sources["Source"][1]
        run_bare(feed.files, out=self.folder / "oracle")
        wrong = difference(first_of(read_answer(self.folder / "oracle"), came), read_answer(out))
        if wrong is not None:
            raise RunError(f"after {losses} losses of the host the answer is another: {wrong}")
        told = list(RunFolder(run.folder, time.time).read_events())
        return {
            "seconds": middle(silences),
            "spread": spread(silences),
            "all": silences,
            "parts": parts_of(back, told),
        }

    def _lose(self, run: Supervised, records: FolderWatch, number: int) -> float:
        """Lose the host once batches come steadily; return how long no new one got on record."""
        since = time.time()
        _until(lambda: sum(m > since for m in records.moments()) >= _STEADY_RECORDS and run.has_spare, run)
        # Without a region, memory that is wiped is lost: then it is the process alone.
        (kill_host if self.plan.protecting else kill_process)(run.folder, _ELEMENT)
        killed = time.time()
        _until(lambda: any(m > killed for m in records.moments()), run)
        silence = min(m for m in records.moments() if m > killed) - killed
        _until(lambda: len(run.recoveries()) > number, run)
        self.track.report(f"[{number + 1}/{self.plan.losses}] host lost: next batch after {silence:.2f} s")
        self.track.pass_(LOSS_SECONDS)
        return silence


def parts_of(back: Sequence[Recovered], events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return where the time of recoveries went, in the median: what is computed again, by its own event."""
    again = [float(event["seconds"]) for event in events if event["event"] == "computed again"]
    return {
        "detect": middle([each.detect for each in back]),
        "start": middle([each.restart for each in back]),
        "load": middle([each.restore for each in back]),
        **({"compute again": middle(again)} if again else {}),
        "caught up": middle([each.catch_up for each in back]),
    }


def _plain(plan: Plan, folder: Path, track: Track) -> dict[str, Any]:
    """Kill plain Spark and start it again, until its next batch is committed."""
    # It is never to run out of input: each loss takes some dozens of files.
    feed = Vwap(plan.seed, rows=_PLAIN_ROWS).write(folder / "feed", 300 * (plan.losses + 1))
    results = folder / "results"
    described = PlainJob(name="vwap", files=tuple(map(str, feed.files)), files_a_trigger=1, store="rocksdb")
    silences: list[float] = []
    parts: list[dict[str, float]] = []
    child = start_plain(described, results)
    try:
        with FolderWatch(results / "checkpoint" / "commits", r"\d+") as seen:
            for number in range(plan.losses):
                since = time.time()
                _until(_batches(seen, since), child)
                usual = middle(np.diff(sorted(seen.moments())[-_STEADY_COMMITS:]).tolist())
                end(child)
                killed = time.time()
                child = start_plain(described, results)
                _until(_batches(seen, killed), child)
                after = sorted(m for m in seen.moments() if m > killed)
                silences.append(after[0] - killed)
                started = (results / STARTED).stat().st_mtime
                parts.append({"start": started - killed, **_of_plain(after, started, usual)})
                track.report(
                    f"[{number + 1}/{plan.losses}] plain Spark: next batch after {silences[-1]:.2f} s"
                )
                track.pass_(LOSS_SECONDS)
    finally:
        end(child)
    shown = {name: middle([each[name] for each in parts]) for name in parts[0]}
    return {
        "seconds": middle(silences),
        "spread": spread(silences),
        "all": silences,
        "parts": {"detect": 0.0, **shown},
    }


def _batches(seen: FolderWatch, since: float) -> Callable[[], bool]:
    """Return what asks whether batches have come steadily since a moment."""
    return lambda: sum(moment > since for moment in seen.moments()) >= _STEADY_COMMITS


def _of_plain(after: Sequence[float], started: float, usual: float) -> dict[str, float]:
    """Split the time from the start of the query to when batches take what they did before.

    The first batch was under way when the process was killed, so it is computed again; what it takes beyond a usual one
    is loading state and code. Then it has caught up as soon as a batch takes hardly more than usual.
    """
    took = np.diff(after)
    steady = np.flatnonzero(took <= _USUAL * usual)
    caught_up = after[int(steady[0])] if len(steady) else after[-1]
    load = max(0.0, after[0] - started - usual)
    return {"load": load, "compute again": after[0] - started - load, "caught up": caught_up - after[0]}


def _until(condition: Callable[[], bool], run: Supervised | subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if isinstance(run, Supervised) and not run.running:
            # It raises what went wrong.
            run.wait()
            raise RunError("the feed was over before the last loss")
        if not isinstance(run, Supervised) and run.poll() is not None:
            raise RunError(f"plain Spark ended with code {run.returncode}")
        if time.monotonic() > deadline:
            raise RunError(f"nothing happened for {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
