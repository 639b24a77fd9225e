"""Build the functions of dates and timestamps, in UTC, which is Spark's session zone here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from riprap.expressions import moments
from riprap.expressions.casts import cast, coerce
from riprap.expressions.errors import Misuse
from riprap.expressions.strings import literal_text, need_text
from riprap.expressions.time_formats import read_format
from riprap.expressions.tree import ArrowKernel, Expression, Value, call
from riprap.expressions.types import (
    BIGINT,
    DATE,
    INT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_integral,
    is_time,
    type_name,
)

_UNITS = {
    "year": ("year", "yyyy", "yy"),
    "quarter": ("quarter",),
    "month": ("month", "mon", "mm"),
    "week": ("week",),
    "day": ("day", "dd"),
    "hour": ("hour",),
    "minute": ("minute",),
    "second": ("second",),
    "millisecond": ("millisecond",),
    "microsecond": ("microsecond",),
}


def year(arguments: Sequence[Expression]) -> Expression:
    return _part("year", pc.year, arguments[0])


def month(arguments: Sequence[Expression]) -> Expression:
    return _part("month", pc.month, arguments[0])


def day(arguments: Sequence[Expression]) -> Expression:
    return _part("day", pc.day, arguments[0])


def hour(arguments: Sequence[Expression]) -> Expression:
    return _part("hour", pc.hour, arguments[0], of_day=True)


def minute(arguments: Sequence[Expression]) -> Expression:
    return _part("minute", pc.minute, arguments[0], of_day=True)


def second(arguments: Sequence[Expression]) -> Expression:
    return _part("second", pc.second, arguments[0], of_day=True)


def date_trunc(arguments: Sequence[Expression]) -> Expression:
    """Build `date_trunc('hour', time)`: the beginning of the hour."""
    unit, argument = arguments
    wanted = literal_text("date_trunc", unit).lower()
    name = next((name for name, spellings in _UNITS.items() if wanted in spellings), None)
    if name is None:
        raise Misuse(
            f"date_trunc has no unit {wanted!r}",
            f"There are: {', '.join(each[0] for each in _UNITS.values())}",
        )
    _need_time("date_trunc", argument)
    sql = f"date_trunc({unit.sql}, {argument.sql})"
    return call(sql, TIMESTAMP, partial(_floor, unit=name), coerce(argument, TIMESTAMP))


def to_timestamp(arguments: Sequence[Expression]) -> Expression:
    """Build `to_timestamp(text)`, which is a cast, or `to_timestamp(text, 'format')`."""
    text, *rest = arguments
    sql = f"to_timestamp({', '.join(each.sql for each in arguments)})"
    if not rest:
        timestamp = cast(text, TIMESTAMP)
        return replace(timestamp, sql=sql)
    need_text("to_timestamp", (text,))
    kernel = partial(moments.by_format, pattern=read_format(literal_text("to_timestamp", rest[0])))
    return call(sql, TIMESTAMP, kernel, text, raises=True)


def since_1970(arguments: Sequence[Expression], *, name: str, micros: int) -> Expression:
    """Build `unix_seconds(time)` and the like: whole units since 1970, rounded down."""
    (argument,) = arguments
    if argument.type != TIMESTAMP:
        raise Misuse(
            f"{name} needs a timestamp, got {type_name(argument.type)}: {argument.sql}",
            "Write cast(x as timestamp)",
        )
    return call(f"{name}({argument.sql})", BIGINT, partial(_units, micros=micros), argument)


def after_1970(arguments: Sequence[Expression], *, name: str, micros: int) -> Expression:
    """Build `timestamp_seconds(number)` and the like: so many units after 1970."""
    (argument,) = arguments
    if not is_integral(argument.type):
        raise Misuse(
            f"{name} needs a whole number, got {type_name(argument.type)}: {argument.sql}",
            "Write cast(x as bigint)",
        )
    kernel = partial(_after, micros=micros)
    return call(f"{name}({argument.sql})", TIMESTAMP, kernel, coerce(argument, BIGINT), raises=micros > 1)


def _part(name: str, kernel: ArrowKernel, argument: Expression, of_day: bool = False) -> Expression:
    _need_time(name, argument)
    sql = f"{name}({argument.sql})"
    whole = coerce(argument, TIMESTAMP) if of_day and argument.type == DATE else argument
    return call(sql, INT, partial(_extract, kernel=kernel), whole)


def _extract(value: Value, *, kernel: ArrowKernel) -> Value:
    if value.type == TIMESTAMP:  # reading UTC fields needs no time zone, and looking one up is slow
        value = moments.view(value, TIMESTAMP_NTZ)
    return pc.cast(kernel(value), INT)


def _floor(value: Value, *, unit: str) -> Value:
    return moments.view(pc.floor_temporal(moments.view(value, TIMESTAMP_NTZ), unit=unit), TIMESTAMP)


def _units(value: Value, *, micros: int) -> Value:
    return moments.floor_divided(moments.view(value, BIGINT), micros)


def _after(value: Value, *, micros: int) -> Value:
    return moments.view(pc.multiply_checked(value, micros), TIMESTAMP)


def _need_time(name: str, argument: Expression) -> None:
    if not is_time(argument.type):
        raise Misuse(f"{name} needs a date or timestamp, got {type_name(argument.type)}: {argument.sql}")
