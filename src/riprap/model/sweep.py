"""Predictions over all combinations of techniques, rates, faults and times: what a figure is drawn from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from riprap.graph.graph import Graph
from riprap.model.exact import predict_exactly
from riprap.model.prediction import Faults, Prediction, Spread, predict
from riprap.model.profile import Profile
from riprap.model.techniques import Technique


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One combination. ``rate`` is of all sources together."""

    technique: str
    rate: float
    faults: Faults
    horizon: float

    def to_json(self) -> dict[str, Any]:
        return {
            "technique": self.technique,
            "rate": self.rate,
            "fault_rate": self.faults.crash_rate,
            "corruption_rate": self.faults.corruption_rate,
            "recovery": self.faults.recovery,
            "crash": self.faults.crash,
            "at": self.faults.at,
            "horizon": self.horizon,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What to combine. Every combination has the same seed, so differences between them vary less than they do."""

    techniques: Mapping[str, Technique]
    rates: Sequence[float]
    crash_rates: Sequence[float] = (0.0,)
    corruption_rates: Sequence[float] = (0.0,)
    recoveries: Sequence[float] = (3.5,)
    horizons: Sequence[float]
    faults: Faults = field(default_factory=Faults)

    def settings(self) -> list[Combination]:
        """List all combinations, techniques side by side."""
        return [
            Combination(
                technique=technique,
                rate=rate,
                faults=replace(
                    self.faults, crash_rate=crashes, corruption_rate=corruptions, recovery=recovery
                ),
                horizon=horizon,
            )
            for horizon, crashes, corruptions, recovery, rate, technique in itertools.product(
                self.horizons,
                self.crash_rates,
                self.corruption_rates,
                self.recoveries,
                self.rates,
                self.techniques,
            )
        ]


@dataclass(frozen=True, slots=True)
class Point:
    """A combination and what is to be expected of it."""

    setting: Combination
    prediction: Prediction

    def to_json(self) -> dict[str, Any]:
        return {**self.setting.to_json(), **self.prediction.to_json()}


def assumed_of(points: Sequence[Point]) -> list[str]:
    """List what exact solutions take for granted, each once."""
    exact = [point.prediction.exact for point in points if point.prediction.exact is not None]
    return list(dict.fromkeys(line for each in exact for line in each.assumed))


def predict_all(
    graph: Graph,
    profile: Profile,
    sweep: Sweep,
    *,
    replications: int = 1000,
    seed: int = 1,
    ticks: int = 0,
    spread: Spread | None = None,
    exact: bool = False,
    show: Callable[[Combination, float], None] | None = None,
) -> list[Point]:
    """Predict every combination: by simulation, or ``exact``, which needs neither replications nor a seed.

    ``show`` is told which one is worked on, and the share of all that is done.
    """
    settings = sweep.settings()
    points: list[Point] = []
    for setting in settings:

        def done(share: float, setting: Combination = setting) -> None:
            if show is not None:
                show(setting, (len(points) + share) / len(settings))

        done(0.0)
        asked = (graph, profile.at_rate(setting.rate), sweep.techniques[setting.technique], setting.faults)
        if exact:
            prediction = predict_exactly(*asked, horizon=setting.horizon)
        else:
            prediction = predict(
                *asked,
                horizon=setting.horizon,
                replications=replications,
                seed=seed,
                ticks=ticks,
                spread=spread,
                show=done,
            )
        points.append(Point(setting, prediction))
    return points
