"""Windows and output rules, as values.

Every window of a key is a run of its consecutive tuples. Time is data: it is read off a column (``on=``), where a tuple
that is older than the newest one of its key counts as just as old as that, or it is told by the ticks of a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from riprap.durations import Duration, seconds
from riprap.errors import GraphError

WindowShape = Literal["sliding", "tumbling"]
_ALL_OF_TIME = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which of a key's tuples belong together. Exactly one of the four measures is set; time is in microseconds.

    *Sliding*: the newest tuples, up to a number, an age, or a difference in a column. *Tumbling*: tuples are collected
    until there are so many, until time passes a multiple of the period, until a column differs by more than ``delta``
    from the first tuple's, or until a punctuation; then the window closes and the next one is empty.
    """

    shape: WindowShape
    tuples: int | None = None
    time: int | None = None
    delta: float | None = None
    punctuation: bool = False
    on: str | None = None

    @property
    def empty(self) -> bool:
        """Whether it never holds a tuple."""
        return self.tuples == 0 or self.time == 0

    @property
    def counted(self) -> bool:
        """Whether it is the newest so many tuples."""
        return self.shape == "sliding" and self.tuples is not None

    @property
    def ticking(self) -> bool:
        """Whether a clock tells its time."""
        return self.time is not None and self.on is None

    def __str__(self) -> str:
        if self.punctuation:
            return f"{self.shape}(punctuation)"
        if self.tuples is not None:
            return f"{self.shape}({self.tuples} tuples)"
        on = f" of {self.on}" if self.on else ""
        return (
            f"{self.shape}({span(self.time)}{on})"
            if self.time is not None
            else f"{self.shape}({self.delta}{on})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """An output each time ``tuples`` tuples of a key have arrived, or time has passed a multiple of ``time``."""

    tuples: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        return f"every {self.tuples} tuples" if self.tuples is not None else f"every {span(self.time or 0)}"


@dataclass(frozen=True, slots=True)
class OnClose:
    """An output each time a tumbling window closes."""

    def __str__(self) -> str:
        return "on close"


Emit = Every | OnClose


def sliding(
    *,
    tuples: int | None = None,
    time: Duration | None = None,
    delta: float | None = None,
    on: str | None = None,
) -> Window:
    """Describe a window of the newest tuples of each key.

    >>> rr.sliding(tuples=5)
    Window(shape='sliding', tuples=5, time=None, delta=None, punctuation=False, on=None)
    >>> print(rr.sliding(time="15s", on="ts"))
    sliding(15s of ts)
    """
    return _window("sliding", tuples, time, delta, on, punctuation=False)


def tumbling(
    *,
    tuples: int | None = None,
    time: Duration | None = None,
    delta: float | None = None,
    on: str | None = None,
    punctuation: bool = False,
) -> Window:
    """Describe windows that follow one another, none sharing a tuple.

    >>> print(rr.tumbling(tuples=100), rr.tumbling(delta=10, on="temperature"))
    tumbling(100 tuples) tumbling(10 of temperature)
    >>> print(rr.tumbling(punctuation=True))
    tumbling(punctuation)
    """
    return _window("tumbling", tuples, time, delta, on, punctuation=punctuation)


def every(*, tuples: int | None = None, time: Duration | None = None) -> Every:
    """Describe an output every so many tuples of a key, or every so often.

    >>> rr.every(tuples=1)
    Every(tuples=1, time=None)
    >>> print(rr.every(time="2s"))
    every 2s
    """
    if (tuples is None) == (time is None):
        raise GraphError("every(...) takes tuples= or time=, one of them")
    if tuples is not None:
        return Every(tuples=_whole("every(tuples=...)", tuples, least=1))
    return Every(time=microseconds("every(time=...)", time or 0))


def on_close() -> OnClose:
    """Describe an output when a tumbling window closes.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> window = rr.tumbling(tuples=100)
    >>> totals = app.aggregate("totals", words, window=window, select="count(*) as n", emit=rr.on_close())
    """
    return OnClose()


def microseconds(what: str, duration: Duration) -> int:
    """Turn a duration such as ``"15s"`` into whole microseconds; one longer than all of time is as long as that."""
    return max(1, round(min(seconds(what, duration) * 1_000_000, _ALL_OF_TIME)))


def span(time: int | None) -> str:
    """Write microseconds as people do, each number in a way of its own.

    >>> span(15_000_000), span(250_000), span(1_234_567_000_001)
    ('15s', '250ms', '1234567.000001s')
    """
    unit, name, digits = (1_000_000, "s", 6) if (time or 0) >= 1_000_000 else (1000, "ms", 3)
    whole, rest = divmod(time or 0, unit)
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") + name


def _window(
    shape: WindowShape,
    tuples: int | None,
    time: Duration | None,
    delta: float | None,
    on: str | None,
    *,
    punctuation: bool,
) -> Window:
    given = [n for n, v in (("tuples", tuples), ("time", time), ("delta", delta)) if v is not None]
    given += ["punctuation"] if punctuation else []
    what = f"{shape}(...)"
    if len(given) != 1:
        measures = "tuples=, time= or delta=" + (" or punctuation=True" if shape == "tumbling" else "")
        raise GraphError(f"{what} takes one of {measures}, got {' and '.join(given) or 'none'}")
    if on is not None and not isinstance(on, str):
        raise GraphError(f"{what}: on= names a column, got {on!r}")
    if tuples is not None:
        if on is not None:
            raise GraphError(f"{what}: on= goes with time= or delta=, not with tuples=")
        least = 0 if shape == "sliding" else 1
        return Window(shape=shape, tuples=_whole(f"{shape}(tuples=...)", tuples, least=least))
    if time is not None:
        if shape == "sliding" and time == 0 and not isinstance(time, bool):
            return Window(shape=shape, time=0, on=on)
        return Window(shape=shape, time=microseconds(f"{shape}(time=...)", time), on=on)
    if delta is not None:
        if on is None:
            raise GraphError(f"{what}: delta= needs on=, the column whose change it measures")
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta < float("inf"):
            raise GraphError(f"{shape}(delta=...) takes a number of at least 0, got {delta!r}")
        return Window(shape=shape, delta=delta, on=on)
    return Window(shape=shape, punctuation=True)


def _whole(what: str, value: object, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{what} takes a whole number of at least {least}, got {value!r}")
    return value
