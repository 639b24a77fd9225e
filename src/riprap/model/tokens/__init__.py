"""The model of an application as a stochastic activity network, in which every tuple is a token.

Each operator waits, processes and sends, as in chapter 5 of the dissertation; clean and tainted tuples have places of
their own. This is what the model means. Its simulation costs several completions for every tuple, which
:mod:`riprap.model.leaping` does without; tests hold the two against each other.
"""

from __future__ import annotations

from riprap.model.arrays import Asked
from riprap.model.tokens.faults import Faults
from riprap.model.tokens.names import Names
from riprap.model.tokens.tuples import Tuples
from riprap.model.wiring import Wired
from riprap.san import At, Mean, Net, Place, Rate, Reward

__all__ = ["net_of", "rewards_of"]


def net_of(name: str, wired: Wired, asked: Asked) -> Net:
    """Make the net of a model and of what goes wrong with it."""
    tuples, faults = Tuples(wired), Faults(wired, asked)
    places = {**tuples.places(), **faults.places()}
    return Net(
        name,
        [Place(place, tokens) for place, tokens in places.items()],
        [*faults.activities(), *tuples.activities()],
    )


def rewards_of(wired: Wired, asked: Asked) -> list[Reward]:
    """Return what is asked of such a net: availability, and the tuples at the sinks."""
    counted = ("tainted", "clean", "lost", "crashes")
    return [
        Rate("availability", Names(wired).is_up(), Mean(0.0, asked.horizon)),
        *(Rate(each, each, At(asked.horizon)) for each in counted),
    ]
