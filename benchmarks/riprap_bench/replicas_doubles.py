"""What duplicates found by value lose, double and cost, beside those that tags make impossible.

Bargain Discovery replays a feed at its pace, all of it twice. Nothing happens; or the driver process of one replica is
killed in the middle, and stays down for the outage. Of what came out it is counted how much is not there, and how much
is there again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.errors import RunError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import Patience, supervise
from riprap_bench.answers import read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.checkpoint_plan import Track
from riprap_bench.feed import make_feed
from riprap_bench.kill import until
from riprap_bench.replicas_plan import DESCRIBE, Plan, Stretch, options
from riprap_bench.replicas_switch import driver_of
from riprap_bench.replicas_values import bargain_twice

_PATIENCE_SECONDS = 600.0


def measure_values(
    plan: Plan, folder: Path, track: Track, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run by tags, and by values with each interval of punctuations; ``keep`` hears of the result after each."""
    stretch = plan.doubles
    feed = make_feed(folder / "feed", stretch.events, rows_per_file=stretch.events, seed=plan.seed)
    run_bare(feed.files, out=folder / "oracle")
    right = read_answer(folder / "oracle")
    result: dict[str, Any] = {
        "events": stretch.events,
        "rate": stretch.rate,
        "outage": plan.outage,
        "right_rows": right.num_rows,
        "cases": [],
    }
    for every in (None, *plan.intervals):
        for struck in (False, True):
            found = _run(every, struck, stretch, list(map(str, feed.files)), plan.outage, folder / "run")
            line = {"every": every, "struck": struck, **count_errors(right, found.pop("output")), **found}
            result["cases"].append(line)
            track.report(
                f"{'tags' if every is None else f'values, {every:,} events'}{', killed' if struck else ''}: "
                f"{line['lost']:,} lost, {line['doubled']:,} doubled"
            )
            track.pass_(plan.case_seconds(stretch))
            keep(result)
    return result


def _run(
    every: int | None, struck: bool, stretch: Stretch, files: list[str], outage: float, folder: Path
) -> dict[str, Any]:
    connector, out = rr.files(files, rate=stretch.rate), rr.parquet(folder / "out")
    if every is None:
        app = bargain(connector, out)
        DESCRIBE["all"](app)
    else:
        app = bargain_twice(connector, out, every=every)
    patience = Patience(delay=outage, silent=outage + 60.0)
    with supervise(app.graph(), options(folder / "runs", strikes=1), patience=patience, spare=False) as run:
        if struck:
            # By values each replica reads the feed by itself.
            fed = stretch.offset * (1 if every is None else 2)
            until(run, lambda: run.progress().tuples_in >= fed)
            driver_of(run.folder, "all~b" if every is None else "all_b").kill()
        if not run.wait(stretch.seconds + outage + _PATIENCE_SECONDS):
            raise RunError(f"values, {every}: not done")
        lines = [line["operators"].get("Unseen") for line in RunFolder(run.folder, time.time).read_metrics()]
    merging = [line for line in lines if line is not None]
    output = read_answer(folder / "out")
    shutil.rmtree(folder)
    came = sum(line["in"] for line in merging)
    return {
        "output": output,
        "table_bytes": max((line.get("state_bytes", 0) for line in merging), default=0),
        "us_a_tuple": sum(line["seconds"] for line in merging) / came * 1e6 if came else 0.0,
    }


def count_errors(right: pa.Table, output: pa.Table) -> dict[str, int]:
    """Count the bargains that are not in an output, and those that are there again."""
    wanted, seen = (table.column("seq").to_numpy() for table in (right, output))
    foreign = np.setdiff1d(seen, wanted)
    if len(foreign):
        raise RunError(f"bargain {foreign[0]} is in the output, and not in the answer")
    distinct = len(np.unique(seen))
    return {"lost": len(wanted) - distinct, "doubled": len(seen) - distinct}
