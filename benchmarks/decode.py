"""What reading costs as tasks are added: every task decodes all of a batch, or a share that it leaves to all.

    python benchmarks/decode.py [--json FILE] [--events N]

Bargain Discovery over Parquet files of a batch each, by tasks in processes of their own that a coordinator tells what
to do, as they do on Spark; no Spark, no sink. The ways, taking turns:

    plain     every task decodes everything, text as text
    coded     every task decodes everything, text with few distinct values stays dictionary-coded
    shared    each decodes a share, coded, and leaves it as pages

Processor time is that of all tasks, after two batches to warm up. The answers of all are compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import secrets
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.market import write_feed
from riprap.compiler import Plan, compile_graph
from riprap.feeds import reading
from riprap.graph.options import RunOptions
from riprap.operators.sink import Sink
from riprap.runtime import shares
from riprap.runtime.inflow import open_inflow
from riprap.runtime.resident.coordinator import Coordinator
from riprap.runtime.resident.rounds import compute
from riprap.runtime.resident.task import Resident
from riprap.runtime.settings import Setting, save_setting
from riprap.runtime.sinks import ResultReader
from riprap.runtime.site import Site
from riprap.runtime.task import Answer, save_plan
from riprap.state.ledger import BatchRecord, Ledger, page_prefix
from riprap.state.pages import PageStore, page_root

SEED = 20051227
BATCHES = (100_000, 500_000)
TASKS = (1, 2, 4, 8)
WAYS = ("plain", "coded", "shared")
WARM_UP = 2
NEVER = 1 << 62


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=4_000_000, help="events of each run (4,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is run (3)")
    parser.add_argument("--json", help="write the result to this file")
    arguments = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory(prefix="riprap-decode-") as folder:
        for rows in BATCHES:
            feed = Path(folder) / f"feed-{rows}"
            write_feed(feed, arguments.events, seed=SEED, rows_per_file=rows, row_group=100_000)
            lines += measure(feed, rows, arguments.rounds)
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} cores",
        "load_after": psutil.getloadavg()[1],
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "events": arguments.events,
        "rounds": arguments.rounds,
        "seed": SEED,
    }
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"decode": lines, "about": about}, indent=2) + "\n")
    print(f"{'rows a batch':>13} {'tasks':>6} {'way':>8} {'CPU s/million':>14} {'least':>7} {'events/s':>11}")
    for line in lines:
        print(
            f"{line['rows']:>13,} {line['tasks']:>6} {line['way']:>8} {line['cpu_s_per_million']:>14.3f} "
            f"{line['least_cpu_s_per_million']:>7.3f} {line['events_per_s']:>11,.0f}"
        )


def measure(feed: Path, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Run every way with every number of tasks, taking turns; compare the answers."""
    runs: dict[tuple[int, str], list[dict[str, Any]]] = {}
    answer: list[Any] | None = None
    for _ in range(rounds):
        for tasks in TASKS:
            for way in WAYS:
                run, found = run_once(feed, rows, tasks, way)
                assert answer is None or found == answer, f"{way} with {tasks} tasks has another answer"
                answer = found
                runs.setdefault((tasks, way), []).append(run)
                print(rows, tasks, way, {k: round(v, 4) for k, v in run.items()}, file=sys.stderr)
    lines = []
    for (tasks, way), found in runs.items():
        cpu, rates = ([run[k] for run in found] for k in ("cpu", "rate"))
        parts = {
            k: statistics.median([run[k] for run in found]) for k in found[0] if k not in ("cpu", "rate")
        }
        lines.append(
            {
                "rows": rows,
                "tasks": tasks,
                "way": way,
                "cpu_s_per_million": statistics.median(cpu),
                "least_cpu_s_per_million": min(cpu),
                "events_per_s": statistics.median(rates),
                "task_ms": parts,
            }
        )
    return lines


