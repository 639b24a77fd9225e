"""Lengths of time as people write them, read in one place."""

from __future__ import annotations

import re
from datetime import timedelta

from riprap.errors import GraphError

Duration = str | float | timedelta

_SPELLINGS = {
    0.000_001: ("us", "microsecond", "microseconds"),
    0.001: ("ms", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86_400.0: ("d", "day", "days"),
    604_800.0: ("w", "week", "weeks"),
}
_SECONDS = {name: length for length, names in _SPELLINGS.items() for name in names}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
UNITS = (
    "Units: us, ms, s, m, h, d, w, or in full, such as seconds; a number alone is of seconds; or a timedelta"
)


def seconds(what: str, duration: Duration, *, or_none: bool = False) -> float:
    """Turn a text, a number of seconds or a timedelta into seconds; with ``or_none`` there may be none of them.

    >>> seconds("every=", "250ms"), seconds("every=", "1 minute"), seconds("every=", "1h 30m")
    (0.25, 60.0, 5400.0)
    >>> seconds("every=", timedelta(days=1)), seconds("every=", 2)
    (86400.0, 2.0)
    """
    value = _value(duration)
    if value is None or not 0 <= value < float("inf") or (value == 0 and not or_none):
        raise GraphError(f"{what} takes a time such as '10s', '250ms' or '2m', got {duration!r}. {UNITS}")
    return value


def _value(duration: object) -> float | None:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        return float(duration)
    return _of_text(duration) if isinstance(duration, str) else None


def _of_text(text: str) -> float | None:
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    lengths = [_SECONDS.get(part[2].lower()) for part in parts]
    if None in lengths:
        return None
    return sum(float(part[1]) * (length or 0.0) for part, length in zip(parts, lengths, strict=True))
