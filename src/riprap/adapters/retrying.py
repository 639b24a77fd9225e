"""A lost connection is tried again, after longer and longer waits, and then reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from riprap.errors import ConnectionLost, RunError

Returned = TypeVar("Returned")

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


class Tell(Protocol):
    """Takes note of something that people should see: the run's events."""

    def __call__(self, kind: str, **details: Any) -> None: ...


class Retry:
    """How long one connection has been gone, and what to do about it.

    ``what`` names the operator and the server, for the events and the error. ``patience`` is how many seconds it may be
    gone before the run fails, and ``option`` is how users say so.
    """

    def __init__(
        self,
        what: str,
        patience: float,
        tell: Tell,
        *,
        option: str = "retry_for=",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._what = what
        self._patience = patience
        self._tell = tell
        self._option = option
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._tries = 0

    def lost(self, error: ConnectionLost) -> None:
        """Wait before the next try, or raise if the connection has been gone for too long."""
        now = self._clock()
        if self._since is None:
            self._since, self._tries = now, 0
        gone = now - self._since
        if gone >= self._patience:
            raise RunError(
                f"{self._what}: {error}. Tried {self._tries} more times in {gone:.0f} s. Check that the server runs "
                f"and can be reached from here, and take the run up again; {self._option} says how long to try"
            ) from error
        self._tries += 1
        wait = min(_FIRST_WAIT * 2 ** (self._tries - 1), _LONGEST_WAIT, self._patience - gone)
        self._tell(
            "connection lost", what=self._what, message=str(error), tries=self._tries, wait=round(wait, 3)
        )
        self._sleep(wait)

    def works(self) -> None:
        """Take note that the connection is there."""
        if self._since is not None:
            gone = self._clock() - self._since
            self._tell("connection back", what=self._what, after=round(gone, 3), tries=self._tries)
        self._since = None

    def call(self, action: Callable[[bool], Returned]) -> Returned:
        """Carry out an action until it works; it is told whether it may have been carried out before."""
        again = False
        while True:
            try:
                result = action(again)
            except ConnectionLost as error:
                self.lost(error)
                again = True
            else:
                self.works()
                return result
