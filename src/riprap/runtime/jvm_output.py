"""Keep what the JVM prints off the terminal: it goes to a file, ``spark.log`` of the run's folder.

The JVM greets, warns about its modules, and reports its log level before any log setting can reach it. It
also inherits the file descriptors of the process that starts it. So these point to the file while Spark
starts; the JVM keeps them, and this process takes its own back.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

LOG = "spark.log"
_TAIL_LINES = 12


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Point descriptors 1 and 2 to a file; what Python writes to stderr goes where it went before."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stack.callback(os.close, file)
        for number in (1, 2):
            copy = os.dup(number)
            stack.callback(os.close, copy)
            stack.callback(os.dup2, copy, number)
            os.dup2(file, number)
        if _writes_to(sys.stderr, 2):
            own = stack.enter_context(
                open(copy, "w", encoding=sys.stderr.encoding, buffering=1, closefd=False)
            )
            stack.enter_context(contextlib.redirect_stderr(own))
        yield


def tail(path: Path) -> str:
    """Return a log's last lines."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _writes_to(stream: IO[str], number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError):
        return False
