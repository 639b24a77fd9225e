"""Read dates and times from texts and numbers, and write them, as Spark's ANSI casts do in UTC.

A text is taken apart by one regular expression over all rows, and its parts are put together as numbers. Left out is
what Spark knows beyond that: zones by the name of a region, and a time without a date, which it takes for today's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.expressions.errors import KernelFailure
from riprap.expressions.time_formats import month_numbers
from riprap.expressions.tree import Value
from riprap.expressions.types import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP, TIMESTAMP_NTZ, type_name

_MONTH_NAMES, _MONTHS = (pa.array(list(each)) for each in zip(*month_numbers().items(), strict=True))

SPACES = "".join(map(chr, range(0x21))) + "\x7f"
MICROS_A_SECOND = 1_000_000
_MICROS_A_DAY = 86_400 * MICROS_A_SECOND
_MOST_SECONDS = (2**63 - 1) // MICROS_A_SECOND
_DAY = r"(?P<sign>[+-]?)(?P<year>[0-9]{4,%d})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})%s)?)?"
_DATE = r"(?s)\A" + _DAY % (7, r"(?:[ T].*)?") + r"\z"
_ZONE = (
    r"(?:Z|UTC|GMT|UT|(?:UTC|GMT|UT)?(?P<side>[+-])(?:(?P<both>[0-9]{4})|(?P<hours>[0-9]{1,2})"
    r"(?::(?P<minutes>[0-9]{1,2})(?::(?P<seconds>[0-9]{2}))?)?))"
)
_INSTANT = (
    r"\A"
    + _DAY
    % (
        6,
        r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
        rf"(?:\.(?P<fraction>[0-9]*))?(?: *{_ZONE})?)?)?)?",
    )
    + r"\z"
)


def from_text(value: Value, *, type: pa.DataType) -> Value:
    """Cast text to date, timestamp or timestamp_ntz; the latter leaves the zone out of account."""
    trimmed = pc.utf8_trim(arrayed(value), characters=SPACES)
    parts = Parts(trimmed, _DATE if type == DATE else _INSTANT)
    numbers = parts.days() if type == DATE else parts.micros(offset=type == TIMESTAMP)
    return _like(value, _checked(parts, numbers, type))


def moments_in(texts: pa.Array, *, type: pa.DataType) -> pa.Array:
    """Read timestamps as the cast does, null where a text is none."""
    parts = Parts(pc.utf8_trim(texts, characters=SPACES), _INSTANT)
    numbers = parts.micros(offset=type == TIMESTAMP)
    return pa.array(numbers, BIGINT, mask=~(parts.fits & parts.present)).view(type)


def by_format(value: Value, *, pattern: str) -> Value:
    """Read a timestamp from text of one format, given as a regular expression with a group for each field."""
    parts = Parts(arrayed(value), pattern)
    return _like(value, _checked(parts, parts.micros(offset=True), TIMESTAMP))


def to_text(value: Value) -> Value:
    """Write a timestamp as Java does: without zeros at the end of the fraction."""
    plain = value.cast(TIMESTAMP_NTZ) if isinstance(value, pa.Scalar) else value.view(TIMESTAMP_NTZ)
    text = pc.replace_substring_regex(pc.cast(plain, STRING), r"\.0+\z", "")
    return signed_years(pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+\z", r"\1"), pc.year(plain))


def signed_years(text: Value, year: Value) -> Value:
    """Put a sign before years beyond 9999, as Java does."""
    return pc.if_else(pc.greater(year, 9999), pc.binary_join_element_wise("+", text, ""), text)


def from_seconds(value: Value) -> Value:
    """Cast whole seconds to timestamp; as in Java, the first and last moments stand for what lies beyond."""
    seconds = pc.cast(value, BIGINT)
    within = pc.min_element_wise(
        pc.max_element_wise(seconds, -_MOST_SECONDS, skip_nulls=False), _MOST_SECONDS, skip_nulls=False
    )
    micros = pc.multiply(within, MICROS_A_SECOND)
    micros = pc.if_else(pc.greater(seconds, _MOST_SECONDS), 2**63 - 1, micros)
    return view(pc.if_else(pc.less(seconds, -_MOST_SECONDS), -(2**63), micros), TIMESTAMP)


def to_seconds(value: Value) -> Value:
    """Return whole seconds since 1970, rounded down."""
    return floor_divided(view(value, BIGINT), MICROS_A_SECOND)


def to_fraction(value: Value, *, type: pa.DataType) -> Value:
    """Return seconds since 1970 with their fraction."""
    return pc.cast(pc.divide(pc.cast(view(value, BIGINT), DOUBLE, safe=False), 1e6), type, safe=False)


def floor_divided(value: Value, unit: int) -> Value:
    behind = pc.cast(pc.less(pc.subtract(value, pc.multiply(pc.divide(value, unit), unit)), 0), BIGINT)
    return pc.subtract(pc.divide(value, unit), behind)


def view(value: Value, type: pa.DataType) -> Value:
    """Take the same bits for another type."""
    return value.cast(type) if isinstance(value, pa.Scalar) else value.view(type)


def arrayed(value: Value) -> pa.Array:
    return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value


def _like(value: Value, results: pa.Array) -> Value:
    return results[0] if isinstance(value, pa.Scalar) else results


class Parts:
    """The fields of texts as numbers, and which texts have all of them within their limits."""

    def __init__(self, texts: pa.Array, pattern: str) -> None:
        parts = pc.extract_regex(texts, pattern=pattern)
        self.present = np.asarray(pc.is_valid(texts))
        self.fits = np.asarray(pc.is_valid(parts)).copy()
        self.fields = {field.name: pc.struct_field(parts, field.name) for field in parts.type}
        if "name" in self.fields:
            first = pc.ascii_upper(pc.utf8_slice_codeunits(self.fields["name"], 0, 3))
            self.fields["month"] = _MONTHS.take(pc.index_in(first, value_set=_MONTH_NAMES))

    def micros(self, *, offset: bool) -> Ints:
        """Return microseconds since 1970, where the texts fit."""
        days = self.days()
        self._within(np.abs(days), 0, 2**63 // _MICROS_A_DAY - 1)
        away = self._offset()
        seconds = self._time() - (away if offset else 0)
        whole: Ints = np.where(self.fits, days, 0) * 86_400 + seconds
        return whole * MICROS_A_SECOND + self._fraction()

    def days(self) -> Ints:
        """Return days since 1970, where the texts fit."""
        year = self._number("year", 1970)
        if "sign" in self.fields:
            year = np.where(self._is("sign", "-"), -year, year)
        month = self._within(self._number("month", 1), 1, 12)
        first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
        days = first.astype("datetime64[D]").astype(np.int64)
        length = (first + 1).astype("datetime64[D]").astype(np.int64) - days
        day = self._number("day", 1)
        self.fits &= (day >= 1) & (day <= length)
        return days + day - 1

    def _time(self) -> Ints:
        hour = self._within(self._number("hour", 0), 0, 23)
        if "half" in self.fields:
            clock = self._within(self._number("clock", 12), 1, 12)
            hour = clock % 12 + 12 * self._is("half", "PM")
        minute = self._within(self._number("minute", 0), 0, 59)
        second = self._within(self._number("second", 0), 0, 59)
        return hour * 3600 + minute * 60 + second

    def _offset(self) -> Ints:
        if "side" not in self.fields:
            return np.zeros(len(self.fits), np.int64)
        both = self._number("both", 0)
        hours = self._number("hours", 0) + both // 100
        minutes = self._within(self._number("minutes", 0) + both % 100, 0, 59)
        seconds = self._within(self._number("seconds", 0), 0, 59)
        size = self._within(hours * 3600 + minutes * 60 + seconds, 0, 18 * 3600)
        return np.where(self._is("side", "-"), -size, size)

    def _fraction(self) -> Ints:
        if "fraction" not in self.fields:
            return np.zeros(len(self.fits), np.int64)
        digits = pc.utf8_slice_codeunits(self.fields["fraction"], 0, 6)
        self.fields["micros"] = pc.utf8_rpad(digits, 6, "0")
        return self._number("micros", 0)

    def _number(self, name: str, default: int) -> Ints:
        if name not in self.fields:
            return np.full(len(self.fits), default, np.int64)
        text = pc.fill_null(self.fields[name], "")
        return np.asarray(pc.cast(pc.if_else(pc.equal(text, ""), str(default), text), BIGINT))

    def _is(self, name: str, text: str) -> npt.NDArray[np.bool_]:
        equal: Any = pc.equal(pc.ascii_upper(pc.fill_null(self.fields[name], "")), text)
        return np.asarray(equal)

    def _within(self, numbers: Ints, low: int, high: int) -> Ints:
        inside = (numbers >= low) & (numbers <= high)
        self.fits &= inside
        return np.where(inside, numbers, low)


def _checked(parts: Parts, numbers: Ints, type: pa.DataType) -> pa.Array:
    if not (parts.fits | ~parts.present).all():
        raise KernelFailure(f"not a {type_name(type)}")
    if type == DATE:
        return pa.array(numbers, pa.int32(), mask=~parts.present).view(DATE)
    return pa.array(numbers, BIGINT, mask=~parts.present).view(type)
