"""When an element of a run that is to stop may halt: nothing that is under way, or cannot be read again, is left.

Of a run that is to be taken up again, what is under way between elements stays there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from riprap.errors import RunError
from riprap.graph.graph import Graph
from riprap.runtime.element import Element
from riprap.runtime.folder import RunFolder

# How long, beyond the trigger, a run that is to stop waits for a batch with what its sources have fetched.
_QUIET_SECONDS = 30.0


class Drain:
    """The orderly end of elements, each once it has read all that those before it put out.

    Sources are left where they are, but for what could not be read again.
    """

    def __init__(
        self,
        graph: Graph,
        folder: RunFolder,
        clock: Callable[[], float] = time.monotonic,
        *,
        resume: bool = False,
    ) -> None:
        self.resume = resume
        self._graph = graph
        self._folder = folder
        self._clock = clock
        self._moved: dict[str, float] = {}

    def may_halt(self, element: Element) -> bool:
        """Say whether an element has read what it must; asked again and again until it has."""
        moved = self._moved.setdefault(element.plan.name, self._clock())
        if not element.active:
            return True
        if element.plan.inlets:
            return self.resume or element.all_read()
        if element.owes:
            return False
        if not element.held() or self._clock() - moved > element.interval + _QUIET_SECONDS:
            return True
        if element.busy:
            self._moved[element.plan.name] = self._clock()
        return False

    def check_held(self, element: Element) -> None:
        """See to it that the run does not end if that would lose rows."""
        held = element.held()
        if held:
            source = self._graph[held[0]]
            raise RunError(
                f"source '{source.name}' ({source.location}): rows it has read are not computed, and would be lost. "
                f"Take the run up again: its folder is {self._folder.path}"
            )
