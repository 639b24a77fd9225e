"""Decide the types of operands and results as Spark's ANSI type coercion does.

Strings are never turned into numbers or back unless the user writes a cast. The decimal rules are those of
Spark with `spark.sql.decimalOperations.allowPrecisionLoss=true`, its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from riprap.expressions.errors import Misuse
from riprap.expressions.tree import Expression, Literal
from riprap.expressions.types import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGRALS,
    MAX_PRECISION,
    NULL,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    is_decimal,
    is_fractional,
    is_integral,
    is_numeric,
    is_time,
    type_name,
)

_AS_DECIMAL = {TINYINT: (3, 0), SMALLINT: (5, 0), INT: (10, 0), BIGINT: (20, 0)}
_MIN_SCALE = 6


def operand_types(left: Expression, right: Expression) -> tuple[pa.DataType, pa.DataType]:
    """Return what both sides of an arithmetic operator or comparison become before it is applied.

    Two decimals keep their own precision and scale; everything else becomes one common type.
    """
    if is_decimal(left.type) and is_integral(right.type):
        return left.type, _decimal_of(right)
    if is_integral(left.type) and is_decimal(right.type):
        return _decimal_of(left), right.type
    if is_decimal(left.type) and is_decimal(right.type):
        return left.type, right.type
    both = common_type([left, right])
    return both, both


def common_type(expressions: Sequence[Expression]) -> pa.DataType:
    """Return the one type to which all expressions are cast, as for the branches of a case."""
    result: pa.DataType = NULL
    for expression in expressions:
        wider = _wider(result, expression.type)
        if wider is None:
            raise Misuse(
                f"{type_name(result)} and {type_name(expression.type)} do not mix: {expression.sql}",
                "Write a cast, such as cast(x as double)",
            )
        result = wider
    return result


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if is_numeric(left) and is_numeric(right):
        if is_decimal(left) or is_decimal(right):
            return DOUBLE if is_fractional(left) or is_fractional(right) else _wider_decimal(left, right)
        if is_integral(left) and is_integral(right):
            return INTEGRALS[max(INTEGRALS.index(left), INTEGRALS.index(right))]
        # Spark widens float with an integer to double, since float would lose digits of the integer.
        return FLOAT if left == right == FLOAT else DOUBLE
    if is_time(left) and is_time(right):
        return TIMESTAMP if TIMESTAMP in (left, right) else (left if right == DATE else right)
    return None


def _wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    (p1, s1), (p2, s2) = _sizes(left), _sizes(right)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    return pa.decimal128(MAX_PRECISION, max(0, scale - (precision - MAX_PRECISION)))


def comparable_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the decimal type in which two decimals are compared."""
    return _wider_decimal(left, right)


def decimal_result(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type of an operator on two decimals.

    >>> decimal_result("*", pa.decimal128(10, 2), pa.decimal128(10, 0))
    Decimal128Type(decimal128(21, 2))
    """
    (p1, s1), (p2, s2) = _sizes(left), _sizes(right)
    if operator in "+-":
        scale = max(s1, s2)
        return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if operator == "*":
        return adjusted(p1 + p2 + 1, s1 + s2)
    if operator == "/":
        scale = max(_MIN_SCALE, s1 + p2 + 1)
        return adjusted(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Fit a result into 38 digits, giving up fraction digits down to six."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    digits = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - digits, min(scale, _MIN_SCALE)))


def bounded(precision: int, scale: int) -> pa.DataType:
    """Cap precision and scale at 38 each."""
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def _sizes(type: pa.DataType) -> tuple[int, int]:
    return (type.precision, type.scale) if is_decimal(type) else _AS_DECIMAL[type]


def _decimal_of(expression: Expression) -> pa.DataType:
    """An integer beside a decimal: a literal takes just the digits it has, a column all of its type."""
    if isinstance(expression, Literal) and expression.scalar.is_valid:
        return pa.decimal128(len(Decimal(expression.scalar.as_py()).as_tuple().digits), 0)
    return pa.decimal128(*_AS_DECIMAL[expression.type])
