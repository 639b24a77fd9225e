"""The exact solution: against closed forms, and against the two simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.model.made import graph
from tests.model.test_leaps import part

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.models import PAPER
from riprap.errors import ModelError
from riprap.model import (
    Checkpoints,
    ConsistentRegion,
    Faults,
    OperatorProfile,
    Port,
    Profile,
    Protection,
    Unprotected,
    predict,
    predict_exactly,
)
from riprap.model.arrays import Question
from riprap.model.exact import MOST_STATES
from riprap.model.tokens import net_of, rewards_of
from riprap.model.wiring import wire
from riprap.san import simulate, solve

ALL = (("Rows", "Odd", "Out"),)


def profile(rate: float = 10.0, **port: float) -> Profile:
    odd = OperatorProfile(ports=(Port(**port),))
    return Profile(
        rates={"Rows": rate}, operators={"Rows": OperatorProfile(), "Odd": odd, "Out": OperatorProfile()}
    )


def test_one_thing_that_fails_and_is_repaired() -> None:
    crashes, recovery, horizon = 0.02, 4.0, 50.0
    faults = Faults(crash_rate=crashes, recovery=recovery, together=ALL)
    made = predict_exactly(graph(), profile(selectivity=0.4), Unprotected(), faults, horizon=horizon)
    # Down with rate a and up with rate b, the probability to be up falls to b / (a + b) as e to the -(a + b) t.
    a, b = crashes, 1 / recovery
    up = b / (a + b) + a / (a + b) ** 2 * (1 - math.exp(-(a + b) * horizon)) / horizon
    assert made.availability.mean == made.availability.low == made.alone.mean == pytest.approx(up, rel=1e-9)
    assert made.crashes.mean == pytest.approx(a * up * horizon, rel=1e-9)
    assert made.output.mean == pytest.approx(0.4 * 10 * up * horizon, rel=1e-9)
    assert made.lost.mean == pytest.approx(10 * (1 - up) * horizon, rel=1e-9)
    assert made.tainted_tuples.mean == made.sinks["Out"].mean == 0
    assert made.exact is not None
    assert made.exact.states == 2
    assert len(made.exact.assumed) == 1


def test_in_the_long_run_only_means_count() -> None:
    faults = Faults(crash_rate=1 / 500, recovery=20.0)
    made = predict_exactly(graph(), profile(), Unprotected(), faults, horizon=1e8)
    # MTTF / (MTTF + MTTR) of each.
    assert made.availability.mean == pytest.approx((500 / 520) ** 3, rel=1e-6)
    together = Faults(crash_rate=1 / 500, recovery=20.0, together=ALL)
    made = predict_exactly(graph(), profile(state=7), Unprotected(), together, horizon=1e8)
    # It is well again once seven tuples came, each before the next crash.
    filled = (10 / (10 + 1 / 500)) ** 7
    assert made.availability.mean == pytest.approx(filled * 500 / 520, rel=1e-6)
    assert made.output.mean == pytest.approx(1e9 * 500 / 520 * (filled + (1 - filled) / 2), rel=1e-6)


def test_intervals_of_a_simulation_hold_the_exact_values() -> None:
    # Nearly every outage loses a tuple, and how many makes no difference: constant times and random ones agree.
    described = profile(rate=200.0, state=60, alpha=0.5, beta=0.0)
    technique, faults = Checkpoints(every=1.0), Faults(crash_rate=0.01, recovery=2.0)
    exact = predict_exactly(graph(), described, technique, faults, horizon=500.0)
    found = predict(graph(), described, technique, faults, horizon=500.0, replications=1000, seed=2)
    for name in ("availability", "alone", "tainted_tuples", "output", "lost", "crashes"):
        interval = getattr(found, name)
        assert interval.low <= getattr(exact, name).mean <= interval.high, name
    assert exact.fault_free == found.fault_free
    assert exact.cost == found.cost
    assert exact.exact is not None
    assert "mean age" in exact.exact.assumed[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "protections",
    [
        {"Sums": Protection(restore="checkpoint", age=(0.5, 0.5))},
        {"Sums": Protection(copies=2)},
        {"Sums": Protection(group="g", failover=1.0, peer=True)},
    ],
    ids=["checkpoint", "copies", "a group"],
)
def test_the_solved_net_and_the_simulated_one_agree(protections: dict[str, Protection]) -> None:
    parts = (
        part("In", rate=10.0),
        part("Sums", "In", state=3, alpha=0.4, alpha_tainted=0.34, beta=0.5, selectivity=0.5),
        part("Out", "Sums", sink=True),
    )
    wired = wire(parts, protections)
    units = len(wired.units)
    asked = Question(
        100.0,
        np.full(units, 0.01),
        np.zeros(len(wired.nodes)),
        np.full(units, 2.0),
        np.full(units, np.inf),
        0,
    )
    net, rewards = net_of("model", wired, asked, memoryless=True), rewards_of(wired, asked, memoryless=True)
    solution = solve(net, rewards)
    found = simulate(net, rewards, replications=20_000, seed=3)
    for reward in rewards:
        estimate = found[reward.name]
        wide = 1.5 * (estimate.high - estimate.low) / 2
        assert solution[reward.name] == pytest.approx(estimate.mean, abs=wide), reward.name


@pytest.mark.parametrize(
    ("technique", "faults", "said"),
    [
        (Unprotected(), Faults(crash="Odd"), "a crash of 'Odd' at a time that is set"),
        (Unprotected(), Faults(crash_rate=0.1, corruption_rate=0.1), "no bound to the tuples"),
        (ConsistentRegion(), Faults(crash_rate=0.1), "Odd: what comes in waits while it is down"),
    ],
)
def test_what_has_no_exact_solution(technique: ConsistentRegion, faults: Faults, said: str) -> None:
    with pytest.raises(ModelError, match=f"{said}.*Leave out --exact"):
        predict_exactly(graph(), profile(state=5), technique, faults, horizon=10.0)


def test_what_is_too_large() -> None:
    bargain = CATALOGUE["bargain"].make(None, rr.memory()).graph()
    faults = Faults(crash_rate=0.001)
    with pytest.raises(ModelError) as error:
        predict_exactly(bargain, PAPER["bargain"].profile, Checkpoints(), faults, horizon=60.0)
    assert f"at least 966,784 states, and {MOST_STATES:,} can be solved exactly" in str(error.value)
    assert "8 operators, copies or hosts are up or down, 'Aggregator' counts up to 7,552 tuples" in str(
        error.value
    )
    with pytest.raises(ModelError, match="more than 100 states, and 100 can be solved exactly"):
        predict_exactly(
            graph(), profile(state=8, alpha=0.2, beta=1.0), Checkpoints(), faults, horizon=60.0, most=100
        )
