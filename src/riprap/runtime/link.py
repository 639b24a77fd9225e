"""How two processes of a run talk: a line of JSON a message, over a pipe each way."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Link:
    """One end of the two pipes. With ``patience``, a message that the other end does not take within so many seconds is
    a TimeoutError."""

    def __init__(self, incoming: int, outgoing: int, patience: float | None = None) -> None:
        self.incoming = incoming
        self._outgoing = outgoing
        self._patience = patience
        self._rest = b""
        # Beats come from a thread of their own.
        self._writing = threading.Lock()
        if patience is not None:
            os.set_blocking(outgoing, False)

    def send(self, what: str, **details: Any) -> None:
        """Send a message; one that nobody is there to read is dropped."""
        line = (json.dumps({"say": what, **details}) + "\n").encode()
        with self._writing, contextlib.suppress(BrokenPipeError):
            while line:
                try:
                    line = line[os.write(self._outgoing, line) :]
                except BlockingIOError:
                    self._await_room()

    def _await_room(self) -> None:
        assert self._patience is not None
        poll = select.poll()
        poll.register(self._outgoing, select.POLLOUT)
        if not poll.poll(self._patience * 1000):
            raise TimeoutError(f"nothing was read for {self._patience:g} s")

    def receive(self) -> list[Message] | None:
        """Wait for messages, and return them; None when the other end is closed."""
        data = os.read(self.incoming, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def messages(self) -> Iterator[Message]:
        """Yield messages as they come, until the other end is closed."""
        while (messages := self.receive()) is not None:
            yield from messages

    @property
    def hung_up(self) -> bool:
        """Whether the other end is closed, though there may be messages from it that are still to be read."""
        poll = select.poll()
        poll.register(self.incoming, 0)
        return bool(poll.poll(0))

    def close_outgoing(self) -> None:
        """Say that there is no more to say: the other end's messages come to an end."""
        with self._writing:
            if self._outgoing >= 0:
                os.close(self._outgoing)
            self._outgoing = -1

    def close(self) -> None:
        """Close this end."""
        for number in (self.incoming, self._outgoing):
            with contextlib.suppress(OSError):
                os.close(number)


def search_path() -> list[str]:
    """Return where this process looks for modules, as absolute paths."""
    return [path or os.getcwd() for path in sys.path]


def environment_with(paths: list[str]) -> dict[str, str]:
    """Return an environment in which another interpreter of this installation looks there too."""
    # What any interpreter of this installation finds by itself is left out.
    roots = tuple({os.path.realpath(p) + os.sep for p in (sys.prefix, sys.base_prefix)})
    own = [path for path in paths if not (os.path.realpath(path) + os.sep).startswith(roots)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(own)}
