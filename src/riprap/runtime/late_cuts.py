"""Cuts that are stored and not complete, since a sink does not come to have all up to them.

    stored --every sink and channel has its batch--> complete
       |
       '-- at once: files that gather rows for as long as they like are written
       '-- after the drain timeout: those whose user said for how long are written before their time, and it is told
       '-- after twice that: the element fails, which counts as an attempt to bring its region back

Until it is complete no other cut is begun, and all input since the one before it is kept. An element without state has
a cut with every batch; what is kept is the input of batches that sinks do not have, and these are looked at once a
period, or when there are many rows of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from riprap.adapters.retrying import Tell
from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.graph.regions import regions_of
from riprap.runtime.file_publisher import FilePublisher

if TYPE_CHECKING:
    from riprap.runtime.launch import Launch


# So many rows an element without state keeps for the file of a sink. Chains of operators that kept what came in for
# eight seconds, 400 MB, had 5 to 8% less throughput, nearly all of it spent in the kernel; with one second's, 1%.
_KEPT_ROWS = 1_000_000


class Taker(Protocol):
    """A sink or a channel of an element."""

    @property
    def published(self) -> int:
        """The newest batch it has for good."""


class LateCuts:
    """Sees to it that an element's cuts become complete in time."""

    def __init__(
        self,
        element: str,
        timeout: float,
        ends: Mapping[str, Taker],
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        *,
        period: float | None = None,
    ) -> None:
        self._element = element
        self._timeout = timeout
        self._ends = ends
        self._tell = tell
        self._clock = clock
        self._cut = -1
        self._since = 0.0
        self._hurried = False
        self._period = period
        self._noted, self._noted_at, self._noted_rows = -1, clock(), 0

    def look_without_state(self, handed: int, rows: int) -> None:
        """Look at the newest batch that was handed over when the period began; ``rows`` came in up to it."""
        if self._period is None:
            return
        if self._clock() - self._noted_at >= self._period or rows - self._noted_rows >= _KEPT_ROWS:
            self._noted, self._noted_at, self._noted_rows = handed, self._clock(), rows
        self.look(self._noted)

    def look(self, cut: int) -> None:
        """Look at the newest cut that is stored: hurry who has not had all up to it, or raise an error."""
        late = [name for name, end in self._ends.items() if end.published < cut]
        for file in self._files(late):
            if file.yields:
                file.hurry()
        if cut != self._cut or not late:
            self._cut, self._since, self._hurried = cut, self._clock(), False
            return
        waited = self._clock() - self._since
        if waited <= self._timeout or (self._hurried and waited <= 2 * self._timeout):
            return
        names = ", ".join(f"'{name}'" for name in late)
        what = f"the cut of '{self._element}' after batch {cut} is not complete after {waited:.1f} s: {names}"
        if self._hurried:
            raise RunError(
                f"{what} still lacks batches up to it. Look at what {names} writes to; or give the region a longer "
                "drain_timeout="
            )
        self._hurried = True
        for file in self._files(late):
            file.hurry()
        message = (
            f"{what} has not had all up to it. Files are written before their time; input is kept meanwhile"
        )
        self._tell("cut late", element=self._element, batch=cut, message=message)

    def _files(self, names: Iterable[str]) -> list[FilePublisher]:
        ends = (self._ends[name] for name in names)
        return [end for end in ends if isinstance(end, FilePublisher)]


def late_cuts_of(plan: Plan, launch: Launch, ends: Mapping[str, Taker]) -> LateCuts | None:
    """Return what sees to an element's cuts, None if it is in no region; ``ends`` are its sinks and channels."""
    for region in regions_of(launch.graph):
        if region.name == plan.region:
            terms = region.terms
            return LateCuts(plan.name, terms.drain_timeout, ends, launch.folder.event, period=terms.period)
    return None
