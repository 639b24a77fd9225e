"""What the tests of whole runs share: feeds with their answers, programs in processes of their own, waiting."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tests.oracle import bargain_oracle

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.market import write_feed
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.runtime.output_lease import NAME as LEASE
from riprap.state.pages import page_root

EVENTS = 24_000
PROGRAMS = Path(__file__).parent / "programs"
BARGAINS = pa.schema(
    [
        ("seq", pa.int64()),
        ("ticker", pa.string()),
        ("vwap", pa.float64()),
        ("price", pa.float64()),
        ("size", pa.int64()),
        ("gain", pa.float64()),
    ]
)
# Tests wait for progress. This only keeps a broken one from hanging.
_LONG_SECONDS = 300.0
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True)
class Feed:
    """A market feed in files, its rows, and the bargains in it as found tuple by tuple."""

    folder: Path
    table: pa.Table
    bargains: pa.Table

    def bargains_between(self, first: int, end: int) -> pa.Table:
        """Return the bargains at positions [first, end)."""
        found = [first <= seq < end for seq in self.bargains["seq"].to_pylist()]
        return self.bargains.filter(pa.array(found, pa.bool_()))


def make_feed(folder: Path, *, seed: int) -> Feed:
    """Write a feed as several files, whose ends fall inside batches."""
    write_feed(folder, EVENTS, seed=seed, rows_per_file=7_000, row_group=3_000)
    table = pq.read_table(folder)
    found = bargain_oracle(table.to_pylist())
    assert found, "a feed without bargains shows nothing"
    return Feed(folder, table, pa.Table.from_pylist(found, BARGAINS))


def bargain_twice(
    feed: Path | SourceConnector, first: SinkConnector, second: SinkConnector
) -> rr.Application:
    """Describe Bargain Discovery with two sinks, ``Sink`` and ``Second``."""
    app = bargain(feed, first)
    app.sink("Second", rr.Stream("BargainIndex", app.graph()["BargainIndex"].schema, app), second)
    return app


def wait_until(condition: Callable[[], Any], *, seconds: float = _LONG_SECONDS) -> None:
    """Wait for progress that shows in a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no progress within {seconds} s"
        time.sleep(0.01)


class Programs:
    """Programs in processes of their own, none of which outlives the test."""

    def __init__(self) -> None:
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, name: str, work: Path, spec: Any, crash_at: str | None = None) -> subprocess.Popen[bytes]:
        """Start a program, to die at a step of a batch if told so."""
        work.mkdir(parents=True, exist_ok=True)
        (work / "spec.json").write_text(json.dumps(spec))
        crash = {"RIPRAP_CRASH_AT": crash_at, "RIPRAP_CRASH_ONCE": str(work / "crashed")} if crash_at else {}
        # Programs import from tests, as pytest does.
        search = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
        with (work / "stdout").open("wb") as stdout, (work / "stderr").open("wb") as stderr:
            program = subprocess.Popen(
                [sys.executable, str(PROGRAMS / name), str(work / "spec.json")],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search)), **crash},
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        self._started.append((program, work))
        return program

    def finish(self, program: subprocess.Popen[bytes], *, code: int = 0) -> None:
        """Wait for a program to end, with an exit code."""
        (work,) = (w for p, w in self._started if p is program)
        ended_with = program.wait(_LONG_SECONDS)
        assert ended_with == code, f"ended with {ended_with}: {(work / 'stderr').read_text()[-3000:]}"

    def end(self) -> None:
        """End what a failed test left running."""
        for program, _ in self._started:
            if program.poll() is None:
                for process in [*psutil.Process(program.pid).children(recursive=True), program]:
                    process.kill()
                program.wait()


def only_run(runs: Path) -> Path:
    """Return the folder of the one run there is."""
    (found,) = (p for p in runs.glob("*/*") if p.is_dir() and not p.is_symlink())
    return found


def on_record(run_folder: Path) -> int:
    """Return the newest batch on record, -1 if none is."""
    return max((int(p.stem[5:]) for p in run_folder.glob("elements/*/ledger/*.json")), default=-1)


def page_folder(run_folder: Path) -> Path:
    """Return where a run's pages are in shared memory."""
    return page_root() / f"{run_folder.parent.name}-{run_folder.name}"


def read_parts(folder: Path) -> dict[tuple[int, int], pa.Table]:
    """Return a folder's Parquet files by the first and last batch they hold; nothing else may be there."""
    parts = {}
    for path in sorted(p for p in folder.iterdir() if p.name != LEASE):
        named = _PART.fullmatch(path.name)
        assert named, f"{path} is not a finished file"
        parts[int(named[1]), int(named[2])] = pq.read_table(path)
    return parts


def whole(parts: Mapping[tuple[int, int], pa.Table]) -> pa.Table:
    """Put files together in order, and check that no batch is in two of them."""
    ranges = sorted(parts)
    assert all(a[1] < b[0] for a, b in pairwise(ranges)), f"a batch is there twice: {ranges}"
    return pa.concat_tables([parts[r] for r in ranges])


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
