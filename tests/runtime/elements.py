"""An application of several processing elements, and what it must put out, tuple by tuple."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr
from riprap.graph.connectors import SinkConnector

CALLS = 6_000


def write_calls(folder: Path, *, seed: int) -> pa.Table:
    """Write recorded calls as two files; return them."""
    draw = random.Random(seed)
    table = pa.table(
        {
            "seq": pa.array(range(CALLS), pa.int64()),
            "caller": pa.array([draw.choice("abcdefgh") for _ in range(CALLS)]),
            "callee": pa.array([draw.choice(["u", "v", "w", None]) for _ in range(CALLS)]),
            "minutes": pa.array([draw.randrange(60) for _ in range(CALLS)], pa.int64()),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.slice(0, 3_500), folder / "a.parquet")
    pq.write_table(table.slice(3_500), folder / "b.parquet")
    return table


def busy(
    calls: Path, by_caller: SinkConnector, by_callee: SinkConnector, met: SinkConnector
) -> rr.Application:
    """Describe sums by caller, counts by callee of those sums, and the two brought together again by callee."""
    app = rr.Application("busy")
    source = app.source("calls", rr.files(str(calls)), position="seq")
    sums = app.aggregate(
        "sums",
        source,
        by="caller",
        window=rr.sliding(tuples=4),
        select="sum(minutes) as total, last(callee) as callee",
    )
    counts = app.aggregate(
        "counts", sums, by="callee", window=rr.tumbling(tuples=3), select="count(*) as n, max(total) as top"
    )
    both = app.join(
        "both",
        counts,
        app.functor("long", source, where="minutes > 50"),
        by="callee",
        windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)),
        select="callee, counts.top as top, long.seq as seq",
    )
    app.sink("by_caller", sums, by_caller)
    app.sink("by_callee", counts, by_callee)
    app.sink("met", both, met)
    return app


def expected(calls: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Work out the output of :func:`busy`, one call after the other."""
    windows: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=4))
    open_: defaultdict[str | None, list[int]] = defaultdict(list)
    newest: dict[str, int] = {}
    out: dict[str, list[dict[str, Any]]] = {"by_caller": [], "by_callee": [], "met": []}
    for call in calls.to_pylist():
        caller, callee = call["caller"], call["callee"]
        windows[caller].append(call["minutes"])
        total = sum(windows[caller])
        out["by_caller"].append({"caller": caller, "total": total, "callee": callee})
        open_[callee].append(total)
        if len(open_[callee]) == 3:
            out["by_callee"].append({"callee": callee, "n": 3, "top": max(open_[callee])})
            if callee is not None:
                newest[callee] = max(open_[callee])
            open_[callee] = []
        if call["minutes"] > 50 and callee in newest:
            out["met"].append({"callee": callee, "top": newest[callee], "seq": call["seq"]})
    return out
