"""How the supervisor and a driver process talk: a line of JSON a message, over a pipe each way.

    supervisor -> driver                                          driver -> supervisor
    open    folder, master, config, paths, log, warm              ready       master, java, cores
    start   process, elements, resume, and how to run             not started error, message
    retry   element                                               started     element, restore, lost, batch
    stop    finish what is under way; or, resume, leave it        failed      element, error, message, batch, final
    halt    between two batches, at once                          caught up   element
                                                                  beat        elements: {name: [batch, busy]}
                                                                  ended       element

A driver whose pipe is closed has lost its supervisor, and ends itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Link:
    """One end of the two pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self._outgoing = outgoing
        self._rest = b""
        # Beats come from a thread of their own.
        self._writing = threading.Lock()

    def send(self, what: str, **details: Any) -> None:
        """Send a message; one that nobody is there to read is dropped."""
        line = (json.dumps({"say": what, **details}) + "\n").encode()
        with self._writing, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._outgoing, line) :]

    def receive(self) -> list[Message] | None:
        """Wait for messages, and return them; None when the other end is closed."""
        data = os.read(self.incoming, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def messages(self) -> Iterator[Message]:
        """Yield messages as they come, until the other end is closed."""
        while (found := self.receive()) is not None:
            yield from found

    def close(self) -> None:
        """Close this end."""
        for number in (self.incoming, self._outgoing):
            with contextlib.suppress(OSError):
                os.close(number)
