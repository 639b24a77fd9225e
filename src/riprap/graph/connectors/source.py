"""The classes that users derive sources of their own from, and what goes between such a source and the runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.graph.connectors.checks import RETRY_FOR, OnBadRecord
from riprap.graph.connectors.promise import Promise

# Where to go on: anything JSON can hold, None for the beginning.
Cursor = str | int | dict[str, str | int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that cannot be read. ``size`` is its full length, of which ``record`` may be the beginning."""

    position: Mapping[str, int | str]
    reason: str
    record: bytes
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Consecutive records: the good ones as a table in the source's schema, the bad ones, and where to go on."""

    table: pa.Table
    cursor: Cursor
    bad: Sequence[BadRecord] = ()


class Fetcher:
    """Reads from a system outside, on and on, in a thread of the driver. Write at least :meth:`fetch`.

    Raise :class:`riprap.ConnectionLost` when the system cannot be reached: it is asked again after a while, after the
    newest cursor.
    """

    def fetch(self, after: Cursor) -> Iterator[Fetched | None]:
        """Yield what there is after a cursor, and end when there is no more for now.

        None means that the connection stands and more is to be waited for.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the connection. It may be opened again, by the next call of ``fetch``."""


class Source(ABC):
    """A source of your own, for ``app.source(name, MySource(...))``. Write :meth:`fetcher`, and give it a ``schema``.

    >>> import pyarrow as pa
    >>> class Countdown(rr.Source):
    ...     schema = pa.schema([("n", pa.int64())])
    ...     def fetcher(self, tell):
    ...         return FromTen()
    >>> class FromTen(rr.Fetcher):
    ...     def fetch(self, after):
    ...         for n in range(10 if after is None else after - 1, -1, -1):
    ...             yield rr.Fetched(table=pa.table({"n": [n]}), cursor=n)

    It describes where rows come from and holds nothing open: it is part of the graph, and is pickled with it. What is
    fetched is first kept in the run's folder with its cursor, then numbered: a run that is taken up again fetches what
    comes after the newest cursor it has. ``PROMISE`` says whether that can be had, ``on_bad_record`` what becomes of
    records that cannot be read, ``retry_for`` for how long a lost connection is tried again, and ``str()`` what people
    see of it.
    """

    __slots__ = ()

    PROMISE: ClassVar[Promise] = Promise(word="replays")
    schema: pa.Schema
    retry_for: Duration = RETRY_FOR
    on_bad_record: OnBadRecord = "quarantine"

    @abstractmethod
    def fetcher(self, tell: Callable[..., None]) -> Fetcher:
        """Make what fetches; it connects when it is asked for something.

        ``tell("warning", what=..., message=...)`` is an event of the run.
        """

    @property
    def patience(self) -> float:
        """For how many seconds a lost connection is tried again."""
        return seconds(f"{type(self).__name__}.retry_for", self.retry_for)

    def __str__(self) -> str:
        return type(self).__name__
