"""Write a net as Python functions: Numba compiles them for the simulator, the exact solver has them interpreted.

A function has a branch for every activity: ``enabled(3, m, p)`` says whether activity 3 is enabled in marking ``m``,
with parameters ``p``. Numba's time to compile grows faster than a function, so those of large nets are cut up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from riprap.san.code import expression, statements
from riprap.san.distributions import Empirical, Exponential
from riprap.san.net import Activity
from riprap.san.rendering import render_condition, render_float, render_statements
from riprap.san.wiring import Wiring

_BRANCHES = 24  # of one function


def source_of(wiring: Wiring) -> str:
    """Return the functions and tables of a net, as they stand behind the text of `riprap.san.kernel`."""
    write = _Writer(wiring)
    parts = [*write.tables()]
    for name, arguments, otherwise, bodies in (
        ("enabled", "m, p", "return False", map(write.enabled, wiring.activities)),
        ("rate", "m, p", "return 0.0", map(write.rate, wiring.activities)),
        ("look", "m, p, s, e, now, t, tree, on, drawn", "return", write.looks()),
        ("weight", "m, p", "return 0.0", map(write.weight, wiring.activities)),
        ("take", "m, p, e", "return", map(write.take, wiring.activities)),
        ("chance", "m, p", "return 0.0", write.chances()),
        ("put", "m, p, e", "return", write.puts()),
        ("value", "m, p", "return 0.0", map(write.value, (str(r.value) for r in wiring.rates))),
        ("impulse", "m, p", "return 0.0", write.impulses()),
    ):
        parts += _switch(name, arguments, otherwise, list(bodies))
    return "\n".join(parts) + "\n"


def _switch(name: str, arguments: str, otherwise: str, bodies: Sequence[list[str]]) -> Iterator[str]:
    """Yield a function of a number and of arguments, with a body for every number; an empty body is ``otherwise``."""
    busy = [(number, body) for number, body in enumerate(bodies) if body]
    groups = [busy[i : i + _BRANCHES] for i in range(0, len(busy), _BRANCHES)] or [[]]
    for part, group in enumerate(groups):
        yield f"\n\n@inner\ndef {name if len(groups) == 1 else f'{name}_{part}'}(j, {arguments}):"
        for number, body in group:
            yield f"    if j == {number}:"
            yield from (f"        {line}" for line in body)
        yield f"    {otherwise}"
    if len(groups) > 1:
        yield f"\n\n@inner\ndef {name}(j, {arguments}):"
        for part, group in enumerate(groups[:-1]):
            yield f"    if j <= {group[-1][0]}:\n        return {name}_{part}(j, {arguments})"
        yield f"    return {name}_{len(groups) - 1}(j, {arguments})"


def _table(name: str, values: Iterable[object]) -> str:
    # A table must not be empty, or Numba does not know what would be in it.
    return f"{name} = np.array([{', '.join(map(str, values)) or '0'}], np.int64)"


def _ragged(name: str, rows: Sequence[Sequence[int]]) -> Iterator[str]:
    yield _table(name, (each for row in rows for each in row))
    yield _table(f"{name}_AT", accumulate((len(row) for row in rows), initial=0))


class _Writer:
    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.names = wiring.names

    def tables(self) -> Iterator[str]:
        wiring = self.wiring
        yield f"TIMED = {wiring.timed}"
        yield f"RATES = {len(wiring.rates)}"
        yield _table("CASES", (len(activity.cases) for activity in wiring.activities))
        yield _table("CASE_AT", accumulate((len(a.cases) for a in wiring.activities), initial=0))
        yield _table("PRIORITY", (activity.priority for activity in wiring.activities))
        yield f"REACTIVE_COUNT = {len(wiring.reactive)}"
        yield _table("REACTIVE", wiring.reactive)
        yield from _ragged("LOOKS", wiring.looks)
        yield from _ragged("CANDIDATES", wiring.candidates)
        yield from _ragged("REVALUED", wiring.revalued)
        rewarded = [
            [
                len(wiring.rates) + k
                for k, reward in enumerate(wiring.impulses)
                if activity.name in reward.values
            ]
            for activity in wiring.activities
        ]
        yield from _ragged("REWARDED", rewarded)

    def _float(self, text: object) -> str:
        return render_float(expression(str(text)), self.names)

    def value(self, text: object) -> list[str]:
        return [f"return {self._float(text)}"]

    def _enabling(self, activity: Activity) -> str:
        parts = [f"{self.names[place][0]} >= {tokens}" for place, tokens in activity.takes.items()]
        parts += [render_condition(expression(str(gate.when)), self.names) for gate in activity.inputs]
        return " and ".join(parts) or "True"

    def enabled(self, activity: Activity) -> list[str]:
        return [f"return {self._enabling(activity)}"]

    def looks(self) -> Iterator[list[str]]:
        """Write when a timed activity draws its time, and when it loses it."""
        start = len(self.wiring.net.parameters)  # samples stand behind parameters
        for j, activity in enumerate(self.wiring.activities[: self.wiring.timed]):
            again, follow = f"not on[{j}]", []
            if activity.reactivate is not None:
                again += f" or {render_condition(expression(str(activity.reactivate)), self.names)}"
            time = activity.time
            if isinstance(time, Exponential) and self.wiring.follows[j]:
                follow = [f"    x = {self._float(time.rate)}"]
                again += f" or x != drawn[{j}]"
            if isinstance(time, Empirical):
                delay = f"empirical(p, {start}, {len(time.samples)}, {j}, s)"
                start += len(time.samples)
            elif time is not None:
                values = "".join(f"{self._float(text)}, " for text in time.codes.values())
                delay = f"{time.draw}({values}{j}, s, e)"
            yield [
                f"if {self._enabling(activity)}:",
                *follow,
                f"    if {again}:",
                f"        on[{j}] = True",
                *([f"        drawn[{j}] = x"] if follow else []),
                f"        schedule({j}, now + {delay}, t, tree)",
                "else:",
                f"    drop({j}, t, tree, on)",
                "return",
            ]

    def rate(self, activity: Activity) -> list[str]:
        return self.value(activity.time.rate) if isinstance(activity.time, Exponential) else []

    def weight(self, activity: Activity) -> list[str]:
        return [] if activity.timed else self.value(activity.weight)

    def take(self, activity: Activity) -> list[str]:
        """Write what happens before a case is chosen: without cases, everything."""
        lines = [f"{self.names[place][0]} -= {tokens}" for place, tokens in activity.takes.items()]
        for gate in activity.inputs:
            lines += render_statements(statements(gate.then), self.names)
        if not activity.cases:
            lines += self._output(activity)
        return [*lines, "return"] if lines else []

    def _output(self, activity: Activity) -> Iterator[str]:
        yield from (f"{self.names[place][0]} += {tokens}" for place, tokens in activity.puts.items())
        for gate in activity.outputs:
            yield from render_statements(statements(gate.then), self.names)

    def chances(self) -> Iterator[list[str]]:
        for activity in self.wiring.activities:
            for case in activity.cases:
                yield self.value(case.probability)

    def puts(self) -> Iterator[list[str]]:
        for activity in self.wiring.activities:
            for case in activity.cases:
                lines = [*self._output(activity)]
                lines += [f"{self.names[place][0]} += {tokens}" for place, tokens in case.puts.items()]
                lines += render_statements(statements(case.then), self.names)
                yield [*lines, "return"] if lines else []

    def impulses(self) -> Iterator[list[str]]:
        for activity in self.wiring.activities:
            for reward in self.wiring.impulses:
                if activity.name in reward.values:
                    yield self.value(reward.values[activity.name])