def run_once(feed: Path, rows: int, tasks: int, way: str) -> tuple[dict[str, float], list[Any]]:
    """Run all batches of a feed; return what they took, and the answer of the last."""
    files = sorted(map(str, feed.glob("part-*.parquet")))
    app = bargain(rr.files(files), rr.parquet(feed / "out"))
    (plan,) = compile_graph(app.graph(), buckets=max(TASKS), tasks=tasks).plans
    root = page_root()
    root.mkdir(mode=0o700, exist_ok=True)
    least = 0 if way == "shared" else NEVER
    encoded = 0 if way == "plain" else reading._ENCODED_BYTES
    with (
        tempfile.TemporaryDirectory(dir=root, prefix="decode-") as folder,
        mock.patch.object(shares, "LEAST_REPEATED", least),
        # Tasks are forked, so they have it too.
        mock.patch.object(reading, "_ENCODED_BYTES", encoded),
    ):
        return _run(Path(folder), app, plan, rows)


def _run(folder: Path, app: rr.Application, plan: Plan, rows: int) -> tuple[dict[str, float], list[Any]]:
    setting = _setting(folder, plan)
    site = setting.site
    coordinator = Coordinator(plan.tasks, token := secrets.token_hex(8))
    resident = Resident(str(folder / "setting.json"), coordinator.address, token)
    fork = multiprocessing.get_context("fork")
    workers = [
        fork.Process(target=resident.attend, args=(task, task), daemon=True) for task in range(plan.tasks)
    ]
    for worker in workers:
        worker.start()
    inflow = open_inflow(plan, setting, RunOptions(), {})
    inflow.fix()
    offset, batch, began, cpu, answers = inflow.initial(), 0, 0.0, 0.0, list[Answer]()
    seconds: dict[str, list[float]] = {}
    while (end := inflow.latest(offset, rows)) != offset:
        if batch == WARM_UP:
            began, cpu, seconds = time.perf_counter(), _cpu(workers), {}
        answers = compute(coordinator, plan, batch, inflow.pieces(offset, end))
        record = BatchRecord(
            epoch=0,
            batch=batch,
            manifests=tuple(sorted((a.manifest for a in answers), key=lambda m: m.buckets)),
            outputs={"Sink": tuple(a.outputs["Sink"] for a in answers)},
            time=0.0,
        )
        site.ledger.write(record)
        site.collect(record.pages, before=page_prefix(epoch=0, batch=batch + 1))
        for answer in answers:
            for part, spent in answer.seconds.items():
                seconds.setdefault(part, []).append(1e3 * spent)
        batch, offset = batch + 1, end
    counted = (batch - WARM_UP) * rows / 1e6
    took = {
        "rate": 1e6 * counted / (time.perf_counter() - began),
        "cpu": (_cpu(workers) - cpu) / counted,
        **{part: statistics.mean(spent) for part, spent in seconds.items()},
    }
    coordinator.dismiss("all is read", lambda: not any(w.is_alive() for w in workers), 5.0)
    coordinator.close()
    sink = app.graph()["Sink"]
    assert isinstance(sink, Sink)
    found = ResultReader(sink, site.results).read([a.outputs["Sink"] for a in answers])
    return took, found.to_pylist()


def _setting(folder: Path, plan: Plan) -> Setting:
    """Lay out the folder of a run, without a run."""
    site = Site(
        ledger=Ledger(str(folder / "ledger")),
        pages=PageStore(str(folder / "pages")),
        results=PageStore(str(folder / "results")),
        key="",
    )
    for store in (site.pages, site.results):
        store.make()
    site.ledger.begin(plan.buckets)
    setting = Setting(
        plan=str(folder / "plan.pickle"),
        sources=str(folder / "sources"),
        folder=str(folder),
        tables=str(folder / "tables"),
        site=site,
        start=0,
    )
    save_plan(Path(setting.plan), plan)
    save_setting(folder / "setting.json", setting)
    return setting


def _cpu(workers: list[Any]) -> float:
    times = [psutil.Process(worker.pid).cpu_times() for worker in workers]
    return sum(t.user + t.system for t in times)


if __name__ == "__main__":
    main()
