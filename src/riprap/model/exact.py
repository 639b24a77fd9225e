"""Solve the model of a small application exactly, as a Markov chain, where a simulation only estimates.

A chain has no memory. So the net of tokens is made with exponential times of the same means, and with processing that
takes none; :attr:`Exact.assumed` says so wherever the numbers are shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.model.arrays import SCRATCH, Question
from riprap.model.prediction import (
    Estimate,
    Exact,
    Faults,
    Prediction,
    ask,
    check_horizon,
    cost_of,
    model_of,
)
from riprap.model.profile import Profile
from riprap.model.replication import rate_without_faults
from riprap.model.techniques import Technique
from riprap.model.tokens import net_of, rewards_of
from riprap.model.tokens.names import NetNames
from riprap.model.wiring import Wired
from riprap.san import TooManyStatesError, solve

MOST_STATES = 20_000
_INSTEAD = "Leave out --exact to simulate it"


def predict_exactly(
    graph: Graph,
    profile: Profile,
    technique: Technique,
    faults: Faults,
    *,
    horizon: float,
    most: int = MOST_STATES,
) -> Prediction:
    """Solve the model of an application, if it has at most so many states, and say what is to be expected."""
    check_horizon(horizon)
    began = time.perf_counter()
    wired = model_of(graph, profile, technique, faults)
    asked = ask(wired, profile, faults, horizon)
    _refuse_what_is_not_markov(wired, faults)
    least = _least_states(wired, asked)
    if least > most:
        raise _too_large(graph, wired, f"at least {least:,}", most)
    net, rewards = net_of("model", wired, asked, memoryless=True), rewards_of(wired, asked, memoryless=True)
    try:
        solution = solve(net, rewards, most=most)
    except TooManyStatesError:
        raise _too_large(graph, wired, f"more than {most:,}", most) from None
    fault_free = float(rate_without_faults(wired.wiring).sum()) * horizon
    tainted = Estimate.certain(solution["tainted"])
    return Prediction(
        availability=Estimate.certain(solution["availability"]),
        alone=Estimate.certain(solution["alone"]),
        tainted_tuples=tainted,
        share=tainted.scaled(1 / fault_free) if fault_free else tainted,
        output=Estimate.certain(solution["clean"] + solution["tainted"]),
        fault_free=fault_free,
        lost=Estimate.certain(solution["lost"]),
        crashes=Estimate.certain(solution["crashes"]),
        replications=0,
        leaps=0,
        seconds=time.perf_counter() - began,
        cost=cost_of(wired),
        sinks={name: Estimate.certain(solution[f"tainted at {name}"]) for name in wired.sinks},
        exact=Exact(states=solution.states, assumed=tuple(_assumed(wired))),
    )


def _assumed(wired: Wired) -> Iterator[str]:
    yield (
        "recoveries, failovers and the times between tuples are exponential, with the means that a simulation takes "
        "as constant"
    )
    if any(low != high for low, high in wired.wiring.node_age):
        yield "a checkpoint that is restored has its mean age"


def _refuse_what_is_not_markov(wired: Wired, faults: Faults) -> None:
    if faults.crash is not None:
        raise ModelError(
            f"a crash of '{faults.crash}' at a time that is set cannot be solved exactly, only one at a random time. "
            f"{_INSTEAD}, or give --fault-rate instead of --crash"
        )
    if faults.corruption_rate > 0:
        raise ModelError(
            "silent corruption cannot be solved exactly: there is no bound to the tuples that it is about to change. "
            f"{_INSTEAD}, or leave out --sdc-rate"
        )
    kept = [node.part.name for node in wired.nodes if node.protection.kept]
    if kept:
        raise ModelError(
            f"{', '.join(dict.fromkeys(kept))}: what comes in waits while it is down, without a bound, and cannot be "
            f"solved exactly. {_INSTEAD}, or name another technique"
        )


def _counts(wired: Wired) -> Iterator[tuple[int, int]]:
    """Yield the node of each port that keeps state, and how far it counts between a crash and being well again."""
    names, w = NetNames(wired), wired.wiring
    for port, node in enumerate(w.port_node):
        if w.size[port] > 0 and names.nominal[port] > 0:
            yield int(node), int(w.size[port]) if w.node_restore[node] == SCRATCH else names.most_lost(port)


def _least_states(wired: Wired, asked: Question) -> int:
    """Return how many states there are for sure: whatever is up or down, one port may have come to any count."""
    crashing = [members for members, rate in zip(wired.units, asked.crash_rate, strict=True) if rate > 0]
    if not crashing:
        return 1
    least = 1 << len(crashing)
    for node, count in _counts(wired):
        others = [members for members in crashing if all(node != member for member, _ in members)]
        if len(others) < len(crashing):
            least = max(least, (count + 1) << len(others))
    return least


def _too_large(graph: Graph, wired: Wired, states: str, most: int) -> ModelError:
    reasons = [f"{len(wired.units)} operators, copies or hosts are up or down"]
    farthest: dict[str, int] = {}
    for node, count in _counts(wired):
        name = wired.nodes[node].part.name
        farthest[name] = max(count, farthest.get(name, 0))
    reasons += [f"'{name}' counts up to {count:,} tuples" for name, count in farthest.items()]
    return ModelError(
        f"the model of '{graph.name}' has {states} states, and {most:,} can be solved exactly: {', '.join(reasons)}. "
        f"{_INSTEAD}, or ask it of fewer operators, of some that fail --together, or of less state in the profile"
    )
