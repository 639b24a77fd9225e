"""How many activities a second complete in a simulated net, as the horizon and the net grow.

An open tandem: jobs arrive, wait at each station, are processed one at a time and sent on one at a time. With
exponential times every queue is an M/M/1 queue (Burke), with constant ones the first is an M/D/1 queue: its length is
checked against theory. One thread, and seconds are those of the processor, so that other work beside it counts less;
the first run, which may compile, is told apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from riprap.errors import RunError
from riprap.san import Activity, Deterministic, Exponential, Net, Place, Rate, Steady, simulate
from riprap_bench.bargain_table import grid
from riprap_bench.measuring import Report, about, middle, rounded, spread

FORMAT = "riprap-bench-san/1"
HORIZON, QUICK_HORIZON = 5_000.0, 500.0
WARM_UP = 0.2  # of the shortest horizon
# stations, whether every other one takes a constant time, and times the horizon
CASES = ((8, False, 1), (8, False, 4), (8, False, 16), (8, True, 1), (64, False, 1))
REPLICATIONS = 16
REPETITIONS = 3
SEED = 0
ARRIVALS, PROCESSING, SENDING = 0.6, 1.0, 1.5


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure all cases."""
    described = about(seed=SEED, quick=quick)
    horizon = QUICK_HORIZON if quick else HORIZON
    rows = []
    for stations, constant, times in CASES:
        rows.append(measure(stations, constant, horizon, times))
        report(
            f"{stations} stations, {times} times the horizon: {rows[-1]['rate']:,.0f} completions a second"
        )
    return {"format": FORMAT, "rows": rounded(rows), "about": described}


def tandem(stations: int, constant: bool) -> Net:
    """Return the tandem; ``constant`` has the processing of every other station take a constant time."""
    places = []
    activities = [Activity("arrive", time=Exponential("arrivals"), puts={"waiting1": 1})]
    for i in range(1, stations + 1):
        places += [Place(f"waiting{i}"), Place(f"idle{i}", 1), Place(f"busy{i}"), Place(f"sending{i}")]
        work = Deterministic("1 / processing") if constant and i % 2 else Exponential("processing")
        onward = {f"waiting{i + 1}": 1} if i < stations else {}
        activities += [
            Activity(f"start{i}", time=None, takes={f"waiting{i}": 1, f"idle{i}": 1}, puts={f"busy{i}": 1}),
            Activity(f"process{i}", time=work, takes={f"busy{i}": 1}, puts={f"sending{i}": 1, f"idle{i}": 1}),
            Activity(f"send{i}", time=Exponential("sending"), takes={f"sending{i}": 1}, puts=onward),
        ]
    return Net(
        "tandem", places, activities, {"arrivals": ARRIVALS, "processing": PROCESSING, "sending": SENDING}
    )


def expected(constant: bool) -> float:
    """Return how many jobs are at the first station in the long run, waiting and in work."""
    load = ARRIVALS / PROCESSING
    return load + load**2 / (2 * (1 - load)) if constant else load / (1 - load)


def measure(stations: int, constant: bool, horizon: float, times: int) -> dict[str, Any]:
    """Simulate a case a few times, and compare the first queue with theory."""
    net = tandem(stations, constant)
    rewards = [Rate("first", "waiting1 + busy1", Steady(after=WARM_UP * horizon))]
    at = time.perf_counter()
    simulate(net, rewards, until=horizon, replications=1, seed=SEED)
    ready = time.perf_counter() - at
    runs = [
        simulate(
            net,
            rewards,
            until=horizon * times,
            replications=REPLICATIONS,
            seed=SEED + repetition,
            clock=time.process_time,
        )
        for repetition in range(REPETITIONS)
    ]
    for found in runs:
        first, right = found["first"], expected(constant)
        if abs(first.mean - right) > 6 * first.deviation / math.sqrt(REPLICATIONS):
            raise RunError(f"the first queue of {stations} is {first.mean:.4f} long, not {right:.4f}")
    rates = [found.completions / found.seconds for found in runs]
    return {
        "stations": stations,
        "activities": len(net.activities),
        "constant": constant,
        "times": times,
        "completions": runs[0].completions,
        "rate": middle(rates),
        "rates": spread(rates),
        "seconds": middle([found.seconds for found in runs]),
        "first_run_s": ready,
        "queue": runs[0]["first"].mean,
        "expected": expected(constant),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [
        [
            f"{row['stations']}{', half of them constant' if row['constant'] else ''}",
            f"{row['activities']}",
            f"{row['times']}",
            f"{row['completions']:,}",
            f"{row['rate'] / 1e6:.1f} million",
            f"{row['rates'][0] / 1e6:.1f} to {row['rates'][1] / 1e6:.1f}",
            f"{row['queue']:.3f}",
            f"{row['expected']:.3f}",
        ]
        for row in result["rows"]
    ]
    head = [
        "stations",
        "activities",
        "horizon",
        "completions",
        "a second of CPU",
        "spread",
        "first queue",
        "by theory",
    ]
    machine = result["about"]
    return (
        f"{grid(head, rows)}\n\n{machine['date']}; {machine['machine']}, load {machine['load_before']} before"
    )
