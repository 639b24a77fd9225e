"""Cast between types as Spark's ANSI mode does: a value that does not fit raises, or is null under try_cast.

Each cast is a kernel, and where it can fail a test that says which rows fit. Left out on purpose, because
the result depends on how Java prints: float and double to string or decimal.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import decimals, moments
from riprap.expressions.errors import KernelFailure, Misuse
from riprap.expressions.tree import ArrowKernel, Call, Expression, Literal, Value, call
from riprap.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_decimal,
    is_fractional,
    is_integral,
    is_numeric,
    is_time,
    type_name,
)

_JAVA_SPACES = "".join(map(chr, range(0x21)))
_FRACTION = (
    r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[+-]?(?i:inf|infinity)|(?i:nan)|[+-]NaN)$"
)
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]
_MICROS_A_DAY = 86_400_000_000
_SECOND_DIGITS = 12


def cast(argument: Expression, type: pa.DataType, *, safe: bool = False) -> Expression:
    """Build `cast(argument as type)`, or `try_cast` where `safe`."""
    name = "try_cast" if safe else "cast"
    sql = f"{name}({argument.sql} as {type_name(type)})"
    if argument.type == NULL:
        return Literal(sql=sql, type=type, columns=argument.columns, scalar=pa.scalar(None, type))
    if argument.type == type:
        return call(sql, type, _same, argument)
    kernel = _kernel(argument.type, type)
    if kernel is None:
        raise Misuse(
            f"cannot cast {type_name(argument.type)} to {type_name(type)}: {sql}", _hint(argument.type, type)
        )
    raises = _may_fail(argument.type, type)
    if safe and raises:
        return call(sql, type, partial(_try, kernel=kernel, type=type), argument)
    return call(sql, type, kernel, argument, raises=raises)


def coerce(argument: Expression, type: pa.DataType) -> Expression:
    """Cast without a trace in the SQL text, where Spark inserts the same cast by itself."""
    if argument.type == type:
        return argument
    done = cast(argument, type)
    if isinstance(argument, Literal):
        value = done.value({}, 1)
        return Literal(
            sql=argument.sql, type=type, columns=argument.columns, atomic=argument.atomic, scalar=value
        )
    assert isinstance(done, Call)
    return replace(done, sql=argument.sql, atomic=argument.atomic)


def _kernel(source: pa.DataType, target: pa.DataType) -> ArrowKernel | None:
    if BINARY in (source, target):
        return None
    if is_numeric(source) and is_numeric(target):
        return _numeric(source, target)
    if source == BOOLEAN and is_numeric(target):
        return (
            partial(decimals.to_decimal, type=target)
            if is_decimal(target)
            else partial(pc.cast, target_type=target)
        )
    if is_numeric(source) and target == BOOLEAN:
        return _not_zero
    if is_time(source) and is_time(target):
        return partial(_between_times, type=target)
    if target == STRING and (is_integral(source) or source == BOOLEAN):
        return partial(pc.cast, target_type=STRING)
    if target == STRING and is_decimal(source):
        return decimals.to_string
    if target == STRING and source == DATE:
        return _date_to_string
    if target == STRING and source in (TIMESTAMP, TIMESTAMP_NTZ):
        return moments.to_text
    if source == STRING and is_time(target):
        return partial(moments.from_text, type=target)
    if source == STRING and is_decimal(target):
        return partial(decimals.from_string, type=target)
    if source == STRING and is_integral(target):
        return partial(_string_to_integer, type=target)
    if source == STRING and is_fractional(target):
        return partial(_string_to_fraction, type=target)
    if source == STRING and target == BOOLEAN:
        return _string_to_boolean
    if source == TIMESTAMP and is_numeric(target):
        return _from_timestamp(target)
    if is_numeric(source) and target == TIMESTAMP:
        return _to_timestamp(source)
    return None


def _from_timestamp(target: pa.DataType) -> ArrowKernel | None:
    if is_fractional(target):
        return partial(moments.to_fraction, type=target)
    if is_decimal(target):
        return None
    return moments.to_seconds if target == BIGINT else partial(_seconds, type=target)


def _to_timestamp(source: pa.DataType) -> ArrowKernel | None:
    """Beyond twelve digits of seconds Spark silently wraps a decimal around."""
    if is_integral(source):
        return moments.from_seconds
    if is_fractional(source):
        return _fraction_to_timestamp
    return _decimal_to_timestamp if source.precision - source.scale <= _SECOND_DIGITS else None


def _numeric(source: pa.DataType, target: pa.DataType) -> ArrowKernel | None:
    if is_decimal(target):
        return None if is_fractional(source) else partial(decimals.to_decimal, type=target)
    if is_decimal(source):
        if target == DOUBLE:
            return decimals.to_double
        return partial(_decimal_to_integer, type=target) if is_integral(target) else decimals.to_float
    if is_fractional(source) and is_integral(target):
        return partial(_fraction_to_integer, type=target)
    if is_integral(target):
        return partial(pc.cast, target_type=target)
    return partial(pc.cast, target_type=target, safe=False)


def _may_fail(source: pa.DataType, target: pa.DataType) -> bool:
    if (is_integral(source) and target == TIMESTAMP) or (source == TIMESTAMP and target == BIGINT):
        return False
    if target in (STRING, DOUBLE, FLOAT, BOOLEAN):
        return bool(source == STRING)
    if is_integral(source) and is_integral(target):
        return bool(source.bit_width > target.bit_width)
    return bool(source != BOOLEAN) or not is_integral(target)


def _try(value: Value, *, kernel: ArrowKernel, type: pa.DataType) -> Value:
    """Apply a cast and make the rows where it fails null, by halving the batch around them."""
    try:
        return kernel(value)
    except (KernelFailure, pa.ArrowInvalid):
        if isinstance(value, pa.Scalar) or len(value) == 1:
            null = pa.scalar(None, type)
            return null if isinstance(value, pa.Scalar) else pa.repeat(null, 1)
    middle = len(value) // 2
    halves = (_try(part, kernel=kernel, type=type) for part in (value[:middle], value[middle:]))
    return pa.concat_arrays(halves)


def _same(value: Value) -> Value:
    return value


def _not_zero(value: Value) -> Value:
    return pc.not_equal(value, pa.scalar(Decimal(0) if is_decimal(value.type) else 0, value.type))


def _fraction_to_integer(value: Value, *, type: pa.DataType) -> Value:
    """Drop the fraction; raise for NaN and out of range. As in Java, 2^63 becomes the largest bigint."""
    limit = 2.0 ** (type.bit_width - 1)
    whole = pc.trunc(pc.cast(value, DOUBLE))
    highest = pc.less_equal(whole, limit) if type == BIGINT else pc.less(whole, limit)
    fits = pc.and_(highest, pc.greater_equal(whole, -limit))
    if pc.all(fits).as_py() is False:
        raise KernelFailure(f"{type_name(type)} overflow")
    result = pc.cast(pc.if_else(pc.less(whole, limit), whole, 0.0), type)
    if type != BIGINT:
        return result
    return pc.if_else(pc.less(whole, limit), result, pa.scalar(2**63 - 1, BIGINT))


def _decimal_to_integer(value: Value, *, type: pa.DataType) -> Value:
    return pc.cast(pc.trunc(decimals.with_room(value)), type)


def _between_times(value: Value, *, type: pa.DataType) -> Value:
    if value.type == DATE:
        days = pc.cast(moments.view(value, pa.int32()), BIGINT)
        return moments.view(pc.multiply_checked(days, _MICROS_A_DAY), type)
    if type == DATE:
        days = moments.floor_divided(moments.view(value, BIGINT), _MICROS_A_DAY)
        return moments.view(pc.cast(days, pa.int32()), DATE)
    return moments.view(value, type)


def _seconds(value: Value, *, type: pa.DataType) -> Value:
    return pc.cast(moments.to_seconds(value), type)


def _fraction_to_timestamp(value: Value) -> Value:
    micros = pc.multiply(pc.cast(value, DOUBLE), 1e6)
    return moments.view(_fraction_to_integer(micros, type=BIGINT), TIMESTAMP)


def _decimal_to_timestamp(value: Value) -> Value:
    wide = pc.cast(value, pa.decimal256(value.type.precision + 7, value.type.scale))
    million = pa.scalar(Decimal(moments.MICROS_A_SECOND), pa.decimal256(7, 0))
    return moments.view(pc.cast(pc.trunc(pc.multiply(wide, million)), BIGINT), TIMESTAMP)


def _date_to_string(value: Value) -> Value:
    return moments.signed_years(pc.cast(value, STRING), pc.year(value))


def _string_to_integer(value: Value, *, type: pa.DataType) -> Value:
    trimmed = pc.utf8_trim(value, characters=moments.SPACES)
    if pc.all(pc.match_substring_regex(trimmed, r"^[+-]?[0-9]+$")).as_py() is False:
        raise KernelFailure(f"not a {type_name(type)}")
    return pc.cast(pc.replace_substring_regex(trimmed, r"^\+", ""), type)


def _string_to_fraction(value: Value, *, type: pa.DataType) -> Value:
    """Parse as Java does, except hexadecimal numbers: a d or f may follow, NaN and infinities have names."""
    trimmed = pc.utf8_trim(value, characters=_JAVA_SPACES)
    if pc.all(pc.match_substring_regex(trimmed, _FRACTION)).as_py() is False:
        raise KernelFailure(f"not a {type_name(type)}")
    plain = pc.replace_substring_regex(trimmed, r"^[+-](NaN)$|([0-9.])[dDfF]$", r"\1\2")
    return pc.cast(plain, type)


def _string_to_boolean(value: Value) -> Value:
    word = pc.ascii_lower(pc.utf8_trim(value, characters=moments.SPACES))
    true = pc.is_in(word, value_set=pa.array(_TRUE))
    boolean = pc.or_(true, pc.is_in(word, value_set=pa.array(_FALSE)))
    if pc.all(pc.or_(boolean, pc.is_null(word))).as_py() is False:
        raise KernelFailure("not a boolean")
    return pc.if_else(pc.is_valid(word), true, pa.scalar(None, BOOLEAN))


def _hint(source: pa.DataType, target: pa.DataType) -> str:
    if target == STRING:
        return "To string: tinyint, smallint, int, bigint, decimal, boolean, date, timestamp, timestamp_ntz"
    if source == STRING:
        return "From string: numbers, boolean, date, timestamp and timestamp_ntz"
    if is_fractional(source) and is_decimal(target):
        return "Java's printing of doubles decides the digits; cast to bigint, or keep double"
    if is_time(source) or is_time(target):
        return (
            "Between date, timestamp and timestamp_ntz; timestamp also to and from whole numbers, float and double, "
            f"and from decimal with at most {_SECOND_DIGITS} digits before the point"
        )
    return "Between the numeric types and boolean"
