"""The model of an application as a stochastic activity network, in which every tuple is a token.

Each operator waits, processes and sends, as in chapter 5 of the dissertation; clean and tainted tuples have places of
their own. This is what the model means. Its simulation costs several completions for every tuple, which
:mod:`riprap.model.leaps` does without; tests hold the two against each other. The same net with ``memoryless`` times
is what :mod:`riprap.model.exact` solves.
"""

from __future__ import annotations

from collections.abc import Iterator

from riprap.model.arrays import Question
from riprap.model.tokens.faults import FaultNet
from riprap.model.tokens.names import NetNames
from riprap.model.tokens.tuples import TupleNet
from riprap.model.wiring import Wired
from riprap.san import Activity, At, Impulse, InputGate, Mean, Net, Place, Rate, Reward, Total

__all__ = ["net_of", "rewards_of"]

_FIRST = 20  # the priority of counting


def net_of(name: str, wired: Wired, asked: Question, *, memoryless: bool = False) -> Net:
    """Make the net of a model and of what goes wrong with it."""
    tuples, faults = TupleNet(wired, memoryless=memoryless), FaultNet(wired, asked, memoryless=memoryless)
    places = {**tuples.places(), **faults.places()}
    return Net(
        name,
        [Place(place, tokens) for place, tokens in places.items()],
        [*faults.activities(), *tuples.activities(), *(_counting(tuples) if memoryless else ())],
    )


def rewards_of(wired: Wired, asked: Question, *, memoryless: bool = False) -> list[Reward]:
    """Return what is asked of such a net: availability, also if faults did not spread, and what is counted."""
    names, until = NetNames(wired), asked.horizon
    counted: Iterator[Reward] = (
        Impulse(name, {_counts(place): place for place in places}, Total(0.0, until))
        if memoryless
        else Rate(name, " + ".join(places) or "0", At(until))
        for name, places in names.counters().items()
    )
    return [
        Rate("availability", names.is_up(), Mean(0.0, until)),
        Rate("alone", names.is_up(alone=True), Mean(0.0, until)),
        *counted,
    ]


def _counting(names: NetNames) -> Iterator[Activity]:
    """Yield what takes away what is counted, at once: places that only grow would have no end of markings."""
    for place in dict.fromkeys(place for places in names.counters().values() for place in places):
        emptied = InputGate(when=f"{place} > 0", then=f"{place} = 0")
        yield Activity(_counts(place), time=None, priority=_FIRST, gates=[emptied])


def _counts(place: str) -> str:
    return f"{place}.count"
