"""What results pay in time where an operator of a region may come out otherwise, and so has them held until a cut.

    python benchmarks/holding.py [--rounds N] [--seconds S] [--json]

Numbers that come at a steady pace go through a class that adds them up, in a region cut so often, to a function
that looks at the clock. The class says that it is deterministic, or that it is not; both take turns at each period.
That every number came, in order, and with the right sum, is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import riprap as rr
from riprap_bench.measuring import about

RATE = 1_000
PERIODS = ("200ms", "500ms", "1s", "2s")


class Sums(rr.CustomOperator):
    """Adds up what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        """Add a number."""
        self.sum += tuple["value"]
        self.submit(tuple | {"sum": self.sum})

    def checkpoint(self) -> int:
        """Save the sum."""
        return self.sum

    def reset(self, saved: int) -> None:
        """Go on from a sum."""
        self.sum = saved

    def reset_to_initial_state(self) -> None:
        """Begin anew."""
        self.sum = 0


class Clocked:
    """Takes results, and notes when each came."""

    def __init__(self) -> None:
        self.late: list[npt.NDArray[np.float64]] = []
        self.rows: list[pa.Table] = []

    def take(self, batch: int, rows: pa.Table) -> None:
        """Note how long after they were due numbers came."""
        now = time.time()
        due = rows["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() / 1e6
        self.late.append(now - due)
        self.rows.append(rows.select(["value", "sum"]))


def main() -> None:
    """Measure, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for period in PERIODS:
        found: dict[bool, list[npt.NDArray[np.float64]]] = {True: [], False: []}
        for _ in range(arguments.rounds):
            for held in found:
                found[held].append(measure(period, held, arguments.seconds))
        lines.append({"period": period} | {("held" if h else "not_held"): figures(found[h]) for h in found})
    if arguments.json:
        settings = about(rate=RATE, seconds=arguments.seconds, rounds=arguments.rounds)
        print(json.dumps({"latency_ms": lines, "about": settings}, indent=2))
        return
    print(f"{'period':<8}{'not held: median, 95%':>24}{'held: median, 95%':>24}   ms")
    for line in lines:
        parts = (f"{line[kind]['median']:>16.0f}{line[kind]['p95']:>8.0f}" for kind in ("not_held", "held"))
        print(f"{line['period']:<8}" + "".join(parts))


def measure(period: str, held: bool, seconds: int) -> npt.NDArray[np.float64]:
    """Run once; return by how many milliseconds results came after they were due, without the first quarter."""
    clocked = Clocked()
    app = rr.Application("holding")
    numbers = app.source("numbers", rr.rate(RATE, limit=RATE * seconds), protect=rr.consistent(period=period))
    schema = "time timestamp, value bigint, sum bigint"
    sums = app.custom("sums", Sums, numbers, schema=schema, deterministic=not held)
    app.sink("seen", sums, rr.callback(clocked.take))
    with TemporaryDirectory() as runs, app.run(runs=Path(runs)) as run:
        run.wait()
    values = pa.concat_tables(clocked.rows)
    expected = np.arange(RATE * seconds)
    assert np.array_equal(values["value"].to_numpy(), expected)
    assert np.array_equal(values["sum"].to_numpy(), np.cumsum(expected))
    return 1e3 * np.concatenate(clocked.late)[RATE * seconds // 4 :]


def figures(rounds: list[npt.NDArray[np.float64]]) -> dict[str, float]:
    """Return medians over rounds of the median and the 95% of each."""
    return {
        "median": round(statistics.median(float(np.median(r)) for r in rounds), 1),
        "p95": round(statistics.median(float(np.percentile(r, 95)) for r in rounds), 1),
    }


if __name__ == "__main__":
    main()
