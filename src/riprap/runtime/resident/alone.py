"""Whether one task computes the next batch alone: of a small one the fixed cost of a second task is most of the work.

On few cores that cost is also paid by everybody else: the first task, the driver, who gets the results.
"""

from __future__ import annotations

from collections.abc import Sequence

from riprap.runtime.task import Answer

# Batches are small when, so many in a row, they have no more rows and take no task longer.
_MOST_ROWS = 2_000
_MOST_SECONDS = 0.05
_IN_A_ROW = 8
# To bring the state of several tasks together is to write it once more: what is larger stays where it is.
_MOST_STATE = 16 << 20


class Alone:
    """Learns from each batch whether the next is likely to be small; one that is not goes to all tasks again.

    >>> alone = Alone()
    >>> alone.next
    False
    """

    def __init__(self) -> None:
        self._small = 0

    @property
    def next(self) -> bool:
        """Whether the next batch is for one task alone."""
        return self._small >= _IN_A_ROW

    def learn(self, rows: int, answers: Sequence[Answer]) -> None:
        """Take a batch into account, of which tasks have answered."""
        seconds = max(sum(answer.seconds.values()) for answer in answers)
        state = sum(size for answer in answers for _, size in answer.state.values())
        small = rows <= _MOST_ROWS and seconds <= _MOST_SECONDS and state <= _MOST_STATE
        self._small = self._small + 1 if small else 0
