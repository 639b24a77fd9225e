"""Simulate a net: replications until there are enough, the same numbers wherever and in whatever portions they run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from riprap.arrays import Floats
from riprap.san.compiled_net import load
from riprap.san.errors import NetError
from riprap.san.estimates import Precision, RewardEstimate, Simulation
from riprap.san.failures import failure, not_a_number
from riprap.san.net import Net
from riprap.san.rewards import Mean, Reward, Steady, check_rewards, span
from riprap.san.source import source_of
from riprap.san.wiring import Wiring, wire
from riprap.san.workspace import make_tables, make_work

_PORTIONS = 8  # what each thread gets, so that none is done long before the others


@dataclass(frozen=True, slots=True)
class Compiled:
    """A net with its rewards, ready to run. It can be pickled: who receives it compiles it, or finds it on disk."""

    net: Net
    rewards: tuple[Reward, ...]
    until: float
    functions: str = field(repr=False)

    @property
    def wiring(self) -> Wiring:
        return wire(self.net, self.rewards)


def compile_net(net: Net, rewards: Iterable[Reward], until: float | None = None) -> Compiled:
    """Check a net and its rewards and write the functions of both; parameters and the horizon are not in them."""
    rewards = tuple(rewards)
    check_rewards(net, rewards)
    ends = [span(reward.when, math.nan)[1] for reward in rewards]
    if until is None:
        if not rewards or any(math.isnan(end) for end in ends):
            raise NetError(
                f"net '{net.name}': 'until' when is it to be simulated? Its rewards do not all say"
            )
        until = max(ends)
    for reward in rewards:
        start, end = span(reward.when, until)
        if end > until or (isinstance(reward.when, Steady) and start >= until):
            raise NetError(
                f"net '{net.name}', reward '{reward.name}': is not over when the simulation is, at {until:g}"
            )
    if not 0 <= until < math.inf:
        raise NetError(f"net '{net.name}': cannot be simulated until {until:g}")
    return Compiled(net, rewards, float(until), source_of(wire(net, rewards)))


def run_chunk(compiled: Compiled, seed: int, first: int, count: int) -> tuple[Floats, int]:
    """Run replications ``first`` to ``first + count``; return a row of rewards for each, and the completions of all.

    A replication depends on the seed and its own number, so chunks may run anywhere: in threads or Spark tasks.
    """
    call = _Call(compiled, count)
    completions = call.run(seed, first)
    return call.values(), completions


def trace(net: Net, until: float, *, seed: int, most: int = 1000) -> list[tuple[float, str, dict[str, int]]]:
    """Return the first completions of one replication: when, which activity, and the marking after it.

    >>> from riprap.san import Activity, Deterministic, Place
    >>> tick = Activity("tick", time=Deterministic(2), puts={"ticks": 1})
    >>> trace(Net("clock", [Place("ticks")], [tick]), 5, seed=1)
    [(2.0, 'tick', {'ticks': 1}), (4.0, 'tick', {'ticks': 2})]
    """
    call = _Call(compile_net(net, (), until), 1, most)
    completions = min(call.run(seed, 0), most)
    names = [activity.name for activity in call.wiring.activities]
    places = [place.name for place in net.places]
    work = call.work
    return [
        (
            float(work.times[i]),
            names[work.numbers[i]],
            dict(zip(places, work.markings[i].tolist(), strict=True)),
        )
        for i in range(completions)
    ]


class _Call:
    """One call of compiled code."""

    def __init__(self, compiled: Compiled, count: int, traced: int = 0) -> None:
        self.compiled = compiled
        self.wiring = compiled.wiring
        self.rewards: tuple[Reward, ...] = (*self.wiring.rates, *self.wiring.impulses)
        spans = [span(reward.when, compiled.until) for reward in self.rewards]
        self.tables = make_tables(self.wiring, spans)
        self.work = make_work(self.wiring, count, traced)

    def run(self, seed: int, first: int) -> int:
        module, work = load(self.compiled.functions), self.work
        try:
            completions = module.run(np.uint64(seed % 2**64), first, self.compiled.until, work, self.tables)
        except (ArithmeticError, ValueError) as error:
            raise not_a_number(self.wiring, work.m.tolist(), error) from None
        if work.e[0]:
            raise failure(self.wiring, work.e.tolist(), work.m.tolist())
        return int(completions)

    def values(self) -> Floats:
        """Return the rewards in the order in which they were asked for, means divided by their time."""
        values = np.empty_like(self.work.out)
        for k, reward in enumerate(self.rewards):
            start, end = self.tables.spans[k]
            time = end - start if isinstance(reward.when, Mean | Steady) else 1.0
            values[:, self.compiled.rewards.index(reward)] = self.work.out[:, k] / time
        return values


OnProgress = Callable[[int, int], None]


def simulate(
    net: Net,
    rewards: Iterable[Reward],
    *,
    until: float | None = None,
    replications: int | None = None,
    precision: Precision | None = None,
    seed: int,
    jobs: int = 1,
    progress: OnProgress | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Simulation:
    """Simulate a net from time 0 until ``until``, so many times or until a precision is reached.

    >>> from riprap.san import Activity, Exponential, Impulse, Total
    >>> tick = Activity("tick", time=Exponential(3))
    >>> ticks = Impulse("ticks", {"tick": 1}, Total(0, 10))
    >>> found = simulate(Net("clock", [], [tick]), [ticks], replications=1000, seed=1)
    >>> found["ticks"].low < 30 < found["ticks"].high
    True

    ``jobs`` threads share the replications; ``progress`` is told how many are done, and how many there will be.
    """
    if (replications is None) == (precision is None):
        raise NetError(f"net '{net.name}': simulate takes either 'replications' or 'precision'")
    wanted = (
        replications if replications is not None else min(precision.least, precision.most) if precision else 0
    )
    if wanted < 1:
        raise NetError(f"net '{net.name}': cannot be simulated {wanted} times")
    compiled = compile_net(net, rewards, until)
    began = clock()
    values_so_far = np.empty((0, len(compiled.rewards)))
    completions = 0
    while len(values_so_far) < wanted:
        chunks = [values_so_far]
        for values, completed in _run_all(compiled, seed, len(values_so_far), wanted, jobs):
            chunks.append(values)
            completions += completed
            if progress is not None:
                progress(sum(map(len, chunks)), wanted)
        values_so_far = np.concatenate(chunks)
        if precision is not None:
            wanted = max(wanted, precision.wants(values_so_far))
    confidence = precision.confidence if precision is not None else 0.95
    return Simulation(
        estimates={
            reward.name: RewardEstimate.of(values_so_far[:, k], confidence)
            for k, reward in enumerate(compiled.rewards)
        },
        replications=len(values_so_far),
        completions=completions,
        seconds=clock() - began,
        seed=seed,
    )


def _run_all(compiled: Compiled, seed: int, first: int, end: int, jobs: int) -> Iterator[tuple[Floats, int]]:
    """Yield the outcomes of all chunks in their order."""
    size = math.ceil((end - first) / (_PORTIONS * jobs))
    starts = range(first, end, size)

    def chunk(start: int) -> tuple[Floats, int]:
        return run_chunk(compiled, seed, start, min(size, end - start))

    if jobs == 1:
        yield from map(chunk, starts)
        return
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(chunk, starts)
