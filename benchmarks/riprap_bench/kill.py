"""How long a run is silent after a SIGKILL of one of its processes: from the signal to the next batch on record.

Bargain Discovery replays a feed at a steady pace under a supervisor. A Python worker is killed, or the driver
process while a spare is ready; then again, once batches come steadily. Records of the ledger are seen by a clock
outside of the run. A batch that was finished already when its worker died may still get on record, so it is the end of
the longest silence that counts. In the end the answer is that of the bare loop, or the benchmark fails.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import psutil

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.errors import RunError
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.journal import Recovered
from riprap.runtime.supervision.real_crashes import kill_process, workers_of
from riprap.state.ledger import Ledger
from riprap_bench.answers import MEANING, difference, first_of, read_answer
from riprap_bench.bargain_table import grid
from riprap_bench.baselines import run_bare
from riprap_bench.consumers import FolderWatch
from riprap_bench.feed import FeedFiles, make_feed
from riprap_bench.measuring import Report, about, middle, rounded, spread

Victim = Literal["worker", "driver"]

SEED = 20051227
RATE = 2_000.0
# Seconds, at most.
BARS: Mapping[Victim, float] = {"worker": 0.6, "driver": 1.5}
_NAMES: Mapping[Victim, str] = {"worker": "a Python worker", "driver": "the driver, with a spare"}
_ELEMENT = "bargain"
_RECORD = r"\d+-\d+\.json"
# Before the next kill so many records come; after it so many are looked at.
_STEADY_RECORDS = 20
_LOOKED_AT = 5
_LOOK_SECONDS = 0.005
_BUSY_SECONDS = 1.0
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often to kill what, and for how long there is input."""

    kills: Mapping[Victim, int]
    rate: float = RATE
    seconds: float = 900.0
    seed: int = SEED


