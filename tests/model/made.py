"""Predictions made by hand, so that nothing is simulated to look at a page."""

from __future__ import annotations

from dataclasses import replace

import riprap as rr
from riprap.graph.graph import Graph
from riprap.model import Cost, Estimate, Faults, Prediction, Profile, fitting
from riprap.model.compare import Compared, Comparison
from riprap.model.fitting import Fit
from riprap.model.sweep import Combination, Point

PROFILE = Profile(
    rates={"Rows": 100.0}, operators={}, assumed=("state of 'Sums' is <i>as large as it gets</i>",)
)


def graph() -> Graph:
    app = rr.Application("sums")
    rows = app.source("Rows", rr.rows([{"n": 1, "v": 2}], "n bigint, v bigint"), position="n")
    app.sink("Out", app.functor("Odd", rows, where="v % 2 = 1"), rr.memory())
    return app.graph()


def about(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def prediction(
    availability: Estimate, tainted: Estimate, *, copies: int = 0, written: float | None = 0.0
) -> Prediction:
    return Prediction(
        availability=availability,
        alone=about(0.9991, 0.0001),
        tainted_tuples=tainted,
        share=tainted.scaled(1 / 100_000),
        output=about(99_000, 150),
        fault_free=100_000.0,
        lost=about(321, 4.5),
        crashes=about(7.2, 0.31),
        replications=100,
        leaps=1,
        seconds=0.5,
        cost=Cost(copies=copies, checkpoint_bytes=written),
    )


def setting(technique: str, rate: float = 100.0, **faults: float) -> Combination:
    return Combination(
        technique=technique, rate=rate, faults=Faults(**{"crash_rate": 1 / 5400, **faults}), horizon=7200.0
    )


def point(technique: str, made: Prediction, rate: float = 100.0, **faults: float) -> Point:
    return Point(setting(technique, rate, **faults), made)


def sweep() -> list[Point]:
    """Three techniques at three rates: replicas have less than half the tainted tuples, availability is close."""
    points = []
    for step, rate in enumerate((100.0, 200.0, 400.0)):
        points += [
            point("none", prediction(about(0.95 + 0.01 * step, 0.001), about(4000 + 2000 * step, 210)), rate),
            point(
                "checkpoint",
                prediction(about(0.98 + 0.003 * step, 0.004), about(2100 + 900 * step, 150), written=2.5e6),
                rate,
            ),
            point(
                "replicas",
                prediction(about(0.982 + 0.003 * step, 0.004), about(700 + 250 * step, 60), copies=4),
                rate,
            ),
        ]
    return points


def crash() -> Point:
    """One crash, with the output over time."""
    faults = Faults(crash="Odd", at=30.0)
    series = tuple((0.0, 60.0) if 15 <= n < 22 else (50.0 + n % 3, 0.0) for n in range(60))
    made = replace(prediction(about(0.88, 0.002), about(420, 12)), series=series)
    return Point(Combination(technique="none", rate=100.0, faults=faults, horizon=120.0), made)


def fit(operator: str = "Sums") -> Fit:
    points = [
        fitting.ObservedOutage(
            rate, recovery, int(rate * recovery), 520 + 1.9 * rate * recovery, 500 + 1.9 * rate * recovery
        )
        for rate in (250.0, 350.0)
        for recovery in (1.0, 3.0, 5.0, 8.0, 12.0, 17.0)
    ]
    return Fit(
        operator=operator, port=0, how="tuples", state=15_495.0, alpha=0.03, beta=1.9, points=tuple(points)
    )


def comparison() -> Comparison:
    """Four operators, of which R ranks two otherwise than availability does."""
    values = (
        ("Rows", about(0.95, 0.001), 20, about(900, 30), 4.5),
        ("Odd", about(0.93, 0.001), 12, about(400, 30), 1.25),
        ("Sums", about(0.88, 0.002), 61, about(5200, 90), 17.75),
        ("<Out>", about(0.97, 0.001), None, about(0, 0), 0.0),
    )
    return Comparison(
        campaign="campaigns/sums", outage=16.0, rate=2200.0, horizon=360.0,
        operators=tuple(Compared(operator=o, prediction=prediction(a, t), R=r, I=i) for o, a, r, t, i in values),
    )  # fmt: skip
