"""Solve a net of exponential times exactly, as a Markov chain.

Transient probabilities come from uniformization, with Poisson weights in the manner of Fox and Glynn: started at the
mode and normalized, so that nothing under- or overflows. The steady state is a sparse linear system for each class of
states that is never left; if there are several, each counts by the probability to end in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from riprap.arrays import Floats
from riprap.san.net import Net
from riprap.san.rewards import At, Mean, Rate, Reward, Steady, check_rewards, span
from riprap.san.states import Chain, explore

_LOST = 1e-17  # of the probability, on either side of the Poisson weights
_DRIFT = 1e-14  # how far the rest of a series may still move
_GUESSES = 500  # steps towards the steady state, to find a state that is likely in it
_LIKELY = 1e3  # times as likely as that may others be


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The exact value of every reward by name, and how many markings there are."""

    values: Mapping[str, float]
    states: int
    seconds: float

    def __getitem__(self, reward: str) -> float:
        return self.values[reward]


def solve(
    net: Net,
    rewards: Iterable[Reward],
    *,
    most: int = 200_000,
    clock: Callable[[], float] = time.perf_counter,
) -> Solution:
    """Solve a net exactly; every timed activity must be exponential, and there may be at most so many markings.

    >>> from riprap.san import Activity, At, Exponential, Place
    >>> fail = Activity("fail", time=Exponential(0.1), takes={"up": 1})
    >>> found = solve(Net("part", [Place("up", 1)], [fail]), [Rate("reliability", "up", At(10))])
    >>> round(found["reliability"], 12) == round(math.exp(-1), 12)
    True
    """
    began = clock()
    rewards = tuple(rewards)
    check_rewards(net, rewards)
    chain = explore(net, rewards, most)
    steady = lru_cache(lambda: steady_state(chain))
    moment = lru_cache(lambda at: transient(chain, at))
    values: dict[str, float] = {}
    numbers = {True: 0, False: 0}
    for reward in rewards:
        is_rate = isinstance(reward, Rate)
        worth = (chain.values if is_rate else chain.earned)[numbers[is_rate]]
        bonus = 0.0 if is_rate else float(chain.bonus[numbers[is_rate]])
        numbers[is_rate] += 1
        start, end = span(reward.when, math.inf)
        match reward.when:
            case Steady():
                values[reward.name] = float(steady() @ worth)
            case At():
                values[reward.name] = float(moment(end)[0] @ worth)
            case _:
                total = float((moment(end)[1] - moment(start)[1]) @ worth) + (bonus if start == 0 else 0.0)
                values[reward.name] = total / (end - start) if isinstance(reward.when, Mean) else total
    return Solution(values=values, states=len(chain.markings), seconds=clock() - began)


def transient(chain: Chain, at: float) -> tuple[Floats, Floats]:
    """Return the probabilities of states at a time, and the expected time spent in each until then."""
    outflow = np.asarray(chain.rates.sum(axis=1)).ravel()
    fastest = float(outflow.max(initial=0.0))
    if fastest == 0.0 or at == 0.0:
        return chain.start, chain.start * at
    step: Any = (chain.rates / fastest).T.tocsr()
    stay = 1.0 - outflow / fastest
    first, weights = poisson(fastest * at)
    beyond = 1.0 - np.cumsum(weights)  # the probability of more steps
    vector = chain.start
    now, spent = np.zeros_like(vector), np.zeros_like(vector)
    last = first + len(weights) - 1
    for k in range(last + 1):
        weight = weights[k - first] if k >= first else 0.0
        more = max(beyond[k - first], 0.0) if k >= first else 1.0
        now += weight * vector
        spent += more * vector
        after = step @ vector + stay * vector
        # The distance of successive vectors never grows, so what is left of the series moves no further than this.
        if float(np.abs(after - vector).sum()) * (last - k) < _DRIFT:
            rest = float(weights[max(k + 1 - first, 0) :].sum())
            steps = float(np.maximum(beyond[max(k + 1 - first, 0) :], 0.0).sum()) + max(first - k - 1, 0)
            return now + rest * after, (spent + steps * after) / fastest
        vector = after
    return now, spent / fastest


def poisson(mean: float) -> tuple[int, Floats]:
    """Return the first number of events that matters, and the probabilities from it on until none matters.

    >>> first, weights = poisson(2.0)
    >>> first, round(float(weights[2]), 12) == round(2 * math.exp(-2), 12)
    (0, True)
    """
    mode = math.floor(mean)
    right, left = [1.0], []
    while right[-1] > _LOST:
        right.append(right[-1] * mean / (mode + len(right)))
    weight, k = 1.0, mode
    while k > 0 and weight > _LOST:
        weight *= k / mean
        left.append(weight)
        k -= 1
    weights = np.array([*reversed(left), *right])
    # From the smallest on: what they sum to is then right to the last digits.
    return mode - len(left), weights / math.fsum(weights)


def steady_state(chain: Chain) -> Floats:
    """Return the probabilities of states in the long run, from where the chain starts."""
    count = len(chain.markings)
    classes, member = csgraph.connected_components(chain.rates, directed=True, connection="strong")
    source, target = chain.rates.nonzero()
    left = set(member[source[member[source] != member[target]]].tolist())
    shares = np.zeros(count)
    closed = [c for c in range(classes) if c not in left]
    weights = _ending(chain, member, closed)
    for c, weight in zip(closed, weights, strict=True):
        if weight > 0:
            inside = np.flatnonzero(member == c)
            shares[inside] = weight * _stationary(chain.rates[inside][:, inside])
    return shares


def _ending(chain: Chain, member: Any, closed: list[int]) -> list[float]:
    """Return the probability to end in each closed class."""
    passing = np.flatnonzero(~np.isin(member, closed))
    reached = chain.start.copy()
    if len(passing) and len(closed) > 1:
        outflow = np.asarray(chain.rates.sum(axis=1)).ravel()
        among = sparse.diags_array(outflow[passing]) - chain.rates[passing][:, passing]
        spent = splu(among.T.tocsc()).solve(chain.start[passing])
        reached = reached + chain.rates[passing].T @ spent
        reached[passing] = 0.0
    elif len(closed) == 1:
        return [1.0]
    return [float(reached[member == c].sum()) for c in closed]


def _stationary(rates: Any) -> Floats:
    """Return the stationary probabilities of states that all reach each other."""
    count = rates.shape[0]
    if count == 1:
        return np.ones(1)
    outflow = np.asarray(rates.sum(axis=1)).ravel()
    balance = (rates - sparse.diags_array(outflow)).T.tocsr()
    step: Any = rates.T.tocsr() / (1.1 * outflow.max())
    stay = 1.0 - outflow / (1.1 * outflow.max())
    shares = np.full(count, 1.0 / count)
    for _ in range(_GUESSES):
        shares = step @ shares + stay * shares
    # One state is given the weight 1, and the others balance. It has to be a likely one: the weights of others may be
    # larger by any factor, and with it the error.
    for _ in range(3):
        given = int(np.argmax(shares))
        others = np.flatnonzero(np.arange(count) != given)
        shares = np.ones(count)
        shares[others] = splu(balance[others][:, others].tocsc()).solve(
            -balance[others][:, [given]].toarray().ravel()
        )
        if shares.max() < _LIKELY:
            break
    scaled: Floats = np.maximum(shares, 0.0) / shares.sum()
    return scaled
