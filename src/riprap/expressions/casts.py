"""Cast between types as Spark's ANSI mode does: a value that does not fit raises, or is null under try_cast.

Each cast is a kernel, and where it can fail a test that says which rows fit. Left out on purpose, because
the result depends on how Java prints or parses: float and double to string or decimal, timestamps to
string, strings to decimal, date or timestamp.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import decimals
from riprap.expressions.errors import Failure, Misuse
from riprap.expressions.tree import Call, Expression, Kernel, Literal, Value, call
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

_SPACES = "".join(map(chr, range(0x21))) + "\x7f"
_JAVA_SPACES = "".join(map(chr, range(0x21)))
_FRACTION = (
    r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[+-]?(?i:inf|infinity)|(?i:nan)|[+-]NaN)$"
)
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]
_MICROS_A_DAY = 86_400_000_000


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


def _kernel(source: pa.DataType, target: pa.DataType) -> Kernel | None:
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
    if source == STRING and is_integral(target):
        return partial(_string_to_integer, type=target)
    if source == STRING and is_fractional(target):
        return partial(_string_to_fraction, type=target)
    if source == STRING and target == BOOLEAN:
        return _string_to_boolean
    if source == TIMESTAMP and target == BIGINT:
        return _seconds
    return None


def _numeric(source: pa.DataType, target: pa.DataType) -> Kernel | None:
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
    if target in (STRING, DOUBLE, FLOAT, BOOLEAN):
        return bool(source == STRING)
    if is_integral(source) and is_integral(target):
        return bool(source.bit_width > target.bit_width)
    return bool(source != BOOLEAN) or not is_integral(target)


def _try(value: Value, *, kernel: Kernel, type: pa.DataType) -> Value:
    """Apply a cast and make the rows where it fails null, by halving the batch around them."""
    try:
        return kernel(value)
    except (Failure, pa.ArrowInvalid):
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
        raise Failure(f"{type_name(type)} overflow")
    result = pc.cast(pc.if_else(pc.less(whole, limit), whole, 0.0), type)
    if type != BIGINT:
        return result
    return pc.if_else(pc.less(whole, limit), result, pa.scalar(2**63 - 1, BIGINT))


def _decimal_to_integer(value: Value, *, type: pa.DataType) -> Value:
    return pc.cast(pc.trunc(decimals.with_room(value)), type)


def _between_times(value: Value, *, type: pa.DataType) -> Value:
    if value.type == DATE:
        days = pc.cast(_view(value, pa.int32()), BIGINT)
        return _view(pc.multiply_checked(days, _MICROS_A_DAY), type)
    if type == DATE:
        micros = _view(value, BIGINT)
        behind = pc.cast(pc.less(pc.remainder(micros, _MICROS_A_DAY), 0), BIGINT)
        return _view(pc.cast(pc.subtract(pc.divide(micros, _MICROS_A_DAY), behind), pa.int32()), DATE)
    return _view(value, type)


def _seconds(value: Value) -> Value:
    micros = _view(value, BIGINT)
    behind = pc.cast(pc.less(pc.remainder(micros, 1_000_000), 0), BIGINT)
    return pc.subtract(pc.divide(micros, 1_000_000), behind)


def _view(value: Value, type: pa.DataType) -> Value:
    return value.cast(type) if isinstance(value, pa.Scalar) else value.view(type)


def _date_to_string(value: Value) -> Value:
    """Print as Java does: years beyond 9999 carry a sign."""
    text = pc.cast(value, STRING)
    late = pc.greater(pc.utf8_length(text), 10)
    signed = pc.and_(late, pc.invert(pc.starts_with(text, "-")))
    return pc.if_else(signed, pc.binary_join_element_wise("+", text, ""), text)


def _string_to_integer(value: Value, *, type: pa.DataType) -> Value:
    trimmed = pc.utf8_trim(value, characters=_SPACES)
    if pc.all(pc.match_substring_regex(trimmed, r"^[+-]?[0-9]+$")).as_py() is False:
        raise Failure(f"not a {type_name(type)}")
    return pc.cast(pc.replace_substring_regex(trimmed, r"^\+", ""), type)


def _string_to_fraction(value: Value, *, type: pa.DataType) -> Value:
    """Parse as Java does, except hexadecimal numbers: a d or f may follow, NaN and infinities have names."""
    trimmed = pc.utf8_trim(value, characters=_JAVA_SPACES)
    if pc.all(pc.match_substring_regex(trimmed, _FRACTION)).as_py() is False:
        raise Failure(f"not a {type_name(type)}")
    plain = pc.replace_substring_regex(trimmed, r"^[+-](NaN)$|([0-9.])[dDfF]$", r"\1\2")
    return pc.cast(plain, type)


def _string_to_boolean(value: Value) -> Value:
    word = pc.ascii_lower(pc.utf8_trim(value, characters=_SPACES))
    true = pc.is_in(word, value_set=pa.array(_TRUE))
    known = pc.or_(true, pc.is_in(word, value_set=pa.array(_FALSE)))
    if pc.all(pc.or_(known, pc.is_null(word))).as_py() is False:
        raise Failure("not a boolean")
    return pc.if_else(pc.is_valid(word), true, pa.scalar(None, BOOLEAN))


def _hint(source: pa.DataType, target: pa.DataType) -> str:
    if target == STRING:
        return "To string: tinyint, smallint, int, bigint, decimal, boolean, date"
    if source == STRING:
        return "From string: tinyint, smallint, int, bigint, float, double, boolean"
    if is_fractional(source) and is_decimal(target):
        return "Java's printing of doubles decides the digits; cast to bigint, or keep double"
    if TIMESTAMP_NTZ in (source, target) or is_time(source) or is_time(target):
        return "Between date, timestamp and timestamp_ntz; timestamp also to bigint"
    return "Between the numeric types and boolean"
