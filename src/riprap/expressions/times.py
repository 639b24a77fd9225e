"""Build the functions that take a date or timestamp apart, in UTC, which is Spark's session zone here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.casts import coerce
from riprap.expressions.errors import Misuse
from riprap.expressions.tree import Expression, Kernel, Value, call
from riprap.expressions.types import DATE, INT, TIMESTAMP, TIMESTAMP_NTZ, is_time, type_name


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


def _part(name: str, kernel: Kernel, argument: Expression, of_day: bool = False) -> Expression:
    if not is_time(argument.type):
        raise Misuse(f"{name} needs a date or timestamp, got {type_name(argument.type)}: {argument.sql}")
    sql = f"{name}({argument.sql})"
    whole = coerce(argument, TIMESTAMP) if of_day and argument.type == DATE else argument
    return call(sql, INT, partial(_extract, kernel=kernel), whole)


def _extract(value: Value, *, kernel: Kernel) -> Value:
    if value.type == TIMESTAMP:  # reading UTC fields needs no time zone, and looking one up is slow
        value = value.cast(TIMESTAMP_NTZ) if isinstance(value, pa.Scalar) else value.view(TIMESTAMP_NTZ)
    return pc.cast(kernel(value), INT)
