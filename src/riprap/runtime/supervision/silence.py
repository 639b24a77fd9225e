"""What driver processes do not say: those that give no sign of life, and elements that make no step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.failures import Failure, Silent, Stuck
from riprap.runtime.supervision.roster import ProcessState


def silences(
    processes: Mapping[str, ProcessState], patience: Patience, now: float, clock: Callable[[], float]
) -> Iterator[tuple[Failure, float]]:
    """Find the failures that show in silence, at most one of a process, each with how many seconds it has lasted.

    ``now`` is by the clock of beats; ``clock`` tells the time of a failure.
    """
    for name, process in processes.items():
        driver = process.driver
        if driver is None or driver.halted:
            continue
        limit = patience.silent if driver.ready else patience.starting
        quiet = now - (min(driver.heard, driver.answered) if driver.ready else driver.began)
        if quiet > limit:
            yield Silent(time=clock(), process=name, seconds=quiet), quiet
            continue
        for element, state in process.elements.items():
            quiet = now - state.moved
            if quiet > state.patience(patience):
                at, batch = clock(), state.batch
                yield Stuck(time=at, process=name, element=element, batch=batch, seconds=quiet), quiet
                break
