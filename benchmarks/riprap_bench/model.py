"""How long predictions take: the dissertation's figures, and how the cost grows with tuples, time and faults.

The answer is checked on the way: the availability of its table 5.4. Seconds are those of the processor, of all cores
together, so that others on the machine do not count. Compiling comes before, and is told apart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.models import PAPER
from riprap.errors import RunError
from riprap.model import Faults, predict
from riprap.model.prediction import ask, model_of
from riprap.model.tokens import net_of, rewards_of
from riprap.san import simulate
from riprap_bench.bargain_table import grid
from riprap_bench.measuring import Report, about, rounded

FORMAT = "riprap-bench-model/2"  # 1 had seconds on the clock, and no intervals
MODEL = PAPER["bargain"]
TWO_HOURS = 7200.0
RATES, RECOVERIES = (250.0, 350.0, 450.0, 550.0), (3.5, 15.0)
CRASHES = (5.56e-4, 3.33e-4, 2.38e-4)
USUAL = 1.85e-4
TABLE = {
    "Source": 0.84533,
    "TradeFilter": 0.84533,
    "Aggregator": 0.83987,
    "VWAP": 0.93676,
    "BargainIndex": 0.93599,
}
SEED = 1


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Predict both figures, then the same point with more tuples, more time and more faults, then a net of tokens."""
    described = about(seed=SEED, quick=quick)
    replications = 50 if quick else 1000
    began = time.process_time()
    check()
    ready = time.process_time() - began
    report(f"compiled, and table 5.4 checked: {ready:.0f} s")
    points: list[dict[str, Any]] = []
    for figure, technique, rate, recovery, crashes in _figures():
        made = _measured(technique, rate, recovery, crashes, TWO_HOURS, replications)
        points.append({"figure": figure, "technique": technique, "rate": rate, "recovery": recovery, "crashes": crashes}
                      | made)  # fmt: skip
        report(f"{figure}: {technique} at {rate:g}/s, {recovery:g} s, {crashes:g}/s: {made['seconds']:.1f} s")
    growth = [
        {"what": what, "times": times} | _measured("checkpoint", rate, 3.5, crashes, horizon, replications)
        for what, times, rate, crashes, horizon in _growth()
    ]
    report("cost with tuples, time and faults measured")
    tokens = measure_tokens(20.0 if quick else 120.0)
    report(f"net of tokens: {tokens['rate']:,.0f} completions a second")
    return {
        "format": FORMAT,
        "ready_s": ready,
        "points": rounded(points),
        "growth": rounded(growth),
        "tokens": rounded([tokens])[0],
        "replications": replications,
        "figures_s": sum(p["seconds"] for p in points),
        "slowest_point_s": max(p["seconds"] for p in points),
        "about": described,
    }


def _figures() -> list[tuple[str, str, float, float, float]]:
    both = ("checkpoint", "groups")
    rates = [("5.12", t, rate, recovery, USUAL) for recovery in RECOVERIES for rate in RATES for t in both]
    return rates + [("5.13", t, 450.0, 3.5, crashes) for crashes in CRASHES for t in both]


def _growth() -> list[tuple[str, int, float, float, float]]:
    times = (1, 4, 16)
    return [
        *(("tuples a second", n, 450.0 * n, USUAL, TWO_HOURS) for n in times),
        *(("crashes", n, 450.0, USUAL * n, TWO_HOURS) for n in times),
        *(("time, and with it crashes", n, 450.0, USUAL, TWO_HOURS * n) for n in times),
        *(("time, as many crashes", n, 450.0, USUAL / n, TWO_HOURS * n) for n in times),
    ]


def _graph() -> rr.Graph:
    return CATALOGUE["bargain"].make(None, rr.memory()).graph()


def _measured(
    technique: str, rate: float, recovery: float, crashes: float, horizon: float, replications: int
) -> dict[str, Any]:
    faults = Faults(crash_rate=crashes, recovery=recovery)
    chosen, profile, graph = MODEL.configurations[technique], MODEL.profile.at_rate(rate), _graph()
    began = time.process_time()
    made = predict(graph, profile, chosen, faults, horizon=horizon, replications=replications, seed=SEED)
    seconds = time.process_time() - began
    return {
        "availability": made.availability.mean,
        "availability_give_or_take": made.availability.high - made.availability.mean,
        "tainted": made.tainted_tuples.mean,
        "tainted_give_or_take": made.tainted_tuples.high - made.tainted_tuples.mean,
        "share": made.share.mean,
        "crashes_seen": made.crashes.mean,
        "leaps": made.leaps / made.replications,
        "seconds": seconds,
    }


def check() -> None:
    """Raise an error unless table 5.4 comes out."""
    profile, technique = MODEL.profile.at_rate(2200.0), MODEL.configurations["checkpoint"]
    for name, right in TABLE.items():
        faults = Faults(crash=name, recovery=16.0)
        made = predict(_graph(), profile, technique, faults, horizon=360.0, replications=50, seed=SEED)
        if abs(made.availability.mean - right) > 0.0005:
            raise RunError(
                f"after a crash of {name} availability is {made.availability.mean:.5f}, not {right}"
            )


def measure_tokens(horizon: float) -> dict[str, Any]:
    """Simulate the net of tokens on one core, with a crash in it."""
    faults = Faults(crash="Source", recovery=horizon / 20)
    profile = MODEL.profile.at_rate(2200.0)
    wired = model_of(_graph(), profile, MODEL.configurations["checkpoint"], faults)
    asked = ask(wired, profile, faults, horizon)
    net, rewards = net_of("bargain", wired, asked), rewards_of(wired, asked)
    simulate(net, rewards, replications=1, seed=SEED)
    found = simulate(net, rewards, replications=4, seed=SEED, clock=time.process_time)
    return {
        "activities": len(net.activities),
        "completions": found.completions,
        "completions_a_tuple": found.completions / (4 * horizon * 2200.0),
        "rate": found.completions / found.seconds,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the result as Markdown tables."""
    points = [
        [
            p["figure"],
            p["technique"],
            f"{p['rate']:g}",
            f"{p['recovery']:g} s",
            f"{p['crashes']:.3g}",
            f"{p['availability']:.4f} ± {p['availability_give_or_take']:.4f}",
            f"{p['tainted']:,.0f} ± {p['tainted_give_or_take']:,.0f}",
            f"{p['share']:.2%}",
            f"{p['seconds']:.1f} s",
        ]
        for p in result["points"]
    ]
    head = [
        "figure",
        "technique",
        "tuples/s",
        "recovery",
        "crashes/s",
        "availability",
        "tainted",
        "share",
        "took",
    ]
    growth = [
        [
            g["what"],
            str(g["times"]),
            f"{g['crashes_seen']:.1f}",
            f"{g['leaps']:,.0f}",
            f"{g['seconds']:.1f} s",
        ]
        for g in result["growth"]
    ]
    tokens, machine = result["tokens"], result["about"]
    return "\n\n".join(
        [
            grid(head, points),
            f"All points together: {result['figures_s']:.0f} s, the slowest {result['slowest_point_s']:.1f} s; "
            f"{result['replications']:,} replications each; seconds of processor time, and before that "
            f"{result['ready_s']:.0f} to compile.",
            grid(["more", "times", "crashes", "leaps a replication", "took"], growth),
            f"The net of tokens, {tokens['activities']} activities: {tokens['rate'] / 1e6:.1f} million completions a "
            f"second of one core, {tokens['completions_a_tuple']:.1f} for each tuple.",
            f"{machine['date']}; {machine['machine']}, load {machine['load_before']} before",
        ]
    )
