"""The semantics of a net, word for word and slowly: what a trace of the compiled simulator must be equal to.

Nothing of the simulator is used: code runs in Python's own interpreter, random numbers are computed with integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

from riprap.san import (
    Activity,
    Deterministic,
    Empirical,
    Erlang,
    Exponential,
    Gamma,
    Lognormal,
    Net,
    Normal,
    Uniform,
    Weibull,
)

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FUNCTIONS = {name: getattr(math, name) for name in ("floor", "ceil", "exp", "log", "sqrt")}


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream(seed: int, replication: int, name: str) -> Iterator[float]:
    """Yield the uniform numbers of an activity: xoshiro256++, seeded by SplitMix64."""
    key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    z = mix((mix((seed + GOLDEN) & MASK) + replication * GOLDEN + GOLDEN) & MASK) ^ key
    z = mix(z)
    words = []
    for _ in range(4):
        z = (z + GOLDEN) & MASK
        words.append(mix(z))

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (64 - by))) & MASK

    a, b, c, d = words
    while True:
        yield (((rotated((a + d) & MASK, 23) + a) & MASK) >> 11) * 2**-53
        shifted = (b << 17) & MASK
        c, d = c ^ a, d ^ b
        a, b, c, d = a ^ d, b ^ c, c ^ shifted, rotated(d, 45)


def normal(draws: Iterator[float]) -> float:
    radius = math.sqrt(-2 * math.log(1 - next(draws)))
    return radius * math.cos(2 * math.pi * next(draws))


def draw(time: Any, values: list[float], draws: Iterator[float]) -> float:
    match time, values:
        case Exponential(), [rate]:
            u = next(draws)
            return -math.log(1 - u) / rate if rate else math.inf
        case Deterministic(), [value]:
            return value
        case Uniform(), [low, high]:
            return low + (high - low) * next(draws)
        case Normal(), [mean, deviation]:
            return next(x for x in iter(lambda: mean + deviation * normal(draws), None) if x >= 0)
        case Lognormal(), [mean, deviation]:
            return math.exp(mean + deviation * normal(draws))
        case Weibull(), [shape, scale]:
            return scale * (-math.log(1 - next(draws))) ** (1 / shape)
        case Erlang(), [stages, rate]:
            return sum(-math.log(1 - next(draws)) for _ in range(int(stages))) / rate
        case Gamma(), [shape, scale]:
            power = (1 - next(draws)) ** (1 / shape) if shape < 1 else 1.0
            d = (shape + 1 if shape < 1 else shape) - 1 / 3
            while True:
                x = normal(draws)
                v = (1 + x / math.sqrt(9 * d)) ** 3
                if v > 0 and math.log(1 - next(draws)) < x * x / 2 + d - d * v + d * math.log(v):
                    return d * v * power * scale
        case Empirical(samples=samples), []:
            return samples[int(next(draws) * len(samples))]
    raise AssertionError(time)


class Oracle:
    """A net that is being simulated."""

    def __init__(self, net: Net, seed: int, replication: int = 0) -> None:
        self.net = net
        self.marking = {place.name: place.initial for place in net.places}
        self.streams = {a.name: stream(seed, replication, a.name) for a in net.activities}
        self.choices = stream(seed, replication, "")
        self.now = 0.0
        self.due: dict[str, float] = {}
        self.rates: dict[str, float] = {}

    def names(self) -> dict[str, Any]:
        """Return places and parameters as variables; what has a dot is an attribute."""
        found: dict[str, Any] = dict(FUNCTIONS)
        for name, value in {**self.marking, **self.net.parameters}.items():
            first, *rest = name.split(".")
            if not rest:
                found[first] = value
                continue
            inside = found.setdefault(first, SimpleNamespace())
            for part in rest[:-1]:
                if not hasattr(inside, part):
                    setattr(inside, part, SimpleNamespace())
                inside = getattr(inside, part)
            setattr(inside, rest[-1], value)
        return found

    def value(self, code: object) -> Any:
        return eval(str(code), self.names())

    def execute(self, code: str) -> None:
        names = self.names()
        exec(code, names)
        self.marking = {place: int(eval(place, names)) for place in self.marking}
        assert all(tokens >= 0 for tokens in self.marking.values())

    def enabled(self, activity: Activity) -> bool:
        tokens = all(self.marking[place] >= n for place, n in activity.takes.items())
        return tokens and all(self.value(gate.when) for gate in activity.inputs)

    def complete(self, activity: Activity) -> None:
        for place, n in activity.takes.items():
            self.marking[place] -= n
        for gate in activity.inputs:
            self.execute(gate.then)
        case = None
        if len(activity.cases) > 1:
            chances = [float(self.value(case.probability)) for case in activity.cases]
            case = self.choose(activity.cases, chances, next(self.streams[activity.name]))
        elif activity.cases:
            case = activity.cases[0]
        for puts in (activity.puts, case.puts if case else {}):
            for place, n in puts.items():
                self.marking[place] += n
        for gate in activity.outputs:
            self.execute(gate.then)
        if case:
            self.execute(case.then)

    @staticmethod
    def choose(what: Any, weights: list[float], at: float) -> Any:
        so_far, chosen = 0.0, None
        for each, weight in zip(what, weights, strict=True):
            if weight > 0 and (chosen is None or at >= so_far):
                chosen = each
            so_far += weight
        return chosen

    def next_instantaneous(self) -> Activity | None:
        ready = [a for a in self.net.activities if not a.timed and self.enabled(a)]
        top = max((a.priority for a in ready), default=0)
        ready = [a for a in ready if a.priority == top]
        if len(ready) < 2:
            return ready[0] if ready else None
        weights = [float(self.value(a.weight)) for a in ready]
        return self.choose(ready, weights, next(self.choices) * sum(weights))

    def look_at_all(self, completed: Activity | None) -> None:
        for activity in self.net.activities:
            if activity.time is None:
                continue
            if not self.enabled(activity):
                self.due.pop(activity.name, None)
                continue
            values = [float(self.value(code)) for code in activity.time.codes.values()]
            again = activity.name not in self.due or activity is completed
            again = again or (activity.reactivate is not None and bool(self.value(activity.reactivate)))
            if isinstance(activity.time, Exponential):
                again = again or values[0] != self.rates[activity.name]
                self.rates[activity.name] = values[0]
            if again:
                self.due[activity.name] = self.now + draw(activity.time, values, self.streams[activity.name])

    def trace(self, until: float, most: int) -> list[tuple[float, str, dict[str, int]]]:
        """Return the first completions: when, which activity, and the marking after it."""
        found: list[tuple[float, str, dict[str, int]]] = []
        completed: Activity | None = None
        while len(found) < most:
            activity = self.next_instantaneous()
            if activity is None:
                self.look_at_all(completed)
                timed = [a for a in self.net.activities if a.name in self.due]
                activity = completed = min(timed, key=lambda a: self.due[a.name], default=None)
                if activity is None or self.due[activity.name] > until:
                    break
                self.now = self.due[activity.name]
            self.complete(activity)
            found.append((self.now, activity.name, dict(self.marking)))
        return found
