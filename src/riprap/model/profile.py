"""What an operator does to a stream on average: how long a tuple takes, how many come out, how much it remembers.

A profile is measured (`riprap profile APP`), fitted (`riprap fit APP`) and written to a file that people can read and
change:

    format: riprap profile 1
    rates: {Source: 500}                      # tuples a second
    operators:
      TradeFilter: {time: 5.29e-7, selectivity: 0.2}
      Aggregator: {time: 1.32e-5, state: 15495, alpha: 0.035, alpha_tainted: 0.005, beta: 1.98}
      BargainIndex:
        shift: 0.22
        ports:
        - {time: 1.27e-6, selectivity: 0.0, state: 3099, alpha: 0.03, beta: 0.41}
        - {time: 1.27e-6, selectivity: 0.182}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from riprap.errors import FormatError, ModelError

FORMAT = "riprap profile 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What happens to tuples of one input port.

    ``selectivity`` is how many tuples come out for one that comes in: a number, or one for each stream that comes out.
    ``state`` is how many tuples the port remembers. After a fault, results are tainted until the port has had
    ``min(alpha * state + beta * lost, gamma * state)`` correct tuples; after a tainted one, ``alpha_tainted * state``.
    """

    time: float = 0.0
    selectivity: float | Mapping[str, float] = 1.0
    state: float = 0.0
    alpha: float = 0.03
    alpha_tainted: float = 0.005
    beta: float = 1.0
    gamma: float = 1.0

    def share(self, stream: str) -> float:
        """Return how many tuples of a stream come out for one that comes in."""
        return (
            self.selectivity.get(stream, 0.0) if isinstance(self.selectivity, Mapping) else self.selectivity
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProfile:
    """What an operator does, port by port.

    ``shift`` is by how much selectivity grows for tainted tuples where it is below one; left out, 10% if the operator
    keeps state and 5% if not. ``filling`` is the share of its results that an operator which began with empty state
    puts out until it is full. ``tick`` is every how many seconds it puts out ``ticked`` tuples of its own accord.
    ``tuple_bytes`` is the size of a tuple of its state. ``punctuated`` is the share of its tuples that a punctuation
    follows, ``on_punctuation`` how many tuples it puts out when one comes in.
    """

    ports: tuple[Port, ...] = (Port(),)
    shift: float | None = None
    filling: float = 0.5
    tick: float | None = None
    ticked: float = 0.0
    tuple_bytes: float = 0.0
    punctuated: float = 0.0
    on_punctuation: float = 0.0

    @property
    def stateful(self) -> bool:
        return any(port.state > 0 for port in self.ports)

    @property
    def shifted(self) -> float:
        """By how much selectivity grows for tainted tuples."""
        if self.shift is not None:
            return self.shift
        return 0.10 if self.stateful else 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of an application: the rate of each source, and what each operator does.

    ``called`` are other names of operators, ``assumed`` says in words what is not measured.
    """

    rates: Mapping[str, float]
    operators: Mapping[str, OperatorProfile]
    called: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, rate in self.rates.items():
            _number(f"rates: {name}", rate, above=True)
        for name, operator in self.operators.items():
            _check(name, operator)

    def at_rate(self, rate: float) -> Profile:
        """Return the profile with all sources together at another rate, in the same proportions."""
        _number("rate", rate, above=True)
        total = sum(self.rates.values())
        if total == 0:
            raise ModelError("the profile has no rate of any source: add one for each under 'rates'")
        return replace(self, rates={name: own * rate / total for name, own in self.rates.items()})

    def write(self, file: Path) -> None:
        """Write the profile, with what is as usual left out."""
        content: dict[str, Any] = {"format": FORMAT, "rates": dict(self.rates)}
        content["operators"] = {name: _described(operator) for name, operator in self.operators.items()}
        content |= {"called": dict(self.called)} if self.called else {}
        content |= {"assumed": list(self.assumed)} if self.assumed else {}
        file.write_text(yaml.safe_dump(content, sort_keys=False, default_flow_style=None), encoding="utf-8")


def read_profile(file: Path) -> Profile:
    """Read a profile from a file."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelError(f"the profile {file} cannot be read: {error}") from error
    try:
        return profile_of(content)
    except (ModelError, FormatError) as error:
        raise type(error)(f"{file}: {error}") from error


def profile_of(content: Any) -> Profile:
    """Make a profile of what YAML said."""
    entries = _entries("a profile", content, ("format", "rates", "operators", "called", "assumed"))
    if entries.get("format", FORMAT) != FORMAT:
        raise FormatError(f"its format is {entries['format']!r}; this version reads {FORMAT!r}")
    for name in ("rates", "operators"):
        if not isinstance(entries.get(name), Mapping):
            raise ModelError(f"a profile needs an entry '{name}' with one for each of them by name")
    return Profile(
        rates=dict(entries["rates"]),
        operators={str(name): _operator(str(name), each) for name, each in entries["operators"].items()},
        called=dict(entries.get("called") or {}),
        assumed=tuple(entries.get("assumed") or ()),
    )


_OF_PORT = tuple(f.name for f in fields(Port))
_OF_OPERATOR = tuple(f.name for f in fields(OperatorProfile))


def _operator(name: str, content: Any) -> OperatorProfile:
    what = f"operator '{name}'"
    entries = _entries(what, content or {}, (*_OF_OPERATOR, *_OF_PORT))
    of_port = {key: value for key, value in entries.items() if key in _OF_PORT}
    if "ports" in entries and of_port:
        raise ModelError(f"{what}: {', '.join(of_port)} must be said of each of its ports")
    ports = entries.pop("ports", [of_port])
    if not isinstance(ports, list):
        raise ModelError(f"{what}: ports is a list, with an entry for each port")
    each = tuple(Port(**_entries(f"{what}, port {n}", port or {}, _OF_PORT)) for n, port in enumerate(ports))
    return OperatorProfile(
        ports=each, **{key: value for key, value in entries.items() if key in _OF_OPERATOR}
    )


def _described(operator: OperatorProfile) -> dict[str, Any]:
    usual, plain = OperatorProfile(), Port()
    ports = [
        {
            f.name: _plainly(getattr(port, f.name))
            for f in fields(Port)
            if getattr(port, f.name) != getattr(plain, f.name) or f.name in ("time", "selectivity")
        }
        for port in operator.ports
    ]
    numbers = {
        f.name: getattr(operator, f.name)
        for f in fields(OperatorProfile)
        if f.name != "ports" and getattr(operator, f.name) != getattr(usual, f.name)
    }
    return {**numbers, **ports[0]} if len(ports) == 1 else {**numbers, "ports": ports}


def _plainly(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _check(name: str, operator: OperatorProfile) -> None:
    what = f"operator '{name}'"
    for number, port in enumerate(operator.ports):
        where = what if len(operator.ports) == 1 else f"{what}, port {number}"
        for key in ("time", "state", "alpha", "alpha_tainted", "beta", "gamma"):
            _number(f"{where}: {key}", getattr(port, key))
        shares = port.selectivity
        for stream, share in shares.items() if isinstance(shares, Mapping) else [("", shares)]:
            _number(f"{where}: selectivity{f' of {stream}' if stream else ''}", share)
    for key in ("filling", "ticked", "tuple_bytes", "punctuated", "on_punctuation"):
        _number(f"{what}: {key}", getattr(operator, key))
    if operator.filling > 1:
        raise ModelError(
            f"{what}: filling is the share of results of an empty state, at most 1, got {operator.filling!r}"
        )
    if operator.shift is not None and (not _is_number(operator.shift) or operator.shift < -1):
        raise ModelError(
            f"{what}: shift is by how much selectivity grows, such as 0.1, got {operator.shift!r}"
        )
    if operator.tick is not None:
        _number(f"{what}: tick", operator.tick, above=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(what: str, value: object, *, above: bool = False) -> None:
    if not _is_number(value) or value < 0 or (above and value == 0):  # type: ignore[operator]
        least = "above zero" if above else "of at least zero"
        raise ModelError(f"{what} is {value!r}: give a number {least}")


def _entries(what: str, content: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ModelError(f"{what}: expected entries by name, got {content!r}")
    for name in content:
        if name not in names:
            raise ModelError(f"{what}: there is no entry '{name}'; there are: {', '.join(names)}")
    return dict(content)
