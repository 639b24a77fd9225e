"""Build intervals of days and shorter, and what they do with timestamps: `ts + interval 5 minutes`, `a - b`.

They exist inside of expressions only: a column is a timestamp or a number.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import moments
from riprap.expressions.casts import coerce
from riprap.expressions.errors import Misuse
from riprap.expressions.tree import Expression, Literal, Order, Value, call
from riprap.expressions.types import (
    BIGINT,
    DATE,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_integral,
    is_time,
    type_name,
)

_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]{1,6})?)\s+([a-z]+)\s*", re.IGNORECASE)
_HINT = f"Write interval 5 minutes, or interval '1 day 2 hours'; units: {', '.join(_MICROS)} (months have no length)"


def literal(text: str) -> Literal:
    """Make an interval from amounts and their units, such as `5 minutes`.

    >>> literal("1 day 90 seconds").sql
    "interval '1 00:01:30.000000' day to second"
    """
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise Misuse(f"not an interval: {text!r}", _HINT)
    micros = sum(_micros(Decimal(part[1]), part[2].lower().removesuffix("s"), text) for part in parts)
    if abs(micros) >= 2**63:
        raise Misuse(f"interval {text!r} is longer than all of time")
    seconds, rest = divmod(abs(micros), 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
    return Literal(
        sql=f"interval '{'-' if micros < 0 else ''}{days} {clock}' day to second",
        type=INTERVAL,
        columns=frozenset(),
        scalar=pa.scalar(micros, BIGINT).cast(INTERVAL),
    )


def _micros(amount: Decimal, unit: str, text: str) -> int:
    if unit not in _MICROS:
        raise Misuse(f"interval {text!r} has no unit {unit!r}", _HINT)
    if amount != int(amount) and unit != "second":
        raise Misuse(f"interval {text!r} has a part of a {unit}", "Only seconds have a fraction")
    return int(amount * _MICROS[unit])


def arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    """Build + - of timestamps and intervals, and * of an interval and a whole number."""
    sql = f"{left.operand} {operator} {right.operand}"
    types = (left.type, right.type)
    if operator == "*" and INTERVAL in types and any(is_integral(each) for each in types):
        first, second = (coerce(each, BIGINT) if is_integral(each.type) else each for each in (left, right))
        return _made(sql, INTERVAL, "*", first, second)
    if operator in "+-" and types == (INTERVAL, INTERVAL):
        return _made(sql, INTERVAL, operator, left, right)
    if operator == "+" and left.type == INTERVAL and is_time(right.type):
        return _moved(sql, "+", left, right, right.type)
    if operator in "+-" and is_time(left.type) and right.type == INTERVAL:
        return _moved(sql, operator, left, right, left.type)
    if operator == "-" and types in ((TIMESTAMP, TIMESTAMP), (TIMESTAMP_NTZ, TIMESTAMP_NTZ)):
        return _made(sql, INTERVAL, "-", left, right)
    raise Misuse(
        f"no {type_name(left.type)} {operator} {type_name(right.type)}: {sql}",
        "Intervals are added to and taken from timestamps, timestamps of one type from one another; cast dates",
    )


def negated(argument: Expression) -> Expression:
    """Build `-interval`."""
    return call(f"-{argument.operand}", INTERVAL, _negated, argument, raises=True, atomic=False)


def _moved(sql: str, operator: str, left: Expression, right: Expression, type: pa.DataType) -> Expression:
    if type == DATE:
        raise Misuse(f"a date has no time of day to move: {sql}", "Write cast(x as timestamp)")
    return _made(sql, type, operator, left, right)


def _made(sql: str, type: pa.DataType, operator: str, left: Expression, right: Expression) -> Expression:
    kernel = {"+": added, "-": subtracted, "*": multiplied}[operator]
    return call(
        sql, type, partial(kernel, type=type), left, right, order=Order.LEFT_FIRST, raises=True, atomic=False
    )


def added(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return moments.view(pc.add_checked(moments.view(left, BIGINT), moments.view(right, BIGINT)), type)


def subtracted(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return moments.view(pc.subtract_checked(moments.view(left, BIGINT), moments.view(right, BIGINT)), type)


def multiplied(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return moments.view(pc.multiply_checked(moments.view(left, BIGINT), moments.view(right, BIGINT)), type)


def _negated(value: Value) -> Value:
    return moments.view(pc.negate_checked(moments.view(value, BIGINT)), INTERVAL)
