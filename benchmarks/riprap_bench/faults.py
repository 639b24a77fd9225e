"""What trials of fault injection cost: as the stream grows, and against replaying all of it.

The same outages of Bargain Discovery's TradeFilter and QuoteFilter, a fifth of the shortest stream from its beginning,
on streams of 1, 4 and 16 times that length. A trial on the slow path must score what it does on the fast one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.campaigns import CAMPAIGNS
from riprap.apps.market import write_feed
from riprap.errors import RunError
from riprap.faults.campaign import Task
from riprap.faults.scored_trials import Affected, Scored, affected_sets, score_trial
from riprap.faults.setup import Seeded, Setup
from riprap_bench.bargain_table import grid
from riprap_bench.measuring import Report, about, middle, rounded

FORMAT = "riprap-bench-faults/1"
EVENTS, QUICK_EVENTS = 300_000, 30_000
TIMES = (1, 4, 16)
REPETITIONS = 3
SEED = 0


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure all lengths."""
    events = QUICK_EVENTS if quick else EVENTS
    described = about(seed=SEED, quick=quick)
    lengths = []
    for times in TIMES[:2] if quick else TIMES:
        with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
            lengths.append(measure(Path(folder), events, times))
        told = lengths[-1]
        report(
            f"{told['events']:,} events: golden {told['golden_s']:.2f} s, trial {told['trial_s'] * 1000:.0f} ms"
        )
    return {"format": FORMAT, "lengths": rounded(lengths), "about": described}


def measure(folder: Path, events: int, times: int) -> dict[str, Any]:
    """Measure golden runs and trials on a stream of so many times the shortest."""
    write_feed(folder / "feed", events * times, seed=SEED)
    campaign = replace(
        CAMPAIGNS["bargain"]["paper"].campaign,
        offsets=(events // 5,),
        targets=(("TradeFilter",), ("QuoteFilter",)),
        repetitions=1,
        golden=1,
    )
    app = bargain(rr.files(str(folder / "feed" / "*.parquet")), rr.memory())
    setup = Setup.of(app.graph(), campaign)
    seeded = setup.seeded(0)
    golden: list[float] = []
    bare: list[float] = []
    for seed in range(REPETITIONS):
        for found, only in ((golden, False), (bare, True)):
            at = time.perf_counter()
            setup.seeded(seed, bare=only)
            found.append(time.perf_counter() - at)
    affected = affected_sets(seeded, setup.campaign)
    tasks = list(setup.campaign.tasks())
    trials = [[scored(seeded, task, affected) for task in tasks] for _ in range(REPETITIONS)][-1]
    whole = scored(seeded, tasks[0], affected, shortcut=False)
    if (whole.affected, whole.sections, whole.local) != (
        trials[0].affected,
        trials[0].sections,
        trials[0].local,
    ):
        raise RunError(f"trial {whole.id} comes to something else when all of it is replayed")
    return {
        "events": events * times,
        "golden_s": middle(golden),
        "golden_score_s": middle(bare[1:]),
        "trial_s": sum(trial.seconds for trial in trials) / len(trials),
        "replayed": sum(trial.replayed for trial in trials) / len(trials),
        "whole_trial_s": whole.seconds,
        "trials": len(trials),
    }


def scored(seeded: Seeded, task: Task, affected: Affected, *, shortcut: bool = True) -> Scored:
    """Run a trial that must not fail."""
    found = score_trial(seeded, task, affected, shortcut=shortcut)
    if found.error:
        raise RunError(f"trial {found.id} failed: {found.error}")
    return found


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [
        [
            f"{line['events']:,}",
            f"{line['golden_s']:.2f} s",
            f"{line['golden_score_s']:.2f} s",
            f"{line['trial_s'] * 1000:.0f} ms",
            f"{line['replayed']:,.0f}",
            f"{line['whole_trial_s']:.2f} s",
            f"{line['whole_trial_s'] / line['trial_s']:.0f}",
        ]
        for line in result["lengths"]
    ]
    head = [
        "events",
        "golden run",
        "its score alone",
        "a trial",
        "tuples replayed",
        "a trial, all replayed",
        "times",
    ]
    machine = result["about"]
    return (
        f"{grid(head, rows)}\n\n{machine['date']}; {machine['machine']}, load {machine['load_before']} before"
    )
