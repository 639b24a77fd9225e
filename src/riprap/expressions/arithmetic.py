"""Build the arithmetic operators: checked, so that overflow and division by zero raise as in Spark."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import decimals, intervals
from riprap.expressions.casts import coerce
from riprap.expressions.coercion import decimal_result, operand_types
from riprap.expressions.errors import Misuse
from riprap.expressions.tree import ArrowKernel, Expression, Order, Value, call
from riprap.expressions.types import (
    BIGINT,
    DOUBLE,
    INTERVAL,
    NULL,
    is_decimal,
    is_fractional,
    is_integral,
    is_numeric,
    is_time,
    type_name,
)

_CHECKED: dict[str, ArrowKernel] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "%": pc.remainder_checked,
}  # For whole numbers the checked kernel takes min % -1 for an overflow. This one raises only for a zero.
_REMAINDER: ArrowKernel = pc.remainder
_DECIMAL: dict[str, ArrowKernel] = {
    "+": decimals.add,
    "-": decimals.subtract,
    "*": decimals.multiply,
    "/": decimals.divide,
    "%": decimals.remainder,
}
_NEGATABLE = 34
_BIGINT_DIGITS = 18


def arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    """Build `left operator right` for + - * / % div."""
    if INTERVAL in (left.type, right.type) or (is_time(left.type) and is_time(right.type)):
        return intervals.arithmetic(operator, left, right)
    for side in (left, right):
        if not is_numeric(side.type) and side.type != NULL:
            raise Misuse(
                f"{operator} needs numbers, got {type_name(side.type)}: {side.sql}", _hint(side.type)
            )
    if left.type == right.type == NULL:
        raise Misuse(f"null {operator} null has no type", "Write cast(null as int)")
    sql = f"{left.operand} {operator} {right.operand}"
    first, second = operand_types(left, right)
    if operator == "div":
        return _integer_division(sql, left, right, first, second)
    order = Order.RIGHT_FIRST if operator in "/%" else Order.LEFT_FIRST
    if is_decimal(first):
        type = decimal_result(operator, first, second)
        if operator == "/":
            decimals.check_division(first, second, type)
        kernel: ArrowKernel = partial(_DECIMAL[operator], type=type)
    else:
        type = first = second = DOUBLE if operator == "/" else first
        kernel = _plain(operator, type)
    raises = is_decimal(type) or is_integral(type) or operator in "/%"
    return call(
        sql,
        type,
        kernel,
        coerce(left, first),
        coerce(right, second),
        order=order,
        raises=raises,
        atomic=False,
    )


def _plain(operator: str, type: pa.DataType) -> ArrowKernel:
    if operator == "%" and is_integral(type):
        return _REMAINDER
    return _CHECKED[operator]


def _integer_division(
    sql: str, left: Expression, right: Expression, first: pa.DataType, second: pa.DataType
) -> Expression:
    if is_fractional(first):
        raise Misuse(f"div needs whole numbers or decimals: {sql}", "Write cast(x / y as bigint)")
    kernel: ArrowKernel = decimals.integer_quotient
    if is_decimal(first):
        if first.precision - first.scale + second.scale > _BIGINT_DIGITS:
            raise Misuse(
                f"{type_name(first)} div {type_name(second)} may not fit into bigint: Spark wraps",
                f"Cast to fewer digits: the quotient may have {_BIGINT_DIGITS}",
            )
    else:
        first = second = BIGINT
        kernel = pc.divide_checked
    sides = (coerce(left, first), coerce(right, second))
    return call(sql, BIGINT, kernel, *sides, order=Order.RIGHT_FIRST, raises=True, atomic=False)


def negate(argument: Expression) -> Expression:
    """Build `-argument`."""
    if argument.type == INTERVAL:
        return intervals.negated(argument)
    _need_number("-", argument)
    _check_digits("-", argument)
    raises = is_integral(argument.type)
    return call(
        f"-{argument.operand}", argument.type, pc.negate_checked, argument, raises=raises, atomic=False
    )


def absolute(argument: Expression) -> Expression:
    """Build `abs(argument)`."""
    _need_number("abs", argument)
    _check_digits("abs", argument)
    raises = is_integral(argument.type)
    return call(f"abs({argument.sql})", argument.type, _absolute, argument, raises=raises)


def _absolute(value: Value) -> Value:
    return pc.abs_checked(value)


def _check_digits(name: str, argument: Expression) -> None:
    """Spark negates with 34 significant digits, so that longer decimals silently lose their last ones."""
    if is_decimal(argument.type) and argument.type.precision > _NEGATABLE:
        raise Misuse(
            f"{name} of {type_name(argument.type)} is not exact in Spark: {argument.sql}",
            f"Cast to at most {_NEGATABLE} digits, or write 0 - x",
        )


def _need_number(name: str, argument: Expression) -> None:
    if not is_numeric(argument.type):
        raise Misuse(
            f"{name} needs a number, got {type_name(argument.type)}: {argument.sql}", _hint(argument.type)
        )


def _hint(type: pa.DataType) -> str:
    if type == pa.string():
        return "Write a cast, such as cast(x as double)"
    if is_time(type):
        return "A time takes an interval, such as interval 5 minutes. Numbers are unix_seconds(x), cast(x as double)"
    return "Numbers are tinyint, smallint, int, bigint, float, double and decimal(p,s)"
