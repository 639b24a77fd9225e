"""What crashes cost, worked out by hand: two in a row, a split, and tuples that wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.model.test_leaps import part

from riprap.model import Part, Protection
from riprap.model.arrays import Question, ReplicationResult
from riprap.model.replication import simulate
from riprap.model.wiring import wire

# Every tuple passes, so that nothing is left to chance.
SUMS = (
    part("In", rate=10.0),
    part("First", "In"),
    part("Sums", "First", state=1000, alpha=0.0, alpha_tainted=0.02, beta=1.0),
    part("Out", "Sums", sink=True),
)


def crashed(
    parts: tuple[Part, ...],
    protections: dict[str, Protection],
    crashes: dict[str, float],
    *,
    recovery: dict[str, float],
    horizon: float = 100.0,
) -> ReplicationResult:
    wired = wire(parts, protections)
    units = len(wired.units)
    at, back = np.full(units, np.inf), np.full(units, 1.0)
    for name, when in crashes.items():
        (unit,) = wired.units_of(name)
        at[unit], back[unit] = when, recovery[name]
    asked = Question(horizon, np.zeros(units), np.zeros(len(wired.nodes)), back, at, 0)
    return simulate(wired.wiring, asked, np.random.default_rng(1))


def test_a_second_crash_does_not_heal() -> None:
    # First is down for 20 s: Sums lacks 200 tuples, and needs 200 more, 20 s. At 35 s it has had 50 of them, and is
    # down for 1 s: 10 tuples lost. What it needs is still the 150 that were left, 15 s.
    told = crashed(
        SUMS,
        {"Sums": Protection(restore="checkpoint")},
        {"First": 10.0, "Sums": 35.0},
        recovery={"First": 20.0, "Sums": 1.0},
    )
    assert told.up == pytest.approx(100 - 20 - 5 - 1 - 15, abs=0.2)


def test_what_comes_back_whole_is_as_it_was() -> None:
    told = crashed(
        SUMS,
        {"Sums": Protection(restore="whole", kept=True)},
        {"First": 10.0, "Sums": 35.0},
        recovery={"First": 20.0, "Sums": 1.0},
    )
    # The tuples that waited count as well: 20 s after First is back it is stable, down for one of them.
    assert told.up == pytest.approx(100 - 20 - 20, abs=0.2)
    assert told.lost == 200


def test_tuples_that_waited_heal_one_by_one() -> None:
    # Sums starts from nothing, and 200 tuples wait. Those after the first 30, which fill it, come out in full.
    parts = (
        part("In", rate=10.0),
        part("Sums", "In", state=30),
        part("Out", "Sums", sink=True),
    )
    told = crashed(parts, {"Sums": Protection(kept=True)}, {"Sums": 10.0}, recovery={"Sums": 20.0})
    assert told.lost == 0
    # One half of 30, give or take, is left out by chance.
    assert 1000 - 30 <= told.clean.sum() + 1 <= 1000


def test_a_tuple_goes_one_way_at_a_split() -> None:
    parts = (
        part("In", rate=10.0),
        part("Route", "In", outputs=("left", "right"), shares=(0.5, 0.5)),
        part("Left", "left", sink=True),
        part("Right", "right", sink=True),
    )
    told = crashed(parts, {}, {}, recovery={})
    assert told.clean.sum() == pytest.approx(1000, abs=1)
    assert 400 < told.clean[0] < 600


def test_what_does_not_spread_lasts_until_the_state_is_full() -> None:
    parts = (part("In", rate=10.0), part("Sums", "In", state=100), part("Out", "Sums", sink=True))
    told = crashed(parts, {}, {"Sums": 10.0}, recovery={"Sums": 5.0})
    assert told.up == pytest.approx(100 - 5 - 10, abs=0.2)
    assert told.up_alone == pytest.approx(told.up, abs=1e-9)


# A state that lets every tuple through, and would be full again after 100 of them, with a replica of which it is taken.
REPLICATED = (part("In", rate=10.0), part("Sums", "In", state=100), part("Out", "Sums", sink=True))


@pytest.mark.parametrize("failover", [2.0, 7.0])
def test_an_exact_group_costs_time_and_no_tuple(failover: float) -> None:
    group = {"Sums": Protection(group="g", failover=failover, kept=True)}
    told = crashed(REPLICATED, group, {"Sums": 10.0}, recovery={"Sums": 5.0})
    # What waits is out as soon as the other replica is asked, or this one is back with the other's state.
    assert told.up == pytest.approx(100 - min(failover, 5), abs=1e-9)
    assert told.up_alone == pytest.approx(told.up, abs=1e-9)
    assert told.lost == 0
    assert told.clean.sum() == pytest.approx(1000, abs=1)
    assert told.tainted.sum() == 0


@pytest.mark.parametrize(("peer", "filling"), [(True, 0.0), (False, 10.0)])
def test_a_replica_that_comes_back_has_the_other_s_state(peer: bool, filling: float) -> None:
    # The first replica is back before the other takes over: what it puts out counts, full state or not.
    group = {"Sums": Protection(group="g", failover=7.0, peer=peer)}
    told = crashed(REPLICATED, group, {"Sums": 10.0}, recovery={"Sums": 5.0})
    assert told.up == pytest.approx(100 - 5 - filling, abs=0.2)
    # Half of what comes while it fills is left out, by chance.
    assert told.clean.sum() == pytest.approx(1000 - 50 - 5 * filling, abs=1 if peer else 25)


def crashed_twice(second: float, **protection: Any) -> ReplicationResult:
    """Let the active replica be down from 10 to 20 s, and the other for 20 s from then on."""
    wired = wire(REPLICATED, {"Sums": Protection(group="g", failover=2.0, **protection)})
    first, other = (wired.units.index(((n, 0),)) for n in wired.nodes_of("Sums"))
    units = len(wired.units)
    at, back = np.full(units, np.inf), np.full(units, 10.0)
    at[first], at[other], back[other] = 10.0, second, 20.0
    asked = Question(100.0, np.zeros(units), np.zeros(len(wired.nodes)), back, at, 0)
    return simulate(wired.wiring, asked, np.random.default_rng(1))


def test_nothing_is_lost_where_both_replicas_are() -> None:
    told = crashed_twice(15.0, kept=True, restore="checkpoint", age=(0.0, 0.0))
    # The second is active from 12 to 15 s. The first, back at 20 s, takes over 2 s later, with 70 tuples that waited.
    assert told.up == pytest.approx(100 - 2 - 7, abs=0.2)
    assert told.lost == 0
    assert told.clean.sum() + told.tainted.sum() == pytest.approx(1000, abs=1)


def test_a_replica_that_is_behind_and_alone_has_its_own_protection() -> None:
    told = crashed_twice(15.0, kept=True)
    # The first has empty state at 20 s, and had the 50 tuples that waited when it takes over at 22 s: 30 more, 3 s.
    assert told.up == pytest.approx(100 - 2 - 7 - 3, abs=0.2)
    assert told.lost == 0
    # What comes in while it fills comes out by half.
    assert told.clean.sum() == pytest.approx(1000 - 50, abs=25)


def test_a_replica_that_only_stands_by_does_not_make_it_available() -> None:
    parts = (part("In", rate=10.0), part("Filter", "In"), part("Out", "Filter", sink=True))
    group = {"Filter": Protection(group="g", failover=2.0)}
    told = crashed(parts, group, {"Filter": 10.0}, recovery={"Filter": 20.0})
    assert told.up == pytest.approx(100 - 2, abs=1e-9)
    assert told.up_alone == pytest.approx(told.up, abs=1e-9)
    assert told.clean.sum() == pytest.approx(1000 - 20, abs=1)
