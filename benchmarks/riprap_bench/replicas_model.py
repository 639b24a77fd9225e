"""Figures 5.12 and 5.13 of the dissertation with failover as long as measured, beside one second as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.errors import RunError
from riprap.model import Faults, Groups, predict
from riprap_bench.checkpoint_plan import Track
from riprap_bench.model import CRASHES, MODEL, RATES, RECOVERIES, TWO_HOURS, USUAL
from riprap_bench.replicas_plan import Plan

# Which strikes are the failover of the model, and whether as in the median or at worst.
_MEASURED = {"killed": ("switch", 0), "hung": ("hang", 0), "killed, worst": ("switch", 1)}


def measure_model(plan: Plan, track: Track, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Predict both figures with the failover times that other parts have found."""
    failovers = {"published": 1.0}
    for name, (part, worst) in _MEASURED.items():
        if part in parts:
            found = parts[part]
            failovers[name] = float(found["spread"][1] if worst else found["seconds"])
    if len(failovers) == 1:
        raise RunError("no failover is measured yet: measure the parts 'switch' and 'hang' first")
    result = predict_figures(failovers, replications=plan.replications, seed=plan.seed)
    track.pass_(plan.estimate()["model"])
    return result


def predict_figures(failovers: Mapping[str, float], *, replications: int, seed: int) -> dict[str, Any]:
    """Predict each point of the figures with groups, for every failover in seconds.

    >>> found = predict_figures({"measured": 0.3}, replications=2, seed=1)
    >>> len(found["points"]), sorted(found["points"][0]["predicted"])
    (11, ['measured'])
    """
    graph = CATALOGUE["bargain"].make(None, rr.memory()).graph()
    groups = MODEL.configurations["groups"]
    assert isinstance(groups, Groups)
    points = []
    for figure, rate, recovery, crashes in _points():
        faults, profile = Faults(crash_rate=crashes, recovery=recovery), MODEL.profile.at_rate(rate)
        predicted = {}
        for name, failover in failovers.items():
            made = predict(
                graph,
                profile,
                replace(groups, failover=failover),
                faults,
                horizon=TWO_HOURS,
                replications=replications,
                seed=seed,
            )
            predicted[name] = {
                "availability": made.availability.mean,
                "availability_give_or_take": made.availability.high - made.availability.mean,
                "tainted": made.tainted_tuples.mean,
                "tainted_give_or_take": made.tainted_tuples.high - made.tainted_tuples.mean,
                "share": made.share.mean,
            }
        points.append(
            {"figure": figure, "rate": rate, "recovery": recovery, "crashes": crashes, "predicted": predicted}
        )
    return {"failovers": dict(failovers), "points": points, "replications": replications}


def _points() -> list[tuple[str, float, float, float]]:
    """List the points of both figures that have groups."""
    by_rate = [("5.12", rate, recovery, USUAL) for recovery in RECOVERIES for rate in RATES]
    return by_rate + [("5.13", 450.0, 3.5, crashes) for crashes in CRASHES]
