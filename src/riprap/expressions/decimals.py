"""Compute with decimals as Spark does: exactly, then rounded half up into the result's type.

Intermediate results have up to 77 digits. They live in decimal256, whose 256 bits hold 5.7e76, so that
every product of two 38-digit numbers fits. Arrow refuses some operations by the *declared* precision,
although the values fit; `_relabel` declares another precision and scale for the same bits.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.errors import KernelFailure, Misuse
from riprap.expressions.tree import ArrowKernel, Value
from riprap.expressions.types import DOUBLE, FLOAT, STRING, type_name

_WIDE = 76
_SPACES = "".join(map(chr, range(0x21)))
_NUMBER = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?\z"
_FIELDS = r"\A\+?(?P<sign>-?)0*(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)\z"
_PLAIN_SCALE = 6
_EXACT_DOUBLE_DIGITS = 15  # integers of 15 digits and powers of ten up to 22 are exact doubles


def add(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return _add(left, right, pc.add, type)


def subtract(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return _add(left, right, pc.subtract, type)


def _add(left: Value, right: Value, operate: pc.Function, type: pa.DataType) -> Value:
    scale = max(left.type.scale, right.type.scale)
    digits = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
    if digits + scale + 1 <= 38:  # Arrow's result type is then Spark's
        return operate(left, right)
    left, right = (_relabel(_scaled(side, scale), _WIDE - 1, scale) for side in (left, right))
    return rounded(operate(left, right), type)


def multiply(left: Value, right: Value, *, type: pa.DataType) -> Value:
    if left.type.precision + right.type.precision + 1 <= 38:
        return pc.multiply(left, right)
    scale = left.type.scale + right.type.scale
    left, right = (_relabel(_wide(side), 37, side.type.scale) for side in (left, right))
    return rounded(_relabel(pc.multiply(left, right), _WIDE, scale), type)


def check_division(left: pa.DataType, right: pa.DataType, result: pa.DataType) -> None:
    """Refuse, when built, a division whose numerator would not fit into 76 digits."""
    if left.precision + _shift(left, right, result) > _WIDE:
        raise Misuse(
            f"{type_name(left)} / {type_name(right)} needs more than {_WIDE} digits inside",
            "Cast one side to fewer digits, such as cast(x as decimal(20,6))",
        )


def _shift(left: pa.DataType, right: pa.DataType, result: pa.DataType) -> int:
    return max(2, int(result.scale + right.scale - left.scale + 1))


def divide(left: Value, right: Value, *, type: pa.DataType) -> Value:
    """Divide with one digit more than the result has: truncated there, it still rounds half up correctly."""
    shift = _shift(left.type, right.type, type)
    scale = left.type.scale - right.type.scale + shift
    quotient = _quotient(_scaled(left, left.type.scale + shift - 2), _wide(right))
    return rounded(_relabel(quotient, _WIDE, scale), type)


def _quotient(numerator: Value, denominator: Value) -> Value:
    """Return trunc(100 * numerator / denominator) of the unscaled integers.

    With these labels Arrow's own rule scales the numerator up by exactly two digits, the least it ever does.
    """
    return pc.divide(_relabel(numerator, _WIDE - 2, 2), _relabel(denominator, 1, 0))


def remainder(left: Value, right: Value, *, type: pa.DataType) -> Value:
    return rounded(_wide_remainder(left, right), type)


def _wide_remainder(left: Value, right: Value) -> Value:
    scale = max(left.type.scale, right.type.scale)
    left, right = (_relabel(_scaled(side, scale), _WIDE, scale) for side in (left, right))
    return pc.remainder(left, right)


def integer_quotient(left: Value, right: Value) -> Value:
    """Divide and drop the fraction, into a bigint."""
    scale = max(left.type.scale, right.type.scale)
    left, right = (_relabel(_scaled(side, scale), _WIDE - 2, scale) for side in (left, right))
    whole = pc.trunc(_relabel(_quotient(left, right), _WIDE, 2))
    try:
        return pc.cast(whole, pa.int64())
    except pa.ArrowInvalid:
        raise KernelFailure("bigint overflow") from None


def rounded(value: Value, type: pa.DataType) -> Value:
    """Round half up to the scale of a type and narrow to it; raise when it does not fit."""
    try:
        return pc.cast(half_up(value, type.scale), type)
    except pa.ArrowInvalid:
        raise KernelFailure(f"{type_name(type)} overflow") from None


def half_up(value: Value, digits: int) -> Value:
    """Drop the digits behind `digits`, rounding half up: add half a unit, away from zero, and cut.

    Arrow 26 has `round` for this, but for some decimal256 values whose carry runs through many nines it
    truncates.
    """
    scale = value.type.scale
    drop = scale - digits
    if drop <= 0:
        return value
    unscaled = _relabel(_wide(value), _WIDE - 1, 0)
    half = pa.scalar(Decimal(5 * 10 ** (drop - 1)), unscaled.type)
    negative = pc.less(unscaled, pa.scalar(Decimal(0), unscaled.type))
    moved = pc.if_else(negative, pc.subtract(unscaled, half), pc.add(unscaled, half))
    return _relabel(pc.trunc(_relabel(moved, _WIDE, drop)), _WIDE, scale)


def floor(value: Value, *, type: pa.DataType) -> Value:
    return _down(value, pc.less, pc.subtract, type)


def ceil(value: Value, *, type: pa.DataType) -> Value:
    return _down(value, pc.greater, pc.add, type)


def _down(value: Value, beyond: ArrowKernel, step: ArrowKernel, type: pa.DataType) -> Value:
    """Cut the fraction off, and go one further where that went the wrong way."""
    wide = with_room(value)
    whole = pc.trunc(wide)
    cut = pc.cast(whole, type)
    one = pa.scalar(Decimal(1), pa.decimal128(1, 0))
    return pc.if_else(beyond(wide, whole), pc.cast(step(_relabel(_wide(cut), 75, 0), one), type), cut)


def to_decimal(value: Value, *, type: pa.DataType) -> Value:
    """Cast between decimals, or from a whole number."""
    if not pa.types.is_decimal(value.type):
        value = pc.cast(pc.cast(value, pa.int64()), pa.decimal128(19, 0))
    if (
        value.type.scale <= type.scale
        and value.type.precision - value.type.scale <= type.precision - type.scale
    ):
        return pc.cast(value, type)
    return rounded(_wide(value) if value.type.scale < type.scale else with_room(value), type)


def to_double(value: Value) -> Value:
    """Turn decimals into the nearest doubles."""
    if value.type.precision <= _EXACT_DOUBLE_DIGITS:
        whole = pc.cast(_relabel(_wide(value), value.type.precision, 0), pa.int64())
        return pc.divide(pc.cast(whole, DOUBLE), float(np.float64(10.0) ** value.type.scale))
    # Arrow's own cast is off by an ulp for many digits; its parser is not.
    return pc.cast(pc.cast(value, STRING), DOUBLE)


def to_float(value: Value) -> Value:
    return pc.cast(pc.cast(value, STRING), FLOAT)


def to_string(value: Value) -> Value:
    """Write all digits. Arrow's own cast, like Java's toString, turns to exponents for small numbers."""
    scale = value.type.scale
    if scale <= _PLAIN_SCALE:
        return pc.cast(value, STRING)
    digits = pc.cast(_relabel(_wide(value), value.type.precision, 0), STRING)
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.utf8_lpad(pc.utf8_trim(digits, characters="-"), width=scale + 1, padding="0")
    whole, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def from_string(value: Value, *, type: pa.DataType) -> Value:
    """Read text as Java's BigDecimal does, and round half up, for which the digit after the last one is enough."""
    if isinstance(value, pa.Scalar):
        return from_string(pa.array([value.as_py()], STRING), type=type)[0]
    text = pc.utf8_trim(value, characters=_SPACES)
    if pc.all(pc.match_substring_regex(text, _NUMBER)).as_py() is False:
        raise KernelFailure(f"not a {type_name(type)}")
    powers = pc.fill_null(pc.match_substring_regex(text, "[eE]"), False)
    if pc.any(powers).as_py():
        text = pc.replace_with_mask(
            text, powers, pa.array([_plain(each) for each in text.filter(powers).to_pylist()], STRING)
        )
    fields = pc.extract_regex(text, pattern=_FIELDS)
    sign, whole, fraction = (pc.struct_field(fields, name) for name in ("sign", "whole", "fraction"))
    if pc.any(pc.greater(pc.utf8_length(whole), 38)).as_py():
        raise KernelFailure(f"{type_name(type)} overflow")
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 0, type.scale + 1), type.scale + 1, "0")
    whole = pc.utf8_lpad(whole, 1, "0")
    exact = pc.cast(pc.binary_join_element_wise(sign, whole, "", ""), STRING)
    exact = pc.binary_join_element_wise(exact, digits, ".")
    return rounded(pc.cast(exact, pa.decimal256(_WIDE, type.scale + 1)), type)


def _plain(text: str) -> str:
    """Write a number with an exponent without it; one beyond every decimal as just beyond them."""
    number = Decimal(text)
    if not number or number.adjusted() < -_WIDE:
        return "0"
    return format(number, "f") if number.adjusted() < _WIDE else "9" * _WIDE


def with_room(value: Value) -> Value:
    """Add a digit, so that rounding 99.9 up to 100 is not an overflow yet."""
    return pc.cast(value, pa.decimal256(value.type.precision + 1, value.type.scale))


def _wide(value: Value) -> Value:
    if pa.types.is_decimal256(value.type):
        return value
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def _scaled(value: Value, scale: int) -> Value:
    """Widen to decimal256 with this scale, exactly."""
    more = scale - value.type.scale
    return pc.cast(_wide(value), pa.decimal256(min(_WIDE, value.type.precision + more), scale))


def _relabel(value: Value, precision: int, scale: int) -> Value:
    type = pa.decimal256(precision, scale)
    if isinstance(value, pa.Scalar):
        return _relabel(pa.array([value.as_py()], value.type), precision, scale)[0]
    return pa.Array.from_buffers(type, len(value), value.buffers(), offset=value.offset)
