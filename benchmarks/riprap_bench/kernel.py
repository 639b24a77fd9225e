"""Bargain Discovery as one compiled loop over tuples: the expert's kernel, and the oracle of the answers.

It follows the definition tuple by tuple: a trade enters its ticker's window of five; a quote below the
window's average is a bargain. Sums are plain, oldest trade first, where Riprap's are exactly rounded: the last bit may
differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

WINDOW = 5

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Windows:
    """The newest trades of every ticker, by slot: notional and volume, oldest first, zeros where none is yet."""

    notional: Floats
    volume: Ints

    @classmethod
    def empty(cls) -> Windows:
        return cls(np.zeros((0, WINDOW)), np.zeros((0, WINDOW), np.int64))

    def grow(self, slots: int) -> None:
        """Make room for tickers not seen before."""
        more = slots - len(self.notional)
        if more > 0:
            self.notional = np.concatenate([self.notional, np.zeros((more, WINDOW))])
            self.volume = np.concatenate([self.volume, np.zeros((more, WINDOW), np.int64)])

    def find(self, slot: Ints, trade: Flags, price: Floats, size: Ints) -> tuple[Ints, Floats]:
        """Play a batch of events, in order; return the rows that are bargains and the average each met."""
        found: tuple[Ints, Floats] = _find(slot, trade, price, size, self.notional, self.volume)
        return found


@numba.njit(cache=True)
def _find(slot, trade, price, size, notional, volume):  # type: ignore[no-untyped-def]
    average = np.empty(len(notional))
    for key in range(len(notional)):
        average[key] = _average(notional[key], volume[key])
    rows = np.empty(len(slot), np.int64)
    averages = np.empty(len(slot))
    found = 0
    for row in range(len(slot)):
        key = slot[row]
        if trade[row]:
            for place in range(WINDOW - 1):
                notional[key, place] = notional[key, place + 1]
                volume[key, place] = volume[key, place + 1]
            notional[key, WINDOW - 1] = price[row] * size[row]
            volume[key, WINDOW - 1] = size[row]
            average[key] = _average(notional[key], volume[key])
        elif average[key] > price[row]:
            rows[found] = row
            averages[found] = average[key]
            found += 1
    return rows[:found], averages[:found]


@numba.njit(cache=True)
def _average(notional, volume):  # type: ignore[no-untyped-def]
    shares = 0
    total = 0.0
    for place in range(WINDOW):
        shares += volume[place]
        total += notional[place]
    return total / shares if shares else np.nan
