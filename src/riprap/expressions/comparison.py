"""Build comparisons in Spark's order of doubles: NaN equals NaN and is the greatest; -0.0 equals 0.0.

Arrow compares as IEEE 754 does, which differs only where a NaN is involved. So a comparison first asks
whether any NaN is there, by one pass of `min` that runs at memory speed, and repairs the result only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.casts import coerce
from riprap.expressions.coercion import common_type, comparable_decimal, operand_types
from riprap.expressions.errors import Misuse
from riprap.expressions.tree import ArrowKernel, Expression, Literal, Order, Value, call
from riprap.expressions.types import (
    BINARY,
    BOOLEAN,
    NULL,
    is_decimal,
    is_fractional,
    is_integral,
    is_list,
    type_name,
)

_PLAIN: dict[str, ArrowKernel] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare(operator: str, left: Expression, right: Expression) -> Expression:
    """Build `left operator right` for = <> < <= > >= <=>."""
    if operator in ("<", "<=", ">", ">="):
        _check_range(left, right)
        _check_range(right, left)
    left, right = _comparable(left, right)
    sql = f"{left.operand} {operator} {right.operand}"
    if operator == "<=>":
        return call(sql, BOOLEAN, _null_safe_equal, left, right, atomic=False)
    kernel = partial(_floating, operator=operator) if is_fractional(left.type) else _PLAIN[operator]
    return call(sql, BOOLEAN, kernel, left, right, order=Order.LEFT_FIRST, atomic=False)


def equal_kernel(type: pa.DataType) -> ArrowKernel:
    return partial(_floating, operator="=") if is_fractional(type) else pc.equal


def less_kernel(type: pa.DataType) -> ArrowKernel:
    return partial(_floating, operator="<") if is_fractional(type) else pc.less


def is_in(value: Expression, options: Sequence[Expression]) -> Expression:
    """Build `value in (options)`, where the options are literals."""
    for option in options:
        if not isinstance(option, Literal):
            raise Misuse(f"in (...) takes literals only, got {option.sql}", "Write a = x or a = y")
    for each in (value, *options):
        _check_comparable(each)
    type = common_type([value, *options])
    if type == NULL:
        raise Misuse("null in (null) has no type", "Write cast(null as int)")
    scalars = [coerce(option, type).value({}, 1) for option in options]
    chosen = [scalar for scalar in scalars if scalar.is_valid]
    sql = f"{value.operand} in ({', '.join(option.sql for option in options)})"
    kernel: ArrowKernel = partial(_is_in, options=chosen, null=len(chosen) < len(scalars))
    return call(sql, BOOLEAN, kernel, coerce(value, type), atomic=False)


def is_null(value: Expression) -> Expression:
    return call(f"{value.operand} is null", BOOLEAN, _is_null, value, atomic=False)


def is_not_null(value: Expression) -> Expression:
    return call(f"{value.operand} is not null", BOOLEAN, pc.is_valid, value, atomic=False)


def _comparable(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    for side in (left, right):
        _check_comparable(side)
    if left.type == right.type == NULL:
        raise Misuse("null compared with null has no type", "Write x is null")
    first, second = operand_types(left, right)
    if is_decimal(first):
        first = second = comparable_decimal(first, second)
    return coerce(left, first), coerce(right, second)


def _check_range(whole: Expression, limit: Expression) -> None:
    """Spark decides such a comparison without looking at the column, and then forgets that it may be null."""
    if is_integral(whole.type) and isinstance(limit, Literal) and is_decimal(limit.type):
        value = limit.scalar.as_py()
        if value is not None and not -(2**63) <= value < 2**63:
            raise Misuse(
                f"{limit.sql} is beyond every {type_name(whole.type)}: {whole.sql}",
                "Write is not null for what is always true",
            )


def _check_comparable(side: Expression) -> None:
    if side.type == BINARY or is_list(side.type):
        raise Misuse(f"{type_name(side.type)} columns can only be passed through: {side.sql}")


def _is_null(value: Value) -> Value:
    return pc.is_null(value)


def _null_safe_equal(left: Value, right: Value) -> Value:
    equal = pc.fill_null(equal_kernel(left.type)(left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _is_in(value: Value, *, options: list[pa.Scalar], null: bool) -> Value:
    if not options:
        among = pc.and_(pc.is_null(value), False)
    elif is_fractional(value.type):  # Arrow's hash set tells -0.0 from 0.0
        among = reduce(pc.or_, [_floating(value, option, operator="=") for option in options])
    else:
        among = pc.is_in(value, value_set=pa.array([option.as_py() for option in options], value.type))
    unknown = pc.or_(pc.is_null(value), pc.and_(pc.invert(among), null))
    return pc.if_else(unknown, pa.scalar(None, BOOLEAN), among)


def _floating(left: Value, right: Value, *, operator: str) -> Value:
    plain = _PLAIN[operator](left, right)
    odd_left, odd_right = _may_have_nan(left), _may_have_nan(right)
    if not odd_left and not odd_right:
        return plain
    a, b = pc.is_nan(left), pc.is_nan(right)
    if operator == "=":
        return pc.or_(plain, pc.and_(a, b))
    if operator == "<>":
        return pc.and_(plain, pc.invert(pc.and_(a, b)))
    if operator == "<":
        return pc.or_(plain, pc.and_(b, pc.invert(a)))
    if operator == "<=":
        return pc.or_(plain, b)
    if operator == ">":
        return pc.or_(plain, pc.and_(a, pc.invert(b)))
    return pc.or_(plain, a)


def _may_have_nan(value: Value) -> bool:
    if isinstance(value, pa.Scalar):
        return bool(pc.is_nan(value).as_py())
    dtype = np.float64 if value.type == pa.float64() else np.float32
    numbers = np.frombuffer(value.buffers()[1], dtype=dtype)[value.offset : value.offset + len(value)]
    # A null's slot may hold a NaN, which only costs the repair. `min` of numpy is NaN if any element is.
    return bool(np.isnan(numbers.min()))
