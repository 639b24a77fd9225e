"""How an application is to be run: one value, which travels whole to whoever needs a part of it."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from riprap.durations import Duration, seconds
from riprap.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a source a batch takes no more at once, if nobody says otherwise.
MOST_ROWS = 500_000
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Self = TypeVar("_Self")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an application is to be run.

    :param spark: a session to run in; without it one is started
    :param master: where to start it, such as "local[2]" or "spark://host:7077" (this machine, all cores)
    :param config: its Spark settings
    :param trigger: how often to look for input, such as "1s", until stopped; without it the run ends when the
        input there is has been used up
    :param batch_rows: tuples a batch, at most; "auto": as many as are waiting, up to what takes a fraction of a second
    :param buckets: into how many parts keys are dealt, fixed for the life of the state (by the cores there are)
    :param parallelism: tasks a batch (the cores there are)
    :param resident: whether tasks stay from batch to batch, which takes a slot of Spark's for each (where there are
        enough)
    :param folder: an earlier run to take up where it stopped
    :param runs: where a new run gets a folder of its own
    :param pages: where state pages live (shared memory)
    :param page_limit: how many bytes they may take
    :param store: where checkpoints go, a folder or an URL (the run's folder)
    :param ignore_state: operators whose state may go when a run is taken up, because they have changed
    :param fresh: let all state go
    :param at_end: ``"flush"``: at the end of finite input, put out what windows and queues still hold;
        a run that is taken up goes on as it began
    :param notes: what else one would want to know to repeat the run, for its folder
    :param clock: what tells the time
    """

    spark: SparkSession | None = None
    master: str | None = None
    config: Mapping[str, str] | None = None
    trigger: Duration | None = None
    batch_rows: int | Literal["auto"] = "auto"
    buckets: int | None = None
    parallelism: int | None = None
    resident: bool | None = None
    folder: str | Path | None = None
    runs: str | Path = "runs"
    pages: str | Path | None = None
    page_limit: int | None = None
    store: str | None = None
    ignore_state: Collection[str] = ()
    fresh: bool = False
    at_end: Literal["flush"] | None = None
    notes: Mapping[str, str | int | float] | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if self.spark is not None and (self.master is not None or self.config is not None):
            raise GraphError("give spark= or master= and config=, not both")
        rows: Any = self.batch_rows
        if rows != "auto" and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
            raise GraphError(f"batch_rows= takes a whole number of at least 1, or 'auto', got {rows!r}")
        if self.trigger is not None:
            seconds("trigger=", self.trigger)
        if self.at_end not in (None, "flush"):
            raise GraphError(
                f"at_end= takes 'flush', got {self.at_end!r}. Without it open windows put out nothing"
            )
        if self.flush and self.trigger is not None:
            raise GraphError("at_end= is for runs whose input ends: leave out trigger=, or at_end=")

    @property
    def interval(self) -> float | None:
        """Seconds from one look for input to the next; None if the run ends with its input."""
        return None if self.trigger is None else seconds("trigger=", self.trigger)

    @property
    def flush(self) -> bool:
        """Whether what is held is put out at the end of the input."""
        return self.at_end == "flush"

    @property
    def most_rows(self) -> int:
        """How many tuples of a source a batch has at most."""
        return MOST_ROWS if self.batch_rows == "auto" else self.batch_rows


def by_name(
    options: Callable[_Given, _Made],
) -> Callable[[Callable[[_Self, _Made], _Result]], Callable[Concatenate[_Self, _Given], _Result]]:
    """Let a method that takes options as one value be called with each by its name.

    They are listed once, where the value is made: its signature and its ``:param`` lines become the method's.
    """

    def change(method: Callable[[_Self, _Made], _Result]) -> Callable[Concatenate[_Self, _Given], _Result]:
        @functools.wraps(method)
        def called(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            return method(self, options(*args, **kwargs))

        own, taken = inspect.signature(method), inspect.signature(options)
        first = next(iter(own.parameters.values()))
        called.__signature__ = own.replace(parameters=[first, *taken.parameters.values()])  # type: ignore[attr-defined]
        called.__doc__ = f"{method.__doc__}\n\n{(options.__doc__ or '').partition(chr(10) * 2)[2]}"
        return called

    return change
