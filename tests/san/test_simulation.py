"""The compiled simulator: right on average, the same wherever it runs, and honest about how sure it is."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.san.nets import queue, sample_nets

from riprap.cache import private_folder
from riprap.san import (
    Activity,
    At,
    Deterministic,
    Empirical,
    Erlang,
    Exponential,
    Gamma,
    Impulse,
    Lognormal,
    Mean,
    Net,
    NetError,
    Normal,
    Place,
    Precision,
    Rate,
    Reward,
    RewardEstimate,
    Steady,
    Total,
    Uniform,
    Weibull,
    compile_net,
    join,
    run_chunk,
    simulate,
    solve,
)

QUEUE = queue(0.8, 1.0, 6)
JOBS: list[Reward] = [Rate("jobs", "jobs", Mean(0, 50)), Impulse("served", {"serve": 1}, Total(0, 50))]


def near(found: RewardEstimate, exact: float) -> bool:
    """Say whether an estimate is within five deviations; what is rare may not have happened in any replication."""
    count = len(found.values)
    return abs(found.mean - exact) <= 5 * found.deviation / math.sqrt(count) + 20 * (1e-9 + 1 / count**1.5)


@pytest.mark.parametrize(
    "net", [queue(0.8, 1.0, 6), queue(2.0, 1.0, 9, 3), queue(4.0, 1.0, 6, 6)], ids=["1", "c", "loss"]
)
def test_queues_are_simulated_as_they_are_solved(net: Net) -> None:
    for when in (At(3.0), Total(1, 5), Mean(0, 4)):
        rewards = [Rate("jobs", "jobs", when)]
        if not isinstance(when, At):
            rewards.append(Impulse("served", {"serve": 1}, when))  # type: ignore[arg-type]
        found, exact = simulate(net, rewards, replications=20_000, seed=3), solve(net, rewards)
        for reward in rewards:
            assert near(found[reward.name], exact[reward.name]), (reward, str(found[reward.name]), exact)


def test_the_long_run() -> None:
    rewards: list[Reward] = [
        Rate("jobs", "jobs", Steady(after=100)),
        Impulse("served", {"serve": 1}, Steady(100)),
    ]
    found, exact = simulate(QUEUE, rewards, until=2000, replications=400, seed=4), solve(QUEUE, rewards)
    assert near(found["jobs"], exact["jobs"])
    assert near(found["served"], exact["served"])
    assert found.completions > 400 * 2000


def test_random_nets_are_simulated_as_they_are_solved() -> None:
    """Compiling takes seconds, so all are parts of one net, which tests joining them as well."""
    nets = sample_nets(6, markov=True)
    whole = join("whole", {f"n{i}": net for i, net in enumerate(nets)})
    asked: list[Reward] = []
    exact: dict[str, float] = {}
    for i, net in enumerate(nets):
        value, names = "p0 + 2 * p1 - p2", [activity.name for activity in net.activities]
        rewards: list[Reward] = [
            Rate(f"at {i}", value, At(2.5)),
            Rate(f"mean {i}", value, Mean(1, 5)),
            Impulse(f"all {i}", dict.fromkeys(names, "1 + p0"), Total(0.5, 5)),
        ]
        exact |= solve(net, rewards).values
        inside = f"n{i}.p0 + 2 * n{i}.p1 - n{i}.p2"
        asked += [
            Rate(f"at {i}", inside, At(2.5)),
            Rate(f"mean {i}", inside, Mean(1, 5)),
            Impulse(f"all {i}", {f"n{i}.{name}": f"1 + n{i}.p0" for name in names}, Total(0.5, 5)),
        ]
    found = simulate(whole, asked, replications=20_000, seed=6)
    assert {name: str(found[name]) for name in exact if not near(found[name], exact[name])} == {}


def test_times_have_the_moments_of_their_distributions() -> None:
    above_zero = stats.truncnorm(-0.5, math.inf, loc=1, scale=2)
    lognormal, weibull = stats.lognorm(0.5, scale=math.exp(0.2)), stats.weibull_min(1.5, scale=2)
    samples = [0.5, 1.0, 4.0]
    cases = {
        "exponential": (Exponential("2 * k"), 0.25, 0.25),
        "deterministic": (Deterministic("k + 1"), 3.0, 0.0),
        "uniform": (Uniform(1, "2 * k"), 2.5, math.sqrt(9 / 12)),
        "normal": (Normal(1, "k"), above_zero.mean(), above_zero.std()),
        "lognormal": (Lognormal(0.2, 0.5), lognormal.mean(), lognormal.std()),
        "weibull": (Weibull(1.5, "k"), weibull.mean(), weibull.std()),
        "erlang": (Erlang(3, "k"), 1.5, math.sqrt(3) / 2),
        "gamma": (Gamma(2.5, "k"), 5.0, 2 * math.sqrt(2.5)),
        "small": (Gamma(0.5, "k"), 1.0, 2 * math.sqrt(0.5)),
        "empirical": (Empirical(samples), np.mean(samples), np.std(samples)),
    }  # fmt: skip
    net = Net(
        "times",
        [Place(name, 1) for name in cases],
        [Activity(f"end_{name}", time=time, takes={name: 1}) for name, (time, *_) in cases.items()],
        {"k": 2},
    )
    found = simulate(net, [Rate(name, name, Total(0, 1000)) for name in cases], replications=40_000, seed=9)
    for name, (_, mean, deviation) in cases.items():
        spread = found[name].values - mean
        error = 5 * max(float(np.std(spread**2)), 1e-9) / math.sqrt(len(spread))
        assert near(found[name], mean), name
        assert abs(float(np.mean(spread**2)) - deviation**2) < error, name


def test_the_same_seed_gives_the_same_numbers_in_any_portions() -> None:
    one = simulate(QUEUE, JOBS, replications=500, seed=5)
    assert np.array_equal(one["jobs"].values, simulate(QUEUE, JOBS, replications=500, seed=5)["jobs"].values)
    threads = simulate(QUEUE, JOBS, replications=500, seed=5, jobs=3)
    assert np.array_equal(one["served"].values, threads["served"].values)
    assert threads.completions == one.completions
    compiled = pickle.loads(pickle.dumps(compile_net(QUEUE, JOBS)))
    parts = [run_chunk(compiled, 5, first, 100)[0] for first in range(0, 500, 100)]
    assert np.array_equal(np.concatenate(parts)[:, 0], one["jobs"].values)
    other = simulate(QUEUE, JOBS, replications=500, seed=6)
    assert not np.array_equal(one["jobs"].values, other["jobs"].values)


def test_common_random_numbers_make_differences_sharp() -> None:
    slow = simulate(QUEUE, JOBS, replications=400, seed=8)
    fast = simulate(QUEUE.with_parameters({"m": 1.05}), JOBS, replications=400, seed=8)
    unlike = simulate(QUEUE.with_parameters({"m": 1.05}), JOBS, replications=400, seed=1008)
    paired, independent = slow["jobs"].minus(fast["jobs"]), slow["jobs"].minus(unlike["jobs"])
    assert paired.deviation < 0.3 * independent.deviation
    assert paired.low > 0


def test_it_stops_when_it_is_precise() -> None:
    told: list[tuple[int, int]] = []
    found = simulate(
        QUEUE,
        JOBS,
        precision=Precision(relative=0.01),
        seed=2,
        progress=lambda done, of: told.append((done, of)),
    )
    assert (found["jobs"].high - found["jobs"].low) / 2 <= 0.01 * found["jobs"].mean
    assert 100 < found.replications < 20_000
    assert told[-1] == (found.replications, found.replications)
    assert simulate(QUEUE, JOBS, precision=Precision(relative=1e-9, most=150), seed=2).replications == 150


def test_intervals_cover_as_often_as_they_say() -> None:
    exact = solve(QUEUE, JOBS)["jobs"]
    values = simulate(QUEUE, JOBS, replications=20_000, seed=12)["jobs"].values
    parts = [RewardEstimate.of(part, 0.9) for part in np.split(values, 400)]
    covered = sum(part.low <= exact <= part.high for part in parts)
    assert stats.binomtest(covered, 400, 0.9).pvalue > 1e-6


def test_what_cannot_be_simulated() -> None:
    with pytest.raises(NetError, match="'until' when"):
        simulate(QUEUE, [Rate("jobs", "jobs")], replications=1, seed=1)
    with pytest.raises(NetError, match="reward 'jobs': is not over"):
        simulate(QUEUE, JOBS, until=10, replications=1, seed=1)
    with pytest.raises(NetError, match="either 'replications' or 'precision'"):
        simulate(QUEUE, JOBS, seed=1)
    with pytest.raises(NetError, match="cannot be simulated 0 times"):
        simulate(QUEUE, JOBS, replications=0, seed=1)


def test_a_second_process_finds_what_the_first_compiled() -> None:
    mine = simulate(QUEUE, JOBS, replications=10, seed=1)
    folder = private_folder("nets")
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = sorted(folder.rglob("*.nbc"))
    assert kept
    program = (
        "from tests.san.test_simulation import JOBS, QUEUE, simulate\n"
        "print(simulate(QUEUE, JOBS, replications=10, seed=1)['jobs'].mean)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root, env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) == mine["jobs"].mean
    assert sorted(folder.rglob("*.nbc")) == kept
