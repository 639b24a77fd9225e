"""What every sink says of itself, and the classes that users derive sinks of their own from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import RunError
from riprap.graph.connectors.checks import RETRY_FOR
from riprap.graph.connectors.promise import Promise

if TYPE_CHECKING:
    from riprap.graph.connectors.file_sinks import FileSink

Opened = TypeVar("Opened", covariant=True)


class Target:
    """Writes the batches of a sink, in order, in the driver. Write at least :meth:`write`.

    Calls come from several threads, but one at a time. Raise :class:`riprap.ConnectionLost` when the system cannot be
    reached: the call is made again after a while, and a ``write`` that is made again is told so.
    """

    def open(self, *, resume: bool) -> None:
        """Make ready. A run that is not taken up again may remove what earlier ones wrote, if the user said so."""

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        """Write a batch; ``again`` if all or some of it may have been written before."""
        raise NotImplementedError

    def read(self) -> pa.Table:
        """Return the rows of this run, where they can be read back: for ``run.table(name)``."""
        raise RunError("its rows cannot be read back")

    def close(self) -> None:
        """Let go of the connection. It may be opened again, by the next call that needs it."""


class SinkOpening(Protocol[Opened]):
    """What a connector is opened with: each method makes, of what it gives, what publishes a sink's batches."""

    name: str
    session: Any

    def by_target(self, make: Callable[[pa.Schema, str], Target], patience: float) -> Opened:
        """Write to a target, made for a schema and a run; try a lost connection again for so many seconds."""

    def by_calls(self, function: Callable[[int, pa.Table], None]) -> Opened:
        """Call a function with the number and the rows of each batch."""

    def by_files(self, connector: FileSink) -> Opened:
        """Write a folder of files."""


class SinkConnector(ABC):
    """Where a stream goes, as a value."""

    __slots__ = ()

    PROMISE: ClassVar[Promise]

    def holds(self, kind: pa.DataType) -> bool:
        """Say whether columns of a type can be written."""
        return True

    @abstractmethod
    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        """Have made what publishes the batches of a sink."""


class Sink(SinkConnector):
    """A sink of your own, for ``app.sink(name, stream, MySink(...))``. Write :meth:`target`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class ToList(rr.Sink):
    ...     rows: list
    ...     def target(self, schema, run):
    ...         return ListTarget(self.rows)
    >>> class ListTarget(rr.Target):
    ...     def __init__(self, rows):
    ...         self.rows = rows
    ...     def write(self, batch, table, *, again):
    ...         self.rows += table.to_pylist()

    It describes where rows go and holds nothing open: it is part of the graph, and is pickled with it. ``PROMISE`` says
    what becomes of a batch that comes a second time, ``retry_for`` for how long a lost connection is tried again, and
    ``str()`` what people see of it.
    """

    __slots__ = ()

    PROMISE: ClassVar[Promise] = Promise(word="repeats", why_not="what was written cannot be taken back")
    retry_for: Duration = RETRY_FOR

    @abstractmethod
    def target(self, schema: pa.Schema, run: str) -> Target:
        """Make what writes rows of a schema; ``run`` tells them from those of other runs and sinks.

        Connect in :meth:`Target.open`, not here. Client libraries are best imported there too: an application that is
        only described needs none.
        """

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        return opening.by_target(self.target, self.patience)

    @property
    def patience(self) -> float:
        """For how many seconds a lost connection is tried again."""
        return seconds(f"{type(self).__name__}.retry_for", self.retry_for)

    def __str__(self) -> str:
        return type(self).__name__
