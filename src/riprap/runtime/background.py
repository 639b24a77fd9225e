"""A thread that does one thing after the other for somebody who goes on meanwhile, but not too far."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

_LOOK_SECONDS = 0.1


class BackgroundThread:
    """Does what it is given, in order, at most so many things behind: who gives it more waits.

    What goes wrong ends it, and is raised where the next thing is given to it, or by :meth:`check` and :meth:`finish`.
    """

    def __init__(self, name: str, most: int) -> None:
        self._given: queue.Queue[Callable[[], None] | None] = queue.Queue(most)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._failure: BaseException | None = None
        # Each counted by one thread: the one that gives, and the one that does.
        self._given_so_far = self._done_so_far = 0
        self._dropped = False

    def do(self, work: Callable[[], None]) -> None:
        """Have something done, after all that was given before."""
        if not self._thread.is_alive() and self._failure is None:
            self._thread.start()
        while True:
            self.check()
            with contextlib.suppress(queue.Full):
                self._given.put(work, timeout=_LOOK_SECONDS)
                self._given_so_far += 1
                return

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return self._given_so_far == self._done_so_far

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """Wait until all is done that was given so far, and raise what went wrong."""
        done = threading.Event()
        self.do(done.set)
        while not done.wait(_LOOK_SECONDS):
            self.check()

    def finish(self) -> None:
        """Wait until all is done that was given, and raise what went wrong."""
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._given.put(None, timeout=_LOOK_SECONDS)
                self._thread.join()
        self.check()

    def abandon(self) -> None:
        """Leave undone what has not been begun."""
        self._dropped = True
        with contextlib.suppress(Exception):
            self.finish()

    def _work(self) -> None:
        while (work := self._given.get()) is not None:
            if self._dropped:
                continue
            try:
                work()
            except BaseException as error:
                # For the thread that gives us work.
                self._failure = error
                return
            self._done_so_far += 1
