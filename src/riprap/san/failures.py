"""Say what went wrong in a solver, where, and in which marking."""

from __future__ import annotations

from collections.abc import Sequence

from riprap.san import kernel
from riprap.san.errors import (
    MarkingError,
    ProbabilityError,
    SolutionError,
    TimeParameterError,
    UnstableError,
)
from riprap.san.rendering import constant
from riprap.san.wiring import Wiring


def failure(wiring: Wiring, e: Sequence[int], marking: Sequence[int]) -> SolutionError:
    """Return the error for what a solver noted in ``e``: what, the activity, the place, the replication, and a loop."""
    net = wiring.net
    m = [int(tokens) for tokens in marking]
    activity = wiring.activities[e[1]]
    where = f"net '{net.name}', activity '{activity.name}'"
    place = net.places[e[2]].name if net.places else ""
    match e[0]:
        case kernel.NEGATIVE:
            return MarkingError(f"{where}: place '{place}' would hold {m[e[2]]} tokens, {shown(wiring, m)}")
        case kernel.BROKEN:
            return MarkingError(f"{where}: place '{place}' would not hold a whole number, {shown(wiring, m)}")
        case kernel.BAD_CHANCE:
            chances = [_value(wiring, str(case.probability), m) for case in activity.cases]
            return ProbabilityError(
                f"{where}: its cases have the probabilities {_list(chances)}, {shown(wiring, m)}"
            )
        case kernel.BAD_TIME:
            values = (
                [_value(wiring, text, m) for text in activity.time.codes.values()] if activity.time else []
            )
            return TimeParameterError(
                f"{where}: {activity.time} with {_list(values)} is no time, {shown(wiring, m)}"
            )
        case kernel.BAD_WEIGHT:
            weight = _value(wiring, str(activity.weight), m)
            return TimeParameterError(f"{where}: there is no choice by weight {weight:g}, {shown(wiring, m)}")
        case _:
            loop = " -> ".join(cycle([wiring.activities[j].name for j in e[4:]]))
            return UnstableError(
                f"net '{net.name}': {loop} complete for ever and no time passes, {shown(wiring, m)}"
            )


def not_a_number(
    wiring: Wiring, marking: Sequence[int], error: ArithmeticError | ValueError
) -> SolutionError:
    """Return the error for code that divides by zero, or the like."""
    m = [int(tokens) for tokens in marking]
    return SolutionError(f"net '{wiring.net.name}': {error}, {shown(wiring, m)}")


def shown(wiring: Wiring, marking: Sequence[int]) -> str:
    """Write a marking, without places that are empty."""
    held = [f"{p.name}={n}" for p, n in zip(wiring.net.places, marking, strict=True) if n]
    return f"in marking ({', '.join(held) or 'all empty'})"


def cycle(names: Sequence[str]) -> list[str]:
    """Return the shortest part that names repeat, and its first again.

    >>> cycle(["b", "a", "b", "a", "b"])
    ['b', 'a', 'b']
    """
    for length in range(1, len(names)):
        if all(a == b for a, b in zip(names, names[length:], strict=False)):
            return [*names[:length], names[0]]
    return list(dict.fromkeys(names))


def _value(wiring: Wiring, text: str, marking: Sequence[int]) -> float:
    held = {place: float(marking[i]) for place, i in wiring.places.items()}
    value = constant(text, {**wiring.net.parameters, **held})
    assert value is not None
    return value


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
