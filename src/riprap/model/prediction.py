"""Predict how available an application is and how much of its output is tainted, by many replications of its model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from riprap.arrays import Floats
from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.intervals import half_width
from riprap.model.arrays import Question, ReplicationResult
from riprap.model.parts import parts_of
from riprap.model.profile import Profile
from riprap.model.replication import rate_without_faults, simulate
from riprap.model.techniques import Technique
from riprap.model.wiring import Wired, wire

_CHUNK = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong: crashes and silent corruptions of each operator a second, and seconds until one is back.

    ``crash`` instead makes one operator crash, once, at a time of your choice: a quarter into the horizon, if you say
    none. ``together`` are operators that fail together, as those of a process or a host do.
    """

    crash_rate: float = 0.0
    corruption_rate: float = 0.0
    recovery: float = 3.5
    crash: str | None = None
    at: float | None = None
    together: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.crash is not None and (self.crash_rate or self.corruption_rate):
            raise ModelError("a forced crash is the only fault there is: leave out the rates, or the crash")
        for name in ("crash_rate", "corruption_rate", "recovery"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ModelError(f"{name.replace('_', ' ')} is {value!r}: give a number of at least zero")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over replications, and the interval that holds the true one with 95% confidence."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats, *, most: float = math.inf) -> Estimate:
        """Estimate the mean of what is never negative, and at most ``most``, from replications.

        >>> Estimate.of(np.array([1.0, 1.0, 0.97]), most=1.0).high
        1.0
        """
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, -math.inf, math.inf)
        half = float(half_width(values))
        return cls(mean, max(0.0, mean - half), min(most, mean + half))

    @classmethod
    def certain(cls, value: float) -> Estimate:
        """Return what is no estimate: a value that was solved for."""
        return cls(value, value, value)

    def scaled(self, by: float) -> Estimate:
        """Return the estimate of so many times the value."""
        return Estimate(self.mean * by, self.low * by, self.high * by)

    def to_json(self) -> dict[str, float | None]:
        bounds = {"low": self.low, "high": self.high}
        return {"mean": self.mean, **{k: v if math.isfinite(v) else None for k, v in bounds.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a protection takes: copies of operators beyond the first, and bytes of checkpoints a second."""

    copies: int
    checkpoint_bytes: float | None

    def to_json(self) -> dict[str, Any]:
        return {"copies": self.copies, "checkpoint_bytes_per_second": self.checkpoint_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """That a prediction was solved for and not simulated: of how many states, and what was assumed for it."""

    states: int
    assumed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"states": self.states, "assumed": list(self.assumed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is to be expected of an application over a time.

    ``alone`` is what availability would be if faults did not spread to other operators. ``share`` is tainted tuples of
    the output of a run without faults, ``fault_free`` of them. With ``exact`` there are no replications, and intervals
    are as wide as nothing.
    """

    availability: Estimate
    alone: Estimate
    tainted_tuples: Estimate
    share: Estimate
    output: Estimate
    fault_free: float
    lost: Estimate
    crashes: Estimate
    replications: int
    leaps: int
    seconds: float
    cost: Cost
    sinks: Mapping[str, Estimate] = field(default_factory=dict)
    series: tuple[tuple[float, float], ...] = ()
    exact: Exact | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as ``--json`` prints it."""
        return {
            "availability": self.availability.to_json(),
            "availability_without_propagation": self.alone.to_json(),
            "tainted_tuples": self.tainted_tuples.to_json(),
            "tainted_share": self.share.to_json(),
            "output_tuples": self.output.to_json(),
            "fault_free_output_tuples": self.fault_free,
            "lost_tuples": self.lost.to_json(),
            "crashes": self.crashes.to_json(),
            "tainted_tuples_by_sink": {name: e.to_json() for name, e in self.sinks.items()},
            "cost": self.cost.to_json(),
            "exact": self.exact is not None,
            **({} if self.exact is None else self.exact.to_json()),
            "replications": self.replications,
            "seconds": self.seconds,
        }


Replications = tuple[Wired, Question, int, int, int]
Spread = Callable[[Sequence[Replications]], Iterable[list[ReplicationResult]]]


def predict(
    graph: Graph,
    profile: Profile,
    technique: Technique,
    faults: Faults,
    *,
    horizon: float,
    replications: int = 1000,
    seed: int = 1,
    ticks: int = 0,
    spread: Spread | None = None,
    show: Callable[[float], None] | None = None,
) -> Prediction:
    """Simulate the model of an application and say what is to be expected.

    Replication r draws from a stream of its own, by ``seed`` and r: so two techniques meet the same luck as far as that
    goes. ``spread`` has chunks of replications run elsewhere, such as by Spark.
    """
    if seed < 0:
        raise ModelError(f"seed is {seed}: give a whole number of at least 0")
    if replications < 1:
        raise ModelError(f"replications is {replications}: give at least 1")
    check_horizon(horizon)
    began = time.perf_counter()
    wired = model_of(graph, profile, technique, faults)
    asked = ask(wired, profile, faults, horizon, ticks)
    chunks = [
        (wired, asked, seed, first, min(_CHUNK, replications - first))
        for first in range(0, replications, _CHUNK)
    ]
    replicated: list[ReplicationResult] = []
    for chunk in (spread or in_threads)(chunks):
        replicated += chunk
        if show is not None:
            show(len(replicated) / replications)
    seconds = time.perf_counter() - began
    return _sum_up(wired, replicated, horizon, seconds)


def check_horizon(horizon: float) -> None:
    """Raise the error if there is no such time to predict for."""
    if not (math.isfinite(horizon) and horizon > 0):
        raise ModelError(f"horizon is {horizon!r}: give the seconds to simulate, above zero")


def model_of(graph: Graph, profile: Profile, technique: Technique, faults: Faults) -> Wired:
    """Put an application, its profile and its protection together, and check that no operator is asked too much."""
    parts = parts_of(graph, profile)
    wired = wire(parts, technique.protect(parts), faults.together)
    flows, w = wired.flows(), wired.wiring
    for number, (node, busy) in enumerate(zip(wired.nodes, busy_shares(wired), strict=True)):
        if busy >= 1:
            raise ModelError(
                f"operator '{node.part.name}' would be busy {busy:.0%} of the time: it gets "
                f"{sum(flows[w.node_ports[number] : w.node_ports[number + 1]]):,.0f} tuples a second. "
                "Lower the rate, or correct its processing time in the profile"
            )
    return wired


def busy_shares(wired: Wired) -> Floats:
    """Return for each node the share of its time that it computes, without faults."""
    flows, w = wired.flows(), wired.wiring
    return np.array(
        [
            sum(
                flows[w.node_ports[number] + place] * entry.port.time
                for place, entry in enumerate(n.part.entries)
            )
            for number, n in enumerate(wired.nodes)
        ],
        np.float64,
    )


def recoveries(wired: Wired, faults: Faults) -> Floats:
    """Return how long each unit is down.

    What comes back as it was, with its input kept, computes again what came in since it was saved: half the time
    between two saves on average, and so much of that as it is busy. Those that fail together do so one after the other.
    """
    again = busy_shares(wired)
    for number, node in enumerate(wired.nodes):
        repeats = node.protection.restore == "whole" and node.protection.kept
        again[number] *= node.protection.every / 2 if repeats else 0.0
    return np.array(
        [faults.recovery + sum(again[node] for node, _ in members) for members in wired.units], np.float64
    )


def ask(wired: Wired, profile: Profile, faults: Faults, horizon: float, ticks: int = 0) -> Question:
    """Say to the simulation what goes wrong."""
    units = len(wired.units)
    crash_at = np.full(units, np.inf)
    if faults.crash is not None:
        name = profile.called.get(faults.crash, faults.crash)
        if not wired.nodes_of(name):
            names = ", ".join(dict.fromkeys(n.part.name for n in wired.nodes))
            raise ModelError(f"there is no operator '{faults.crash}' to crash; there are: {names}")
        at = horizon / 4 if faults.at is None else faults.at
        if not 0 <= at < horizon:
            raise ModelError(f"a crash at {at:g} s is not within the {horizon:g} s that are simulated")
        crash_at[wired.units_of(name)] = at
    elif faults.at is not None:
        raise ModelError("a time of a crash needs the operator that is to crash")
    # Numbers of another type would have the simulation compiled anew.
    return Question(
        float(horizon),
        np.full(units, faults.crash_rate, np.float64),
        np.full(len(wired.nodes), faults.corruption_rate, np.float64),
        recoveries(wired, faults),
        crash_at,
        ticks,
    )


def run_chunk(chunk: Replications) -> list[ReplicationResult]:
    """Run some replications, one after the other."""
    wired, asked, seed, first, count = chunk
    return [
        simulate(wired.wiring, asked, np.random.default_rng((seed, number)))
        for number in range(first, first + count)
    ]


def in_threads(chunks: Sequence[Replications]) -> Iterator[list[ReplicationResult]]:
    """Run chunks on all cores of this machine; the simulation lets go of the interpreter's lock."""
    with ThreadPoolExecutor() as pool:
        yield from pool.map(run_chunk, chunks)


def _sum_up(
    wired: Wired, replicated: Sequence[ReplicationResult], horizon: float, seconds: float
) -> Prediction:
    def over(value: Callable[[ReplicationResult], Any], most: float = math.inf) -> Estimate:
        return Estimate.of(np.array([float(value(each)) for each in replicated]), most=most)

    fault_free = float(rate_without_faults(wired.wiring).sum()) * horizon
    tainted_at = np.array([t.tainted for t in replicated], np.float64)
    tainted = Estimate.of(tainted_at.sum(1))
    return Prediction(
        availability=over(lambda t: t.up / horizon, 1.0),
        alone=over(lambda t: t.up_alone / horizon, 1.0),
        tainted_tuples=tainted,
        share=tainted.scaled(1 / fault_free) if fault_free else tainted,
        output=over(lambda t: t.clean.sum() + t.tainted.sum()),
        fault_free=fault_free,
        lost=over(lambda t: t.lost),
        crashes=over(lambda t: t.crashes),
        replications=len(replicated),
        leaps=sum(t.leaps for t in replicated),
        seconds=seconds,
        cost=cost_of(wired),
        sinks={name: Estimate.of(tainted_at[:, n]) for n, name in enumerate(wired.sinks)},
        series=tuple(_series(replicated)),
    )


def _series(replicated: Sequence[ReplicationResult]) -> Iterator[tuple[float, float]]:
    """Yield the clean and tainted tuples between ticks, on average."""
    if len(replicated[0].series):
        mean = np.mean([t.series for t in replicated], axis=0)
        for clean, tainted in np.diff(mean, axis=0, prepend=np.zeros((1, 2))):
            yield float(clean), float(tainted)


def cost_of(wired: Wired) -> Cost:
    """Say what the protection of a model takes. A checkpoint holds what came in since the last, or all if less."""
    flows, w = wired.flows(), wired.wiring
    copies = len(wired.nodes) - w.operators + int((w.node_copies - 1).sum())
    written: float | None = 0.0
    for number, node in enumerate(wired.nodes):
        every = node.protection.every
        if every <= 0 or not node.part.stateful:
            continue
        if node.part.profile.tuple_bytes == 0:
            written = None
        for place, entry in enumerate(node.part.entries):
            fresh = min(entry.port.state, float(flows[w.node_ports[number] + place]) * every)
            if written is not None:
                written += fresh * node.part.profile.tuple_bytes / every
    return Cost(copies=copies, checkpoint_bytes=written)