def run(
    quick: bool, report: Report, *, rate: float | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Kill workers and drivers. ``quick`` is a smoke test."""
    kills = repetitions or (2 if quick else 10)
    plan = Plan(kills=dict.fromkeys(get_args(Victim), kills), rate=rate or RATE)
    return run_plan(plan, report, quick=quick)


def run_plan(plan: Plan, report: Report, *, quick: bool = False) -> dict[str, Any]:
    """Run a plan in a temporary folder: a run for workers, another for drivers."""
    described = about(
        seed=plan.seed, quick=quick, kills=dict(plan.kills), events_per_s=plan.rate, same_answer_means=MEANING
    )
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
        top = Path(folder)
        feed = make_feed(top / "feed", int(plan.rate * plan.seconds), rows_per_file=500_000, seed=plan.seed)
        run_bare(feed.files, out=top / "oracle")
        for victim in plan.kills:
            found[victim] = _Killing(plan, victim, feed, top, report).carry_out()
    bars = {victim: BARS[victim] for victim in plan.kills}
    result = {
        "killed": found,
        "bars": bars,
        "bars_met": all(found[victim]["seconds"] <= most for victim, most in bars.items()),
        # A difference would have ended the benchmark.
        "same_answer": True,
        "about": described,
    }
    final: dict[str, Any] = rounded(result)
    return final


@dataclass(frozen=True, slots=True)
class _Killing:
    """One run, of which one kind of process is killed again and again."""

    plan: Plan
    victim: Victim
    feed: FeedFiles
    top: Path
    report: Report

    def carry_out(self) -> dict[str, Any]:
        out, kills = self.top / f"out-{self.victim}", self.plan.kills[self.victim]
        app = bargain(rr.files(list(map(str, self.feed.files)), rate=self.plan.rate), rr.parquet(out))
        silences = []
        with supervise(
            app.graph(),
            rr.RunOptions(
                # Spark counts the failures of a task that stays for as long as it does.
                master=f"local[2,{kills + 4}]",
                config={"spark.log.level": "OFF"},
                runs=self.top / f"runs-{self.victim}",
            ),
            # Kills are meant here, however many.
            patience=Patience(restarts=kills + 1, backoff=(0.0,)),
            spare=self.victim == "driver",
        ) as run:
            run.await_up()
            with FolderWatch(run.folder / "elements" / _ELEMENT / "ledger", _RECORD) as records:
                for number in range(kills):
                    silences.append(self._silence(run, records, number))
                    self.report(
                        f"[{number + 1}/{kills}] {_NAMES[self.victim]}: next batch after {silences[-1]:.2f} s"
                    )
            run.stop()
            recoveries = run.recoveries()
        # By the record: what is on it has been put out by now, whether or not it was counted.
        ledger = Ledger(str(run.folder / "elements" / _ELEMENT / "ledger"))
        came = ledger.get(ledger.batches()[-1]).sources["Source"][1]
        wrong = difference(first_of(read_answer(self.top / "oracle"), came), read_answer(out))
        if wrong is not None:
            raise RunError(f"after {kills} kills of {_NAMES[self.victim]} the answer is another: {wrong}")
        parts = {"parts": _parts(recoveries)} if self.victim == "driver" else {}
        return {"seconds": middle(silences), "spread": spread(silences), "all": silences, **parts}

    def _silence(self, run: Supervised, records: FolderWatch, number: int) -> float:
        """Kill once batches come steadily; return how long none got on record."""
        since = time.time()
        until(run, lambda: sum(m > since for m in records.moments()) >= _STEADY_RECORDS)
        if self.victim == "driver":
            until(run, lambda: run.has_spare)
            killed = time.time()
            kill_process(run.folder, _ELEMENT)
        else:
            worker = _busiest(workers_of(run.folder, _ELEMENT))
            killed = time.time()
            worker.kill()
        until(run, lambda: sum(m > killed for m in records.moments()) >= _LOOKED_AT)
        if self.victim == "driver":
            until(run, lambda: len(run.recoveries()) > number)
            if not run.recoveries()[number].spare:
                raise RunError("the spare did not take the place of the driver")
        return longest_silence(records.moments(), killed)


def longest_silence(moments: Sequence[float], killed: float) -> float:
    """Return how long after the kill the longest silence among the first records from then on was over."""
    after = sorted(moment for moment in moments if moment > killed)[:_LOOKED_AT]
    ends = np.array(after)
    return float(ends[np.argmax(np.diff(ends, prepend=killed))] - killed)


def _busiest(workers: Sequence[psutil.Process]) -> psutil.Process:
    """Return the worker that computes: Spark keeps others at hand."""
    before = {worker: worker.cpu_times().user for worker in workers}
    time.sleep(_BUSY_SECONDS)
    return max(before, key=lambda worker: worker.cpu_times().user - before[worker])


def _parts(recoveries: Sequence[Recovered]) -> dict[str, float]:
    """Return what the run itself tells of where the time went, in the median."""
    names = ("detect", "restart", "restore", "catch_up")
    return {name: middle([getattr(recovered, name) for recovered in recoveries]) for name in names}


def until(run: Supervised, condition: Callable[[], object]) -> None:
    """Wait for progress of a run that goes on."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if not run.running:
            # It raises what went wrong.
            run.wait()
            raise RunError("the feed was over before the last kill: kill less often")
        if time.monotonic() > deadline:
            raise RunError(f"the run in {run.folder} came no further")
        time.sleep(_LOOK_SECONDS)


def table(result: Mapping[str, Any]) -> str:
    """Return the result as Markdown."""
    about = result["about"]
    rows = []
    for victim, found in result["killed"].items():
        least, most = found["spread"]
        parts = ", ".join(f"{name.replace('_', ' ')} {s:.2f}" for name, s in found.get("parts", {}).items())
        rows.append(
            [
                _NAMES[victim],
                f"{found['seconds']:.2f} s",
                f"{least:.2f} to {most:.2f} s",
                f"{result['bars'][victim]:g} s",
                str(len(found["all"])),
                parts,
            ]
        )
    head = [
        "SIGKILL to the next batch on record",
        "median",
        "spread",
        "bar",
        "kills",
        "by the run's events, s",
    ]
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    return "\n\n".join(
        [
            grid(head, rows),
            f"Answers: the same. Bars {'met' if result['bars_met'] else 'NOT met'}.",
            f"{about['date']}; {about['machine']}, {about['cores']} cores, load {about['load_before']} before; "
            f"{about['events_per_s']:,.0f} events/s, seed {about['seed']}.{quick}",
        ]
    )
