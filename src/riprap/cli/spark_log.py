"""Keep what the JVM prints off the terminal: it goes to a file, ``spark.log`` of the run's folder.

The JVM greets, warns about its modules, and reports its log level before any log setting can reach it. It
also inherits the file descriptors of the process that starts it. So these point to the file while Spark
starts; the JVM keeps them, and this process takes its own back.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from riprap.errors import RiprapError, RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riprap.graph.graph import Graph

NAME = "spark.log"
_TAIL_LINES = 12


class SparkLog:
    """A file for the JVM's output. When Spark starts there is no run folder yet, so it moves there later."""

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self._waits = waits

    @classmethod
    def waiting_in(cls, folder: Path) -> SparkLog:
        """Return a log that waits in a folder, under a name of its own, for a run's folder to move to."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder / f".spark-{uuid.uuid4().hex[:6]}.log", waits=True)

    def move_to(self, folder: Path) -> None:
        """Move a log that waits to a run's folder; the JVM goes on writing to it."""
        if self._waits:
            self.path, self._waits = self.path.rename(folder / NAME), False

    def drop(self) -> None:
        """Remove a log that still waits: there is no run it belongs to."""
        if self._waits:
            self.path.unlink(missing_ok=True)

    def tail(self) -> str:
        """Return its last lines."""
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


@contextlib.contextmanager
def spark_session(master: str | None, log: SparkLog, graph: Graph) -> Iterator[SparkSession]:
    """Start a Spark session for an application, whose JVM writes to ``log``, and stop it in the end."""
    from riprap.runtime.kafka import session_config
    from riprap.runtime.session import make_session

    config = session_config(graph)

    with contextlib.ExitStack() as stack:
        stack.callback(log.drop)
        try:
            with _output_to(log.path):
                session = make_session(master, config)
        except RiprapError:
            raise
        except Exception as error:
            raise RunError(f"Spark did not start: {error}\n{log.tail()}".rstrip()) from error
        stack.callback(session.stop)
        yield session


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
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


def _writes_to(stream: IO[str], number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError):
        return False
