"""Predictions beside measurements: the model of an application against a fault-injection campaign on it (table 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from riprap.errors import ModelError
from riprap.faults.folder import CampaignFolder
from riprap.graph.graph import Graph
from riprap.model.prediction import Faults, Prediction, predict
from riprap.model.profile import Profile
from riprap.model.techniques import Checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was predicted for a crash of an operator, and what a campaign measured: recovery time and impact."""

    operator: str
    prediction: Prediction
    R: int | None
    I: float  # noqa: E741 - the paper's name

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "availability": self.prediction.availability.to_json(),
            "R": self.R,
            "tainted_tuples": self.prediction.tainted_tuples.to_json(),
            "I": self.I,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All operators of a campaign, and the pairs that prediction and measurement rank in opposite ways."""

    campaign: str
    outage: float
    rate: float
    horizon: float
    operators: tuple[Compared, ...]

    def ranked_otherwise(self) -> dict[str, list[tuple[str, str]]]:
        """Return the pairs that availability and R, and those that tainted tuples and I, rank differently.

        Two that are as good as equal (within the intervals, or equal as measured) are not told apart.
        """
        return {
            "availability": self._pairs(lambda c: _span(c.prediction.availability, -1), lambda c: c.R),
            "tainted_tuples": self._pairs(lambda c: _span(c.prediction.tainted_tuples, 1), lambda c: c.I),
        }

    def _pairs(
        self,
        predicted: Callable[[Compared], tuple[float, float]],
        measured: Callable[[Compared], float | None],
    ) -> list[tuple[str, str]]:
        pairs = []
        for one, other in combinations(self.operators, 2):
            (low, high), (other_low, other_high) = predicted(one), predicted(other)
            one_measured, its = measured(one), measured(other)
            if one_measured is None or its is None or one_measured == its:
                continue
            worse = low > other_high
            better = high < other_low
            if (worse and one_measured < its) or (better and one_measured > its):
                pairs.append((one.operator, other.operator))
        return pairs

    def to_json(self) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "outage": self.outage,
            "rate": self.rate,
            "horizon": self.horizon,
            "operators": {c.operator: c.to_json() for c in self.operators},
            "ranked_otherwise": self.ranked_otherwise(),
        }


def _span(estimate: Any, sign: int) -> tuple[float, float]:
    low, high = sign * estimate.low, sign * estimate.high
    return (low, high) if low <= high else (high, low)


def compare(
    graph: Graph,
    profile: Profile,
    folder: CampaignFolder,
    *,
    replications: int = 200,
    seed: int = 1,
    show: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Predict what a campaign measured: one crash of each target, as long as its longest outage.

    The campaign's tuples are lost and its operators keep their state, so the model restores checkpoints of no age. Its
    rate is the campaign's, its horizon the time that the campaign's feed takes at that rate.
    """
    about, result = folder.about, folder.result
    if result is None:
        raise ModelError(
            f"the campaign in {folder.path} is not done: give the command of 'riprap inject' again to go on"
        )
    if about["application"] != graph.name:
        raise ModelError(
            f"the campaign in {folder.path} is of '{about['application']}', not of '{graph.name}'"
        )
    campaign = about["campaign"]
    rate = max(campaign["rates"].values(), default=0.0) or sum(profile.rates.values())
    outage = max(campaign["seconds"], default=0.0) or max(campaign["tuples"]) / rate
    horizon = result["rows"] / rate
    operators = _first_model(result["operators"])
    compared = []
    for number, each in enumerate(operators):
        name = "+".join(each["targets"])
        if show is not None:
            show(name, number / len(operators))
        first, *others = each["targets"]
        faults = Faults(crash=first, recovery=outage, together=((first, *others),) if others else ())
        prediction = predict(
            graph,
            profile.at_rate(rate),
            Checkpoints(age=0.0),
            faults,
            horizon=horizon,
            replications=replications,
            seed=seed,
        )
        compared.append(Compared(operator=name, prediction=prediction, R=each["R"], I=each["I"]))
    return Comparison(
        campaign=str(folder.path), outage=outage, rate=rate, horizon=horizon, operators=tuple(compared)
    )


def _first_model(operators: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    first = operators[0]["model"]
    return [each for each in operators if each["model"] == first]
