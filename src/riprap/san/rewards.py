"""What is asked of a net: rewards for the marking it is in and for completions, at a time or over one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from riprap.san.checks import check_code
from riprap.san.code import Code, text_of
from riprap.san.errors import NetError, UnknownNameError
from riprap.san.fixed import Fixed, fix
from riprap.san.net import Net


@dataclass(frozen=True, slots=True)
class At:
    """The value at a time, after everything that happens at it."""

    time: float


@dataclass(frozen=True, slots=True)
class Total:
    """What comes together between two times."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Mean:
    """What comes together between two times, divided by the time between them."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Steady:
    """The mean in the long run; a simulation takes it from ``after`` to its end."""

    after: float = 0.0


When = At | Total | Mean | Steady


@dataclass(frozen=True, slots=True)
class Rate:
    """What a marking is worth while the net is in it.

    >>> Rate("busy", "servers > 0", Mean(0, 100)).value
    'servers > 0'
    """

    name: str
    value: Code
    when: When = Steady()

    def __post_init__(self) -> None:
        fix(self, value=text_of(self.value))
        _check_when(self.name, self.when)


@dataclass(frozen=True, slots=True)
class Impulse:
    """What completions of activities are worth, in the marking just before them.

    >>> Impulse("lost", {"drop": 1}, Total(0, 100)).values["drop"]
    '1'
    """

    name: str
    values: Mapping[str, Code]
    when: When = Steady()

    def __post_init__(self) -> None:
        fix(self, values=Fixed({name: text_of(value) for name, value in self.values.items()}))
        _check_when(self.name, self.when)
        if isinstance(self.when, At):
            raise NetError(
                f"reward '{self.name}': completions are worth nothing at one time; take Total or Mean"
            )


Reward = Rate | Impulse


def _check_when(name: str, when: When) -> None:
    start, end = span(when, math.inf)
    if not (0 <= start <= end) or math.isnan(start):
        raise NetError(f"reward '{name}': there is no time from {start:g} to {end:g}")
    if start == end and not isinstance(when, At):
        raise NetError(f"reward '{name}': there is no time between {start:g} and {end:g}; take At")


def span(when: When, until: float) -> tuple[float, float]:
    """Return when a reward begins and ends.

    >>> span(Steady(10), 100.0), span(At(3), 100.0)
    ((10, 100.0), (3, 3))
    """
    match when:
        case At(time):
            return time, time
        case Steady(after):
            return after, until
        case Total(start, end) | Mean(start, end):
            return start, end


def check_rewards(net: Net, rewards: tuple[Reward, ...]) -> None:
    """Raise the error that names the first reward that does not fit a net."""
    names = [*(place.name for place in net.places), *net.parameters]
    activities = [activity.name for activity in net.activities]
    taken: set[str] = set()
    for reward in rewards:
        where = f"net '{net.name}', reward '{reward.name}'"
        if reward.name in taken:
            raise NetError(f"{where}: there are two of that name")
        taken.add(reward.name)
        if isinstance(reward, Rate):
            check_code(where, str(reward.value), names)
            continue
        for activity, value in reward.values.items():
            if activity not in activities:
                raise UnknownNameError(
                    f"{where}: there is no activity '{activity}'. There are: {', '.join(activities)}"
                )
            check_code(f"{where}, activity '{activity}'", str(value), names)
