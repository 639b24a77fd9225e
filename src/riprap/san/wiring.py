"""Which part of a net can touch which: what has to be looked at again after a completion, and nothing else.

Inside a solver places, parameters and activities are numbers. Timed activities come first, then the instantaneous ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from riprap.san.code import expression, read_by, statements, written_by
from riprap.san.distributions import Exponential
from riprap.san.net import Activity, Net
from riprap.san.rendering import Kind
from riprap.san.rewards import Impulse, Rate, Reward


@dataclass(frozen=True, slots=True)
class Wiring:
    """A net and its rewards by number, and who has to be looked at after whose completion."""

    net: Net
    activities: tuple[Activity, ...]
    timed: int
    rates: tuple[Rate, ...]
    impulses: tuple[Impulse, ...]
    names: dict[str, tuple[str, Kind]]
    follows: tuple[bool, ...]  # exponential times whose rate depends on the marking
    reactive: tuple[int, ...]
    looks: tuple[tuple[int, ...], ...]  # timed activities, by the activity that completed
    candidates: tuple[tuple[int, ...], ...]  # instantaneous ones, likewise
    revalued: tuple[tuple[int, ...], ...]  # rate rewards, likewise
    samples: tuple[float, ...]  # of empirical distributions; they stand behind the parameters


def wire(net: Net, rewards: Iterable[Reward] = ()) -> Wiring:
    """Number a net and find out what depends on what."""
    rewards = tuple(rewards)
    timed = [activity for activity in net.activities if activity.timed]
    activities = (*timed, *(activity for activity in net.activities if not activity.timed))
    places = {place.name for place in net.places}
    rates = tuple(reward for reward in rewards if isinstance(reward, Rate))
    names: dict[str, tuple[str, Kind]] = {p.name: (f"m[{i}]", "int") for i, p in enumerate(net.places)}
    names |= {name: (f"p[{i}]", "float") for i, name in enumerate(net.parameters)}
    follows = tuple(_follows(activity) & places != set() for activity in timed)
    reactive = tuple(j for j, activity in enumerate(timed) if activity.reactivate is not None)
    reads = [_enabling(activity) | _follows(activity) for activity in activities]
    values = [set(read_by(expression(str(rate.value)))) for rate in rates]
    looks, candidates, revalued = [], [], []
    for i, activity in enumerate(activities):
        written = _writes(activity)
        looks.append(
            tuple(j for j in range(len(timed)) if j not in reactive and (i == j or written & reads[j]))
        )
        candidates.append(
            tuple(j for j in range(len(timed), len(activities)) if i == j or written & reads[j])
        )
        revalued.append(tuple(k for k, read in enumerate(values) if written & read))
    samples = tuple(x for activity in timed for x in getattr(activity.time, "samples", ()))
    return Wiring(
        net,
        activities,
        len(timed),
        rates,
        tuple(reward for reward in rewards if isinstance(reward, Impulse)),
        names,
        follows,
        reactive,
        tuple(looks),
        tuple(candidates),
        tuple(revalued),
        samples,
    )


def _follows(activity: Activity) -> set[str]:
    """Return what the rate of an exponential time reads: it is drawn anew when the rate changes."""
    time = activity.time
    return set(read_by(expression(str(time.rate)))) if isinstance(time, Exponential) else set()


def _enabling(activity: Activity) -> set[str]:
    gates = (read_by(expression(str(gate.when))) for gate in activity.inputs)
    return {*activity.takes, *(name for gate in gates for name in gate)}


def _writes(activity: Activity) -> set[str]:
    arcs = [activity.takes, activity.puts, *(case.puts for case in activity.cases)]
    functions = [*(gate.then for gate in activity.gates), *(case.then for case in activity.cases)]
    written = (written_by(statements(text)) for text in functions)
    return {name for each in (*arcs, *written) for name in each}
