"""An application in two driver processes, its input file by file, and what it must put out, tuple by tuple."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr

ROWS = 500
SINKS = ("by_caller", "by_callee", "seen")


def calls_of(file: int) -> pa.Table:
    """Make the calls of a file."""
    draw = random.Random(file)
    return pa.table(
        {
            "seq": pa.array(range(file * ROWS, (file + 1) * ROWS), pa.int64()),
            "caller": pa.array([draw.choice("abcdefgh") for _ in range(ROWS)]),
            "callee": pa.array([draw.choice("uvwxyz") for _ in range(ROWS)]),
            "minutes": pa.array([draw.randrange(60) for _ in range(ROWS)], pa.int64()),
        }
    )


def put_file(folder: Path, file: int) -> None:
    """Let a file arrive, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f".{file:03d}.parquet"
    pq.write_table(calls_of(file), half)
    half.rename(folder / f"{file:03d}.parquet")


def watched(calls: Path, out: Path, **source: Any) -> rr.Application:
    """Describe sums by caller in the main process; in another, counts by callee, and a reader that goes on live."""
    app = rr.Application("watched")
    stream = app.source("calls", rr.files(str(calls), **source), position="seq")
    sums = app.aggregate(
        "sums",
        stream,
        by="caller",
        window=rr.sliding(tuples=4),
        select="sum(minutes) as total, last(callee) as callee",
    )
    counts = app.aggregate(
        "counts", sums, by="callee", window=rr.tumbling(tuples=3), select="count(*) as n, max(total) as top"
    )
    seen = app.functor("see", stream, select="seq")
    app.sink("by_caller", sums, rr.parquet(out / "by_caller", roll=0))
    app.sink("by_callee", counts, rr.parquet(out / "by_callee", roll=0))
    app.sink("seen", seen, rr.parquet(out / "seen", roll=0))
    app.place("counter", counts, "by_callee", process="second")
    app.place("watcher", seen, "seen", restart="live", process="second")
    return app


def expected(files: Iterable[int], *, afresh: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Work out the output, one call after the other; with ``afresh``, counts lose their state before that file."""
    windows: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=4))
    open_: defaultdict[str, list[int]] = defaultdict(list)
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in SINKS}
    for call in (call for file in files for call in calls_of(file).to_pylist()):
        if afresh is not None and call["seq"] == afresh * ROWS:
            open_.clear()
        windows[call["caller"]].append(call["minutes"])
        total, callee = sum(windows[call["caller"]]), call["callee"]
        out["by_caller"].append({"caller": call["caller"], "total": total, "callee": callee})
        out["seen"].append({"seq": call["seq"]})
        open_[callee].append(total)
        if len(open_[callee]) == 3:
            out["by_callee"].append({"callee": callee, "n": 3, "top": max(open_[callee])})
            open_[callee] = []
    return out
