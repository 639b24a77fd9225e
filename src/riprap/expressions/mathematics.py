"""Build the mathematical functions: rounding, powers, logarithms, least and greatest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import decimals
from riprap.expressions.casts import coerce
from riprap.expressions.coercion import common_type
from riprap.expressions.comparison import less_kernel
from riprap.expressions.errors import KernelFailure, Misuse
from riprap.expressions.tree import ArrowKernel, Expression, Literal, Order, Value, call
from riprap.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_fractional,
    is_integral,
    is_list,
    is_numeric,
    type_name,
)

_MOST_DIGITS = 22  # ten to this power is an exact double
_EXACT_STEPS = 1e14  # a tie has one digit more
_ALL_STEPS = 1e18  # doubles print at most 17 digits


def floor(arguments: Sequence[Expression]) -> Expression:
    return _whole("floor", pc.floor, decimals.floor, arguments[0])


def ceil(arguments: Sequence[Expression]) -> Expression:
    return _whole("ceil", pc.ceil, decimals.ceil, arguments[0])


def _whole(name: str, kernel: ArrowKernel, exact: ArrowKernel, argument: Expression) -> Expression:
    _need_number(name, argument)
    sql = f"{name}({argument.sql})"
    if is_integral(argument.type):
        return call(sql, BIGINT, _same, coerce(argument, BIGINT))
    if is_fractional(argument.type):
        return call(sql, BIGINT, partial(_whole_double, kernel=kernel), coerce(argument, DOUBLE), raises=True)
    precision, scale = argument.type.precision, argument.type.scale
    if scale == 0:
        return call(sql, argument.type, _same, argument)
    type = pa.decimal128(precision - scale + 1, 0)
    return call(sql, type, partial(exact, type=type), argument)


def _whole_double(value: Value, *, kernel: ArrowKernel) -> Value:
    """Unlike a cast, floor and ceil take NaN for 0 and do not take 2^63 for the largest bigint."""
    whole = kernel(value)
    if pc.any(pc.or_(pc.greater_equal(whole, 2.0**63), pc.less(whole, -(2.0**63)))).as_py():
        raise KernelFailure("bigint overflow")
    return pc.cast(pc.if_else(pc.is_nan(whole), 0.0, whole), BIGINT)


def round_(arguments: Sequence[Expression]) -> Expression:
    """Build `round(value, digits)`, half up; digits are a literal."""
    value = arguments[0]
    _need_number("round", value)
    digits = literal_int("round", arguments[1]) if len(arguments) > 1 else 0
    sql = f"round({', '.join(each.sql for each in arguments)})"
    if is_decimal(value.type):
        return _round_decimal(sql, value, digits)
    if is_integral(value.type):
        if digits >= 0:
            return call(sql, value.type, _same, value)
        return call(
            sql, value.type, partial(_round_integer, digits=digits, type=value.type), value, raises=True
        )
    if value.type != DOUBLE or not 0 <= digits <= _MOST_DIGITS:
        raise Misuse(
            f"round of {type_name(value.type)} to {digits} digits is not supported: {sql}",
            f"Of doubles to 0 to {_MOST_DIGITS} digits; of whole numbers and decimals to any",
        )
    return call(sql, DOUBLE, partial(_round_double, digits=digits), value)


def _round_decimal(sql: str, value: Expression, digits: int) -> Expression:
    whole = value.type.precision - value.type.scale + 1
    if digits < 0:
        type = pa.decimal128(min(38, max(whole, -digits + 1)), 0)
    else:
        scale = min(value.type.scale, digits)
        type = pa.decimal128(min(38, whole + scale), scale)
    return call(sql, type, partial(_round_to, digits=digits, type=type), value, raises=True)


def _round_to(value: Value, *, digits: int, type: pa.DataType) -> Value:
    wide = pc.cast(value, pa.decimal256(value.type.precision + 1, value.type.scale))
    return decimals.rounded(decimals.half_up(wide, _at_least(digits, value.type)), type)


def _round_integer(value: Value, *, digits: int, type: pa.DataType) -> Value:
    wide = pc.cast(pc.cast(value, BIGINT), pa.decimal128(19, 0))
    return pc.cast(decimals.half_up(wide, _at_least(digits, wide.type)), type)


def _at_least(digits: int, type: pa.DataType) -> int:
    """Rounding to more places than a number has is rounding to nothing, however many more."""
    return max(digits, -(int(type.precision) - int(type.scale)) - 1)


def _round_double(value: Value, *, digits: int) -> Value:
    """Round half up what Java prints, as Spark does: 2.675 is 2.68, although the double is a little less.

    A tie has few digits, and a decimal of at most 15 digits is what its nearest double prints as. So a
    double is rounded up exactly if it is not less than the double nearest to the tie, and no printing is
    needed.
    """
    if isinstance(value, pa.Scalar):
        return _round_double(pa.array([value.as_py()], DOUBLE), digits=digits)[0]
    numbers = np.frombuffer(value.buffers()[1])[value.offset : value.offset + len(value)]
    unit = 10.0**digits
    with np.errstate(all="ignore"):
        size = np.abs(numbers)
        steps = np.floor(size * unit + 0.5)
        steps -= size < (2 * steps - 1) / (2 * unit)
        steps += size >= (2 * steps + 1) / (2 * unit)
        rounded = np.copysign(steps / unit, numbers)
        few = size * unit < _EXACT_STEPS
        result = pa.array(np.where(few, rounded, numbers) + 0.0)  # adding 0.0 turns -0.0 into 0.0
    if not few.all():
        result = _round_printed(value, result, pa.array(few), digits)
    return pc.if_else(pc.is_valid(value), result, pa.scalar(None, DOUBLE))


def _round_printed(value: pa.Array, result: pa.Array, few: pa.Array, digits: int) -> pa.Array:
    """Round doubles of 15 to 17 digits, of which some are behind the last wanted one, by printing them."""
    limit = _ALL_STEPS / 10.0**digits
    printed = pc.and_(pc.invert(few), pc.fill_null(pc.less(pc.abs(value), limit), False))
    if not pc.any(printed).as_py():
        return result
    text = pc.cast(value.filter(printed), STRING)
    exact = pc.cast(text, pa.decimal256(76, digits + 4))
    return pc.replace_with_mask(
        result, printed, pc.cast(pc.cast(decimals.half_up(exact, digits), STRING), DOUBLE)
    )


def sqrt(arguments: Sequence[Expression]) -> Expression:
    return _double("sqrt", pc.sqrt, arguments)


def exponential(arguments: Sequence[Expression]) -> Expression:
    return _double("exp", pc.exp, arguments)


def natural_log(arguments: Sequence[Expression]) -> Expression:
    return _double("ln", _ln, arguments)


def power(arguments: Sequence[Expression]) -> Expression:
    return _double("pow", _power, arguments)


def _double(name: str, kernel: ArrowKernel, arguments: Sequence[Expression]) -> Expression:
    for argument in arguments:
        _need_number(name, argument)
    sql = f"{name}({', '.join(each.sql for each in arguments)})"
    return call(sql, DOUBLE, kernel, *(coerce(each, DOUBLE) for each in arguments), order=Order.LEFT_FIRST)


def _ln(value: Value) -> Value:
    """Zero and negative numbers have no logarithm: null, also in ANSI mode."""
    return pc.ln(pc.if_else(pc.less_equal(value, 0.0), pa.scalar(None, DOUBLE), value))


def _power(base: Value, exponent: Value) -> Value:
    """Java and C differ where C answers 1: 1 to the NaN, and 1 or -1 to an infinity, are NaN in Java."""
    odd = pc.or_(pc.is_nan(exponent), pc.and_(pc.is_inf(exponent), pc.equal(pc.abs(base), 1.0)))
    return pc.if_else(odd, pa.scalar(float("nan")), pc.power(base, exponent))


def isnan(arguments: Sequence[Expression]) -> Expression:
    (value,) = arguments
    if not is_fractional(value.type):
        raise Misuse(f"isnan needs a float or double, got {type_name(value.type)}: {value.sql}")
    return call(f"isnan({value.sql})", BOOLEAN, _isnan, value)


def _isnan(value: Value) -> Value:
    return pc.fill_null(pc.is_nan(value), False)


def least(arguments: Sequence[Expression]) -> Expression:
    return _extreme("least", arguments)


def greatest(arguments: Sequence[Expression]) -> Expression:
    return _extreme("greatest", arguments)


def _extreme(name: str, arguments: Sequence[Expression]) -> Expression:
    type = common_type(arguments)
    if type in (NULL, BINARY) or is_list(type):
        raise Misuse(f"{name} of {type_name(type)} is not supported")
    sql = f"{name}({', '.join(each.sql for each in arguments)})"
    kernel = partial(_pick, less=less_kernel(type), smallest=name == "least")
    return call(sql, type, kernel, *(coerce(each, type) for each in arguments))


def _pick(first: Value, *others: Value, less: ArrowKernel, smallest: bool) -> Value:
    """Skip nulls; of equal values keep the first, which tells -0.0 from 0.0."""
    best = first
    for other in others:
        better = less(other, best) if smallest else less(best, other)
        # A null on either side makes `better` null: then whichever is there wins.
        best = pc.if_else(pc.fill_null(better, False), other, pc.coalesce(best, other))
    return best


def literal_int(name: str, argument: Expression) -> int:
    """Read an argument that must be an int literal."""
    if not isinstance(argument, Literal) or argument.type != INT or not argument.scalar.is_valid:
        raise Misuse(f"{name} needs an int literal here, got {argument.sql}")
    return int(argument.scalar.as_py())


def _need_number(name: str, argument: Expression) -> None:
    if not is_numeric(argument.type):
        raise Misuse(
            f"{name} needs a number, got {type_name(argument.type)}: {argument.sql}",
            "Write a cast, such as cast(x as double)",
        )


def _same(value: Value) -> Value:
    return value
