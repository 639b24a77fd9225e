"""What Ctrl-C does to a run that is followed: it is a request, and at a terminal a question."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import types
from collections.abc import Mapping
from typing import IO, Any, Literal, Self

from riprap.cli.screen import Screen

_INTERRUPTED = 130


class CtrlC:
    """Turn the first Ctrl-C into a request to stop, and the second into an end at once.

    Someone at a terminal is asked whether the run is to be taken up again; it goes on until there is an answer.
    """

    _ANSWERS: Mapping[str, Literal["end", "resume"]] = {"": "end", "e": "end", "r": "resume"}

    def __init__(self, screen: Screen, answers: IO[str] | None = None) -> None:
        self.stop: Literal["end", "resume"] | None = None
        self.asking = False
        self._screen = screen
        self._answers = answers or sys.stdin
        self._asks = screen.err.is_terminal and self._answers is not None and self._answers.isatty()
        self._before: Any = None

    def __enter__(self) -> Self:
        # Only the main thread may do this.
        with contextlib.suppress(ValueError):
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def look(self) -> None:
        """See whether there is an answer."""
        if select.select([self._answers], [], [], 0.0)[0]:
            answer = self._answers.readline().strip().lower()[:1]
            self.asking = False
            if answer in self._ANSWERS:
                self._stop(self._ANSWERS[answer])
            else:
                self._screen.note("going on")

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        if self.stop is not None or self.asking:
            self._screen.err.show_cursor(True)
            # Driver processes end themselves when this one is gone; the run can be taken up again with --folder.
            os._exit(_INTERRUPTED)
        if self._asks:
            self.asking = True
            self._screen.note(
                "e: end the run   r: stop it, to be taken up again   c: go on   (Enter: end; Ctrl-C again: at once)"
            )
        else:
            self._stop("end")

    def _stop(self, how: Literal["end", "resume"]) -> None:
        self.stop = how
        self._screen.note("stopping ... (Ctrl-C again to stop at once)")
