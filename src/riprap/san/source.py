"""Write the code of a net as Python functions: Numba compiles them for the simulator, the exact solver interprets them.

A function has a branch for every activity that has such code: ``gate(3, m, p)`` says whether the input gates of
activity 3 hold in marking ``m``, with parameters ``p``. The time to compile a function grows faster than its length, so
long ones are cut up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from riprap.san.code import expression, statements
from riprap.san.distributions import Empirical
from riprap.san.rendering import constant, render_condition, render_float, render_statements
from riprap.san.wiring import Wiring

_BRANCHES = 24  # of one function
# Which number stands for which way to draw a time.
KINDS = (
    "exponential",
    "deterministic",
    "uniform_between",
    "normal_above_zero",
    "lognormal",
    "weibull",
    "erlang",
    "gamma",
    "empirical",
)
_OF_TWO = KINDS[2:]


def source_of(wiring: Wiring) -> str:
    """Return the functions for all code of a net whose outcome depends on the marking."""
    activities = wiring.activities
    times = [_parameters(activity.time) for activity in activities]
    weights = [None if activity.timed else str(activity.weight) for activity in activities]
    chances = [str(case.probability) for _, case in wiring.cases]
    impulses = [str(reward.values[name]) for name, reward in wiring.rewarding]
    reactivated = [None if a.reactivate is None else [str(a.reactivate)] for a in activities]
    parts = [
        *_switch("gate", "m, p", "return True", _conditions(wiring, gates_of(wiring))),
        *_switch("reactivated", "m, p", "return False", _conditions(wiring, reactivated)),
        *_switch("first_parameter", "m, p", "return math.nan", _values(wiring, [t[0] for t in times])),
        *_switch("second_parameter", "m, p", "return math.nan", _values(wiring, [t[1] for t in times])),
        *_switch("weight", "m, p", "return math.nan", _values(wiring, weights)),
        *_switch("chance", "m, p", "return math.nan", _values(wiring, chances)),
        *_switch("impulse", "m, p", "return math.nan", _values(wiring, impulses)),
        *_switch(
            "value", "m, p", "return math.nan", _values(wiring, [str(r.value) for r in wiring.rates], True)
        ),
        *_switch("take", "m, p, e", "return", _functions(wiring, taken_by_code(wiring))),
        *_switch("put", "m, p, e", "return", _functions(wiring, put_by_code(wiring))),
        *_draws(wiring),
    ]
    return "\n".join(parts) + "\n"


def gates_of(wiring: Wiring) -> list[list[str]]:
    """Return the conditions of each activity's input gates."""
    return [
        [str(gate.when) for gate in activity.inputs if gate.when != "True"] for activity in wiring.activities
    ]


def taken_by_code(wiring: Wiring) -> list[list[str]]:
    """Return the functions of each activity's input gates."""
    return [[gate.then for gate in activity.inputs if gate.then] for activity in wiring.activities]


def put_by_code(wiring: Wiring) -> list[list[str]]:
    """Return the functions of output gates for each case: the activity's, then the case's own."""
    outputs = [[gate.then for gate in activity.outputs] for activity in wiring.activities]
    return [[text for text in (*outputs[j], case.then) if text] for j, case in wiring.cases]


def _parameters(time: object) -> tuple[str | None, str | None]:
    codes = [] if time is None else [*time.codes.values()]  # type: ignore[attr-defined]
    return (codes[0] if codes else None), (codes[1] if len(codes) > 1 else None)


def _switch(name: str, arguments: str, otherwise: str, bodies: Iterable[list[str]]) -> Iterator[str]:
    """Yield a function of a number and of arguments, with a body for every number; an empty one is ``otherwise``."""
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


def _conditions(wiring: Wiring, texts: Sequence[list[str] | None]) -> Iterator[list[str]]:
    for row in texts:
        parts = [render_condition(expression(text), wiring.names) for text in row or ()]
        yield [f"return {' and '.join(parts)}"] if parts else []


def _values(wiring: Wiring, texts: Sequence[str | None], every: bool = False) -> Iterator[list[str]]:
    """Yield what returns the values of expressions; numbers that no marking changes are data, not code."""
    for text in texts:
        constant_value = text is None or (not every and constant(text, wiring.net.parameters) is not None)
        yield [] if constant_value else [f"return {render_float(expression(str(text)), wiring.names)}"]


def _functions(wiring: Wiring, texts: Sequence[list[str]]) -> Iterator[list[str]]:
    for row in texts:
        lines = [line for text in row for line in render_statements(statements(text), wiring.names)]
        yield [*lines, "return"] if lines else []


def _draws(wiring: Wiring) -> Iterator[str]:
    """Yield the function that draws a time, with only the distributions that the net has: others need no compiling."""
    used = {activity.time.draw for activity in wiring.activities if activity.time is not None}
    yield "\n\n@inner\ndef draw(kind, a, b, j, p, s, e):"
    for kind, name in enumerate(KINDS):
        if name in used:
            values = (
                "a, b, j, p, s"
                if name == Empirical.draw
                else "a, b, j, s, e"
                if name in _OF_TWO
                else "a, j, s, e"
            )
            yield f"    if kind == {kind}:\n        return {name}({values})"
    yield "    return math.inf"
