"""What must hold of a net, found while it is made: names that exist, code of the language, sums of one."""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Iterable, Iterator, Mapping

from riprap.san.code import FUNCTIONS, expression, read_by, statements, written_by
from riprap.san.errors import CodeError, NetError, ProbabilityError, UnknownNameError
from riprap.san.net import Activity, Net
from riprap.san.rendering import constant

SUM_WITHIN = 1e-9  # how far from one probabilities may sum: a third is not a third in binary


def check_net(net: Net) -> None:
    """Raise the error that names the first thing wrong with a net."""
    places = [place.name for place in net.places]
    _check_names(f"net '{net.name}'", [*places, *net.parameters])
    _check_names(f"net '{net.name}'", [activity.name for activity in net.activities])
    _check_names("a net", [net.name])
    for place in net.places:
        if isinstance(place.initial, bool) or not isinstance(place.initial, int) or place.initial < 0:
            raise NetError(
                f"net '{net.name}', place '{place.name}': cannot begin with {place.initial!r} tokens"
            )
    for name, value in net.parameters.items():
        if not math.isfinite(value):
            raise NetError(f"net '{net.name}', parameter '{name}': {value} is no number to work with")
    for activity in net.activities:
        where = f"net '{net.name}', activity '{activity.name}'"
        _check_fit(where, activity)
        _check_arcs(where, activity, places)
        for what, text in codes_of(activity):
            check_code(f"{where}, {what}", text, [*places, *net.parameters])
        for what, text in functions_of(activity):
            _check_function(f"{where}, {what}", text, places, net)
        _check_cases(where, activity, net.parameters)


def codes_of(activity: Activity) -> Iterator[tuple[str, str]]:
    """Yield every expression of an activity and what it is."""
    yield from activity.time.codes.items() if activity.time else ()
    for gate in activity.inputs:
        yield "input gate's condition", str(gate.when)
    for number, case in enumerate(activity.cases, start=1):
        yield f"probability of case {number}", str(case.probability)
    if activity.reactivate is not None:
        yield "reactivation", str(activity.reactivate)
    yield "weight", str(activity.weight)


def functions_of(activity: Activity) -> Iterator[tuple[str, str]]:
    """Yield the statements of every gate of an activity and what they are."""
    yield from (("input gate's function", gate.then) for gate in activity.inputs)
    yield from (("output gate's function", gate.then) for gate in activity.outputs)
    yield from ((f"function of case {i}", case.then) for i, case in enumerate(activity.cases, start=1))


def check_code(where: str, text: str, names: Iterable[str]) -> ast.expr:
    """Parse an expression that may use these names, or say where it is wrong."""
    try:
        node = expression(text)
    except CodeError as error:
        raise CodeError(f"{where}: {error}") from None
    _check_known(where, text, read_by(node), names)
    return node


def _check_function(where: str, text: str, places: list[str], net: Net) -> None:
    try:
        nodes = statements(text)
    except CodeError as error:
        raise CodeError(f"{where}: {error}") from None
    for node in nodes:
        read = set(read_by(node)) - set(written_by(nodes))
        _check_known(where, text, read, [*places, *net.parameters])
    for name in written_by(nodes):
        if name in net.parameters:
            raise NetError(f"{where}: '{text}' assigns to the parameter '{name}'; only places change")
        _check_known(where, text, [name], places)


def _check_known(where: str, text: str, used: Iterable[str], names: Iterable[str]) -> None:
    listed = list(names)
    for name in used:
        if name not in listed:
            raise UnknownNameError(
                f"{where}: '{text}' uses '{name}', which is not there. There are: {', '.join(listed) or 'no names'}"
            )


def _check_names(where: str, names: list[str]) -> None:
    for name in names:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            raise NetError(
                f"{where}: '{name}' is no name; letters, digits and _ make one, and dots between them"
            )
        keywords = [part for part in parts if keyword.iskeyword(part)]
        if keywords:
            other = ".".join(f"{part}_" if part in keywords else part for part in parts)
            raise NetError(
                f"{where}: '{name}' cannot be a name, since '{keywords[0]}' is a keyword of Python; '{other}' can"
            )
        if name in FUNCTIONS:
            raise NetError(f"{where}: '{name}' is a function; choose another name")
        if names.count(name) > 1:
            raise NetError(f"{where}: the name '{name}' is there twice")


def _check_fit(where: str, activity: Activity) -> None:
    if activity.timed and (activity.priority != 0 or activity.weight != "1"):
        raise NetError(f"{where}: only instantaneous activities have a priority or a weight")
    if not activity.timed and activity.reactivate is not None:
        raise NetError(f"{where}: only timed activities are reactivated")


def _check_arcs(where: str, activity: Activity, places: list[str]) -> None:
    arcs = [activity.takes, activity.puts, *(case.puts for case in activity.cases)]
    for place, tokens in (item for each in arcs for item in each.items()):
        if place not in places:
            raise UnknownNameError(
                f"{where}: an arc leads to place '{place}', which is not there. "
                f"There are: {', '.join(places) or 'no places'}"
            )
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise NetError(f"{where}: an arc of '{place}' cannot carry {tokens!r} tokens")


def _check_cases(where: str, activity: Activity, parameters: Mapping[str, float]) -> None:
    chances = [constant(str(case.probability), parameters) for case in activity.cases]
    for number, value in enumerate(chances, start=1):
        if value is not None and not -SUM_WITHIN <= value <= 1 + SUM_WITHIN:
            raise ProbabilityError(f"{where}: case {number} has probability {value:g}")
    if chances == [None]:
        raise ProbabilityError(f"{where}: its only case is not sure to happen")
    constants = [value for value in chances if value is not None]
    if chances and len(constants) == len(chances) and abs(sum(constants) - 1) > SUM_WITHIN:
        raise ProbabilityError(f"{where}: the probabilities of its cases sum to {sum(constants):g}, not to 1")
