"""Which part of a net can touch which: what has to be looked at again after a completion, and nothing else.

Inside a solver places, parameters, activities and cases are numbers. Timed activities come first, instantaneous ones
then. An activity without cases has one, which always happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from riprap.san.code import expression, read_by, statements, written_by
from riprap.san.distributions import Exponential
from riprap.san.net import Activity, Case, Net
from riprap.san.rendering import CodeType
from riprap.san.rewards import Impulse, Rate, Reward

NumberLists = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """A net and its rewards by number, and who has to be looked at after whose completion."""

    net: Net
    activities: tuple[Activity, ...]
    timed: int
    rates: tuple[Rate, ...]
    impulses: tuple[Impulse, ...]
    names: dict[str, tuple[str, CodeType]]  # what names are in the text that is compiled
    places: dict[str, int]
    looks: NumberLists  # timed activities, by the activity that completed; the last row is the beginning's
    candidates: NumberLists  # instantaneous ones, likewise
    revalued: NumberLists  # rate rewards, likewise
    rewarded: NumberLists  # impulse rewards, counted after the rate rewards, by activity

    def follows(self, j: int) -> bool:
        """Say whether an exponential time depends on the marking: it is drawn anew when its rate changes."""
        return bool(_rate_reads(self.activities[j]) & set(self.places))

    @property
    def cases(self) -> Iterator[tuple[int, Case]]:
        """Every case, with the number of its activity."""
        for j, activity in enumerate(self.activities):
            for case in activity.cases or (Case(1),):
                yield j, case

    @property
    def rewarding(self) -> Iterator[tuple[str, Impulse]]:
        """The activities that are rewarded, with the reward, in the order of ``rewarded``."""
        for activity, row in zip(self.activities, self.rewarded, strict=True):
            for k in row:
                yield activity.name, self.impulses[k - len(self.rates)]


@lru_cache(maxsize=16)
def wire(net: Net, rewards: tuple[Reward, ...]) -> Wiring:
    """Number a net and find out what depends on what."""
    rates = tuple(reward for reward in rewards if isinstance(reward, Rate))
    impulses = tuple(reward for reward in rewards if isinstance(reward, Impulse))
    timed = [activity for activity in net.activities if activity.timed]
    activities = (*timed, *(activity for activity in net.activities if not activity.timed))
    names: dict[str, tuple[str, CodeType]] = {p.name: (f"m[{i}]", "int") for i, p in enumerate(net.places)}
    names |= {name: (f"p[{i}]", "float") for i, name in enumerate(net.parameters)}
    # These are looked at once in every stable marking, so only timed activities lead to them: one completed in each.
    reactive = {j for j, activity in enumerate(timed) if activity.reactivate is not None}
    readers = _by_name(_enabling_reads(activity) | _rate_reads(activity) for activity in activities)
    valued = _by_name(set(read_by(expression(str(rate.value)))) for rate in rates)
    looks, candidates, revalued = [], [], []
    for i, activity in enumerate(activities):
        written = _writes(activity)
        touched = {i}.union(*(readers.get(name, ()) for name in written))
        seen = {j for j in touched if j < len(timed)} - reactive
        looks.append(tuple(sorted(seen | reactive if activity.timed else seen)))
        candidates.append(tuple(sorted(j for j in touched if j >= len(timed))))
        revalued.append(tuple(sorted(set().union(*(valued.get(name, ()) for name in written)))))
    return Wiring(
        net,
        activities,
        len(timed),
        rates,
        impulses,
        names,
        {place.name: i for i, place in enumerate(net.places)},
        (*looks, tuple(range(len(timed)))),
        (*candidates, tuple(range(len(timed), len(activities)))),
        (*revalued, tuple(range(len(rates)))),
        tuple(
            tuple(len(rates) + k for k, reward in enumerate(impulses) if activity.name in reward.values)
            for activity in activities
        ),
    )


def _by_name(names: Iterable[set[str]]) -> dict[str, set[int]]:
    """Return who is in which of the sets, by number."""
    numbers: dict[str, set[int]] = {}
    for number, each in enumerate(names):
        for name in each:
            numbers.setdefault(name, set()).add(number)
    return numbers


def _rate_reads(activity: Activity) -> set[str]:
    time = activity.time
    return set(read_by(expression(str(time.rate)))) if isinstance(time, Exponential) else set()


def _enabling_reads(activity: Activity) -> set[str]:
    gates = (read_by(expression(str(gate.when))) for gate in activity.inputs)
    return {*activity.takes, *(name for gate in gates for name in gate)}


def _writes(activity: Activity) -> set[str]:
    arcs = [activity.takes, activity.puts, *(case.puts for case in activity.cases)]
    functions = [*(gate.then for gate in activity.gates), *(case.then for case in activity.cases)]
    written = (written_by(statements(text)) for text in functions)
    return {name for each in (*arcs, *written) for name in each}
