"""The exact solver against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from tests.san.nets import machines, queue

from riprap.san import (
    Activity,
    At,
    Case,
    Deterministic,
    Exponential,
    Impulse,
    InputGate,
    Mean,
    Net,
    NotMarkovError,
    Place,
    Rate,
    Steady,
    TooManyStatesError,
    Total,
    UnstableError,
    solve,
)

near = {"rel": 1e-9, "abs": 1e-12}


def birth_death(births: list[float], deaths: list[float]) -> np.ndarray:
    weights = np.cumprod([1.0, *(b / d for b, d in zip(births, deaths, strict=True))])
    return weights / weights.sum()


@pytest.mark.parametrize(("arrivals", "room"), [(0.5, 5), (1.0, 7), (3.0, 40)])
def test_a_queue_with_room_for_some(arrivals: float, room: int) -> None:
    found = solve(
        queue(arrivals, 1.0, room),
        [Rate("jobs", "jobs"), Rate("full", "jobs == room"), Impulse("served", {"serve": 1})],
    )
    p = birth_death([arrivals] * room, [1.0] * room)
    assert found["jobs"] == pytest.approx(p @ np.arange(room + 1), **near)
    assert found["full"] == pytest.approx(p[-1], **near)
    assert found["served"] == pytest.approx(1 - p[0], **near)
    assert found.states == room + 1


def test_erlang_loss() -> None:
    load, servers = 4.0, 6
    terms = [load**k / math.factorial(k) for k in range(servers + 1)]
    found = solve(queue(load, 1.0, servers, servers), [Rate("lost", "jobs == room")])
    assert found["lost"] == pytest.approx(terms[-1] / sum(terms), **near)


def test_machines_and_repairers() -> None:
    n, a, b, crew = 6, 0.3, 1.1, 2
    p = birth_death([a * (n - k) for k in range(n)], [b * min(k, crew) for k in range(1, n + 1)])
    found = solve(machines(n, a, b, crew), [Rate("down", "down"), Impulse("failures", {"fail": 1})])
    assert found["down"] == pytest.approx(p @ np.arange(n + 1), **near)
    assert found["failures"] == pytest.approx(a * (p @ (n - np.arange(n + 1))), **near)


@pytest.mark.parametrize("time", [0.0, 0.01, 1.0, 30.0, 5000.0])
def test_availability_of_one_machine(time: float) -> None:
    a, b = 0.2, 1.5
    rewards = [Rate("up", "up", At(time))]
    if time > 0:
        rewards += [Rate("in all", "up", Total(0, time)), Rate("on average", "up", Mean(0, time))]
    found = solve(machines(1, a, b, 1), rewards)
    total = a + b
    assert found["up"] == pytest.approx(b / total + a / total * math.exp(-total * time), **near)
    if time > 0:
        spent = b / total * time + a / total**2 * -math.expm1(-total * time)
        assert found["in all"] == pytest.approx(spent, **near)
        assert found["on average"] == pytest.approx(spent / time, **near)


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(
    rates=st.lists(st.floats(0.05, 5.0), min_size=6, max_size=6),
    times=st.tuples(st.floats(0.0, 5.0), st.floats(0.1, 5.0)),
)
def test_transient_is_what_a_matrix_exponential_says(rates: list[float], times: tuple[float, float]) -> None:
    activities = [
        Activity(f"go{i}{k}", time=Exponential(rates.pop()), takes={f"s{i}": 1}, puts={f"s{k}": 1})
        for i in range(3)
        for k in range(3)
        if i != k
    ]
    generator = np.zeros((3, 3))
    for activity in activities:
        i, k = int(activity.name[2]), int(activity.name[3])
        generator[i, k] += float(activity.time.rate)
        generator[i, i] -= float(activity.time.rate)
    net = Net("walk", [Place("s0", 1), Place("s1"), Place("s2")], activities)
    start, end = times[0], times[0] + times[1]
    found = solve(net, [Rate("now", "s1 + 2 * s2", At(end)), Rate("then", "s1 + 2 * s2", Total(start, end))])
    # The integral of the exponential is a block of the exponential of a larger matrix.
    large = np.block([[generator, np.eye(3)], [np.zeros((3, 6))]])
    worth = np.array([0.0, 1.0, 2.0])
    spent = linalg.expm(large * end)[:3, 3:] - linalg.expm(large * start)[:3, 3:]
    assert found["now"] == pytest.approx(linalg.expm(generator * end)[0] @ worth, **near)
    assert found["then"] == pytest.approx(spent[0] @ worth, **near)


def test_where_it_ends_depends_on_the_way() -> None:
    ways = [
        Activity("left", time=Exponential(1), takes={"here": 1}, puts={"a": 1}),
        Activity("right", time=Exponential(3), takes={"here": 1}, puts={"b": 1}),
        Activity("swing", time=Exponential(2), takes={"b": 1}, puts={"c": 1}),
        Activity("back", time=Exponential(1), takes={"c": 1}, puts={"b": 1}),
    ]
    net = Net("ways", [Place("here", 1), Place("a"), Place("b"), Place("c")], ways)
    found = solve(net, [Rate("a", "a"), Rate("b", "b"), Rate("c", "c"), Rate("here", "here")])
    assert [found[name] for name in ("a", "b", "c", "here")] == pytest.approx([0.25, 0.25, 0.5, 0.0], **near)


def test_instantaneous_activities_are_eliminated_with_their_impulses() -> None:
    """A token that tosses a coin until it shows heads: the mean number of tosses is two."""
    net = Net(
        "coin",
        [Place("idle", 1), Place("toss"), Place("heads")],
        [
            Activity("throw", time=Exponential(2), takes={"idle": 1}, puts={"toss": 1}),
            Activity(
                "land",
                time=None,
                takes={"toss": 1},
                cases=[Case(0.5, puts={"toss": 1}), Case(0.5, puts={"heads": 1})],
            ),
            Activity("rest", time=Exponential(2), takes={"heads": 1}, puts={"idle": 1}),
        ],
    )
    found = solve(net, [Impulse("tosses", {"land": 1}), Rate("heads", "heads"), Rate("toss", "toss")])
    assert found.states == 2
    assert found["tosses"] == pytest.approx(2 * 0.5 * 2, **near)
    assert found["heads"] == pytest.approx(0.5, **near)
    assert found["toss"] == 0.0


def test_priorities_and_weights() -> None:
    def way(name: str, priority: int, weight: int) -> Activity:
        return Activity(name, time=None, takes={"new": 1}, puts={name: 1}, priority=priority, weight=weight)

    net = Net(
        "ways",
        [Place("new", 4), Place("a"), Place("b"), Place("c")],
        [way("a", 1, 1), way("b", 1, 3), way("c", 0, 100)],
    )
    found = solve(
        net, [Rate("a", "a", At(0)), Rate("c", "c", At(0)), Impulse("all", {"a": 1, "b": 1}, Total(0, 1))]
    )
    assert found["a"] == pytest.approx(1.0, **near)
    assert found["c"] == 0.0
    assert found["all"] == pytest.approx(4.0, **near)


def test_what_cannot_be_solved() -> None:
    places = [Place("n")]
    grow = Activity("grow", time=Exponential(1), puts={"n": 1})
    with pytest.raises(TooManyStatesError, match="net 'growing': has more than 50 markings"):
        solve(Net("growing", places, [grow]), [Rate("n", "n", Steady())], most=50)
    tick = Activity("tick", time=Deterministic(1), puts={"n": 1}, gates=[InputGate(when="n < 3")])
    with pytest.raises(NotMarkovError, match=r"activity 'tick': Deterministic\(1\) is not exponential"):
        solve(Net("ticking", places, [tick]), [Rate("n", "n")])
    there = Activity("there", time=None, takes={"a": 1}, puts={"b": 1})
    back = Activity("back", time=None, takes={"b": 1}, puts={"a": 1})
    with pytest.raises(UnstableError, match=r"there -> back -> there|back -> there -> back"):
        solve(Net("swing", [Place("a", 1), Place("b")], [there, back]), [Rate("a", "a")])
