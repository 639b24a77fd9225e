"""When each protected operator is due: a queue by time, in which every operator has its own period."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping


class Schedule:
    """Operators by the time they are due next. The first times are spread out, so that not all are due together; those
    in ``at_once`` are due now, one after the other.

    >>> schedule = Schedule({"a": 10.0, "b": 10.0}, now=0.0)
    >>> schedule.next()
    (5.0, 'a')
    >>> schedule.done("a", now=6.0), schedule.next()
    (0, (10.0, 'b'))
    """

    def __init__(self, every: Mapping[str, float], now: float, at_once: Collection[str] = ()) -> None:
        self._every = dict(every)
        shares = enumerate(self._every.items(), 1)
        self._queue = [
            (now if name in at_once else now + period * n / len(self._every), name)
            for n, (name, period) in shares
        ]
        heapq.heapify(self._queue)

    def next(self) -> tuple[float, str]:
        """Return who is due next, and when."""
        return self._queue[0]

    def done(self, name: str, now: float) -> int:
        """Put the one that was due back in the queue; return how many of its times have passed meanwhile."""
        due, newest = heapq.heappop(self._queue)
        assert newest == name
        period = self._every[name]
        missed = max(0, int((now - due) // period))
        heapq.heappush(self._queue, (due + (missed + 1) * period, name))
        return missed
