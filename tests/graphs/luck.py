"""Random choices by a seed, with which applications are drawn.

Hypothesis draws the seeds and nothing else. Left to draw whole applications it spends five of six examples on slight
variations of one, and minutes on making a failing one smaller; `shrinking` knows better how to do that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


class Luck:
    """Chooses at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return self._random.choice(choices)

    def some(self, choices: Sequence[Choice], least: int, most: int) -> list[Choice]:
        """Return a number of different ones, in any order."""
        return self._random.sample(choices, self._random.randint(least, min(most, len(choices))))

    def whole(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def once_in(self, times: int) -> bool:
        return self._random.randrange(times) == 0
