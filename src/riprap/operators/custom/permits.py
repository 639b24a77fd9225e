"""Permits: let the threads of an operator change its state and submit, but not while the state is saved.

    closed --open--> open --close--> (waits until all permits are back) closed
       `-----------------`---abandon--> abandoned

While closed, whoever asks for a permit waits; once abandoned, whoever asks is told to end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from riprap.operators.custom.user_operator import Abandoned


class Permits:
    """The permits of one instance. The runtime's own thread needs none while it is :meth:`serving`."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open = False
        self._abandoned = False
        self._held: dict[int, int] = {}
        self._runtime: int | None = None
        self._error: BaseException | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Call into the operator from this thread."""
        self._runtime = threading.get_ident()
        try:
            yield
        finally:
            self._runtime = None

    def open(self) -> None:
        """Begin to give out permits."""
        with self._condition:
            self._open = True
            self._condition.notify_all()

    def close(self, patience: float) -> bool:
        """Stop giving out permits, and wait until all are back; say whether they are, after so many seconds."""
        with self._condition:
            self._open = False
            return self._condition.wait_for(lambda: not self._held, patience)

    def abandon(self) -> None:
        """Let every thread that waits or comes for a permit end."""
        with self._condition:
            self._open, self._abandoned = False, True
            self._condition.notify_all()

    @contextmanager
    def permit(self) -> Iterator[None]:
        """Hold a permit; a thread that has one gets another at once."""
        me = threading.get_ident()
        if me == self._runtime:
            yield
            return
        with self._condition:
            if me not in self._held:
                self._condition.wait_for(lambda: self._open or self._abandoned)
            if self._abandoned:
                raise Abandoned("the instance of this operator is not used any more: end the thread")
            self._held[me] = self._held.get(me, 0) + 1
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            with self._condition:
                self._held[me] -= 1
                if not self._held[me]:
                    del self._held[me]
                self._condition.notify_all()

    def check(self) -> bool:
        """Raise unless the calling thread may submit; return whether it is the runtime's."""
        me = threading.get_ident()
        if me == self._runtime:
            return True
        with self._condition:
            if self._abandoned:
                raise Abandoned("the instance of this operator is not used any more: end the thread")
            if me in self._held:
                return False
        error = RuntimeError("a thread submitted without a permit: write 'with self.permit():' around it")
        self._fail(error)
        raise error

    def _fail(self, error: BaseException) -> None:
        with self._condition:
            if self._error is None and not isinstance(error, Abandoned):
                self._error = error

    @property
    def error(self) -> BaseException | None:
        """The first failure of a thread of the operator's own while it held a permit, or should have."""
        return self._error
