"""How good results stay when a host is really lost: section 6.4 of the paper on fault injection, without injecting any.

Bargain Discovery replays a feed at its pace; mid in a section of the output the host of the trades, sums and averages
is lost: their process is killed with all it started, and its memory wiped. It stays down for the outage. Unprotected
they come back empty, with what comes in from then on; with replicas another is there. One more replica hangs instead,
so that plain failover has something to lose. R and I are those of fault-injection campaigns, and the right output is
that of the bare loop.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.campaigns import usable
from riprap.apps.market_real import read_real
from riprap.arrays import Floats
from riprap.errors import RunError
from riprap.faults import Sum
from riprap.faults.metrics import THRESHOLD, local_errors, recover
from riprap.faults.outputs import Form
from riprap.faults.scores import Cut
from riprap.graph.replicas import copy_name
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.real_crashes import kill_host
from riprap_bench.answers import difference, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.checkpoint_plan import Track
from riprap_bench.consumers import FolderWatch
from riprap_bench.feed import make_feed
from riprap_bench.kill import until
from riprap_bench.replicas_plan import DESCRIBE, GROUP, READERS, Case, Plan, Stretch, options
from riprap_bench.replicas_switch import Reading, ahead_of_all, driver_of, source_at

# Of the paper: TradeFilter unprotected, and the group with a failover of at most 2 s.
PUBLISHED = {"unprotected": {"R": 340, "I": 48.7}, "plain": {"R": 2, "I": 2.0}}
# Those that lose nothing.
_WHOLE: tuple[Case, ...] = ("exact", "all")
_RECORD = r"\d+-\d+\.json"
_PATIENCE_SECONDS = 600.0


def measure_quality(
    plan: Plan, folder: Path, track: Track, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Lose a host in each case on each feed; ``keep`` hears of the result after each."""
    result: dict[str, Any] = {
        "outage": plan.outage,
        "threshold": THRESHOLD,
        "published": PUBLISHED,
        "feeds": [],
        "skipped": {},
    }
    for stretch in plan.stretches:
        share = plan.case_seconds(stretch)
        if stretch.source is not None and not stretch.source.exists():
            result["skipped"][stretch.name] = (
                f"the real trades and quotes are not at {stretch.source}: --feed"
            )
            track.report(result["skipped"][stretch.name])
            track.pass_(share * len(plan.cases))
            continue
        here = folder / stretch.name
        files, stretch = _write(stretch, here / "feed", plan.seed)
        run_bare(files, out=here / "oracle")
        right = read_answer(here / "oracle")
        told: dict[str, Any] = {**asdict(replace(stretch, source=None)), "cases": {}}
        result["feeds"].append(told)
        for case in plan.cases:
            told["cases"][case] = found = _run(case, stretch, files, right, plan, here / "run")
            track.report(f"{stretch.name}, {case}: R {found['R']}, I {found['I']:.2f}")
            track.pass_(share)
            keep(result)
    return result


def _write(stretch: Stretch, folder: Path, seed: int) -> tuple[Sequence[Path], Stretch]:
    """Write a feed; of a real one it is seen only now how many events it has."""
    if stretch.source is None:
        return make_feed(folder, stretch.events, rows_per_file=stretch.events, seed=seed).files, stretch
    folder.mkdir(parents=True)
    events = usable(read_real(stretch.source))
    pq.write_table(events, folder / "part-00000.parquet")
    return [folder / "part-00000.parquet"], replace(stretch, events=events.num_rows)


def _run(
    case: Case, stretch: Stretch, files: Sequence[Path], right: pa.Table, plan: Plan, folder: Path
) -> dict[str, Any]:
    app = bargain(rr.files(list(map(str, files)), rate=stretch.rate), rr.parquet(folder / "out"))
    DESCRIBE[case](app)
    patience = Patience(delay=plan.outage, silent=plan.outage + 60.0)
    with supervise(app.graph(), options(folder / "runs", strikes=1), patience=patience, spare=True) as run:
        run.await_up()
        position = _lose(case, stretch, run, plan.outage)
        if not run.wait(stretch.seconds + plan.outage + _PATIENCE_SECONDS):
            raise RunError(f"{case} on the {stretch.name} feed is not done")
        events = list(RunFolder(run.folder, time.time).read_events())
    output = read_answer(folder / "out")
    wrong = difference(right, output) if case in _WHOLE else None
    if wrong is not None:
        raise RunError(f"{case} on the {stretch.name} feed: the answer is another: {wrong}")
    shutil.rmtree(folder)
    return {**judge(stretch, right, output, position), **_lost(events), "killed_at": position}


def _lose(case: Case, stretch: Stretch, run: Supervised, outage: float) -> int:
    """Lose a host, or let a replica hang, once so much has come; return how many events were complete by then."""
    group = "all" if case == "all" else GROUP
    reader = READERS[group]
    with FolderWatch(run.folder / "elements" / reader / "ledger", _RECORD) as records:
        position = 0

        def far_enough() -> bool:
            nonlocal position
            position = max(position, source_at(run.folder, reader))
            return position >= stretch.offset and run.has_spare

        until(run, far_enough)
        alone = case == "unprotected"
        letter = (
            ahead_of_all(run.folder) if case == "all" else "" if alone else Reading(records, group).newest()
        )
        process = copy_name(group, letter) if letter else GROUP
        if case != "plain, hung":
            kill_host(run.folder, process)
            return position
        driver = driver_of(run.folder, process)
        driver.suspend()
        since = time.monotonic()
        try:
            until(run, lambda: time.monotonic() - since > outage)
        finally:
            driver.resume()
        return position


def judge(stretch: Stretch, right: pa.Table, output: pa.Table, position: int) -> dict[str, Any]:
    """Return R and I of an output after a position, and its greatest errors, as campaigns have them."""
    form = Form(
        columns=("gain",),
        key=("seq",),
        by="seq",
        origin=0,
        length=stretch.section,
        first=0,
        # What the feed does not reach the end of is left out.
        count=(stretch.events + 1) // stretch.section,
    )
    begins = int(form.section(np.array([position + 1]))[0])
    errors = local_errors(*(_scores(form, each)[np.newaxis] for each in (output, right)), signed=True)
    if (np.abs(errors[:begins]) > THRESHOLD).any():
        raise RunError(f"the output is wrong before event {position:,}, where the host was lost")
    recovery, impact = recover(errors[begins:])
    return {
        "R": recovery,
        "I": impact,
        "over": float(errors[begins:].max()),
        "under": float(errors[begins:].min()),
        "sections": form.count - begins,
        "rows": output.num_rows,
        "right_rows": right.num_rows,
    }


def _scores(form: Form, output: pa.Table) -> Floats:
    """Return the sum of the gain in each section."""
    sections = form.section(output.column("seq").to_numpy())
    starts = np.searchsorted(sections, np.arange(form.count + 1))
    cut = Cut({"gain": output.column("gain").combine_chunks()}, starts)
    return Sum("gain").of(cut, cut)


def _lost(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the run tells of itself: tuples passed over or lost, failovers, and how long one was away."""
    over = [event for event in events if event["event"] == "failed over"]
    away = [event for event in events if event["event"] == "recovered"]
    return {
        "passed_over": sum(e["tuples"] for e in events if e["event"] == "passed over"),
        "lost_in_failover": sum(e["tuples"] for e in events if e["event"] == "lost in failover"),
        "failovers": [e["detect"] + e["seconds"] for e in over],
        "away": [e["detect"] + e["restart"] + e["restore"] for e in away],
    }
