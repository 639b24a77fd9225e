"""Write each operation of the dialect over single values, with the meaning its Arrow kernel has over arrays.

An operation is known by the kernel of its node. What has no entry here can be applied to columns only, not to
what depends on a variable. The functions that the source calls are in `jit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import arithmetic, casts, comparison, intervals, logic, mathematics, moments
from riprap.expressions.source import DTYPES, Loop, Operand, both, whole
from riprap.expressions.tree import ArrowKernel, Call, Expression
from riprap.expressions.types import BIGINT, DATE, STRING, is_fractional, is_integral, type_name

# An operation on values that are all there; `valid` is the flag of its result.
Strict = Callable[[Loop, Call, Sequence[str], str], str]
# An operation that looks at nulls.
Lenient = Callable[[Loop, Call, Sequence[Operand]], Operand]
# The source of a cast from one type to another, and of what holds where it succeeds.
CastWriter = Callable[[Loop, str, pa.DataType, pa.DataType], tuple[str, str]]

_ZERO_DIVISION = "division by zero"
_TOP = repr(2.0**63)
_MICROS_A_DAY = 86_400_000_000
_SIGNS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def can_write(node: Expression) -> bool:
    """Say whether an operation can be compiled, whatever its arguments are made of."""
    if isinstance(node, logic.CaseWhen | logic.Coalesce | logic.Connective):
        return node.type in DTYPES
    if not isinstance(node, Call) or any(each.type not in DTYPES for each in (node, *node.arguments)):
        return False
    function = _function(node.kernel)
    if function is casts._try:
        function = _function(_options(node)["kernel"])
        return function in _CASTS and node.arguments[0].type != STRING
    if function in _CASTS:
        return STRING not in (node.type, node.arguments[0].type) or function is casts._same
    return function in _STRICT or function in _LENIENT


def write_call(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    """Write an operation on operands that are written already."""
    function = _function(node.kernel)
    if function in _LENIENT:
        return _LENIENT[function](source, node, operands)
    valid = source.named(both(*(operand.valid for operand in operands)))
    value = _write_strict(function)(source, node, [operand.value for operand in operands], valid)
    if node.type == pa.bool_():
        value = both(valid, value)
    return Operand(source.named(value), valid)


def _function(kernel: ArrowKernel) -> ArrowKernel:
    return kernel.func if isinstance(kernel, partial) else kernel


def _options(node: Call) -> Mapping[str, Any]:
    return node.kernel.keywords if isinstance(node.kernel, partial) else {}


def _write_strict(function: ArrowKernel) -> Strict:
    return _cast if function in _CASTS else _STRICT[function]


def _range(type: pa.DataType, value: str) -> str:
    """Write what holds where a value fits into a whole number type narrower than bigint."""
    limit = 1 << (type.bit_width - 1)
    return f"({value} >= {whole(-limit)}) & ({value} < {limit})"


def _operation(source: Loop, node: Call, values: Sequence[str], valid: str, *, sign: str, name: str) -> str:
    """Write + - or *, and raise where a whole number does not fit."""
    if is_fractional(node.type):
        return f"{values[0]} {sign} {values[1]}"
    value, wraps = source.pair(f"{name}({values[0]}, {values[1]})")
    condition = wraps if node.type == BIGINT else f"not ({_range(node.type, value)})"
    source.fail(node, f"{type_name(node.type)} overflow", condition, valid)
    return value


def _moment(source: Loop, node: Call, values: Sequence[str], valid: str, *, name: str) -> str:
    """Write what moves a timestamp or makes an interval; both are microseconds."""
    value, wraps = source.pair(f"{name}({values[0]}, {values[1]})")
    source.fail(node, f"{type_name(node.type)} overflow", wraps, valid)
    return value


def _divide(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    """Write `/` of doubles or `div` of bigints."""
    left, right = values
    source.fail(node, _ZERO_DIVISION, f"{right} == 0", valid)
    if is_fractional(node.type):
        return f"{left} / {right}"
    wraps = f"({left} == {whole(-(2**63))}) & ({right} == {whole(-1)})"
    source.fail(node, f"{type_name(node.type)} overflow", wraps, valid)
    return f"quotient({left}, {right})"


def _remainder(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    left, right = values
    source.fail(node, _ZERO_DIVISION, f"{right} == 0", valid)
    return f"{'np.fmod' if is_fractional(node.type) else 'remainder'}({left}, {right})"


def _negate(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    if is_fractional(node.type):
        return f"-{values[0]}"
    return _STRICT[pc.subtract_checked](source, node, ["0", values[0]], valid)


def _absolute(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    if is_fractional(node.type):
        return f"abs({values[0]})"
    size = source.let(values[0])
    with source.block(f"if {size} < 0:"):
        source.line(f"{size} = {_negate(source, node, [size], valid)}")
    return size


def _compare(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    type, options = node.arguments[0].type, _options(node)
    operator = options["operator"] if options else _COMPARISONS[node.kernel]
    source.ordered |= type == STRING and operator not in ("=", "<>")
    return _comparison(operator, type, *values)


def _comparison(operator: str, type: pa.DataType, left: str, right: str) -> str:
    """Write a comparison; of doubles NaN is the greatest and equals itself."""
    plain = f"({left} {_SIGNS[operator]} {right})"
    if not is_fractional(type):
        return plain
    return {
        "=": f"{plain} | (({left} != {left}) & ({right} != {right}))",
        "<>": f"{plain} & (({left} == {left}) | ({right} == {right}))",
        "<": f"{plain} | (({left} == {left}) & ({right} != {right}))",
        "<=": f"{plain} | ({right} != {right})",
        ">": f"{plain} | (({left} != {left}) & ({right} == {right}))",
        ">=": f"{plain} | ({left} != {left})",
    }[operator]


def _invert(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    return f"not {values[0]}"


def _function_of_doubles(source: Loop, node: Call, values: Sequence[str], valid: str, *, name: str) -> str:
    return f"{name}({', '.join(values)})"


def _floor_or_ceil(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    """Write floor or ceil of a double."""
    step = "np.floor" if _options(node)["kernel"] is pc.floor else "np.ceil"
    done = source.let(f"{step}({values[0]})")
    source.fail(node, "bigint overflow", f"({done} >= {_TOP}) | ({done} < -{_TOP})", valid)
    return f"clipped_or_zero({done})"


def _cast(source: Loop, node: Call, values: Sequence[str], valid: str) -> str:
    converted, fits = _CASTS[_function(node.kernel)](source, values[0], node.arguments[0].type, node.type)
    if fits != "True":
        source.fail(node, f"{type_name(node.type)} overflow", f"not ({fits})", valid)
    return converted


def _try_cast(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    (operand,) = operands
    cast = _CASTS[_function(_options(node)["kernel"])]
    converted, fits = cast(source, operand.value, node.arguments[0].type, node.type)
    return Operand(source.let(converted), source.named(both(operand.valid, fits)))


def _same(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    return value, "True"


def _plain_cast(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    if is_fractional(new):
        return f"np.{DTYPES[new].name}({value})", "True"
    if is_integral(old) and old.bit_width > new.bit_width:
        return value, _range(new, value)
    return f"np.int64({value})", "True"


def _not_zero(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    return f"{value} != 0", "True"


def _cut(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    """Drop the fraction. As in Java, 2^63 becomes the largest bigint."""
    cut = source.let(f"np.trunc(np.float64({value}))")
    limit = repr(2.0 ** (new.bit_width - 1))
    fits = f"({cut} >= -{limit}) & ({cut} {'<=' if new == BIGINT else '<'} {limit})"
    return f"clipped({cut})", fits


def _between_times(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    if old == DATE:
        micros, wraps = source.pair(f"multiplied({value}, {_MICROS_A_DAY})")
        return micros, f"not {wraps}"
    return (f"{value} // {_MICROS_A_DAY}" if new == DATE else value), "True"


def _seconds(source: Loop, value: str, old: pa.DataType, new: pa.DataType) -> tuple[str, str]:
    return f"{value} // 1_000_000", "True"


def _is_null(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    return Operand(source.let(f"not {operands[0].valid}"))


def _is_valid(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    return Operand(operands[0].valid)


def _null_safe_equal(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    left, right = operands
    equal = _comparison("=", node.arguments[0].type, left.value, right.value)
    equal_values = both(left.valid, right.valid, equal)
    return Operand(source.let(f"({equal_values}) | (not ({left.valid} | {right.valid}))"))


def _is_in(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    (operand,) = operands
    options = _options(node)
    literals = [source.literal(scalar).value for scalar in options["options"]]
    tests = [_comparison("=", node.arguments[0].type, operand.value, literal) for literal in literals]
    among = source.let(both(operand.valid, " | ".join(f"({test})" for test in tests) or "False"))
    return Operand(among, among if options["null"] else operand.valid)


def _logarithm(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    (operand,) = operands
    valid = source.let(both(operand.valid, f"not ({operand.value} <= 0.0)"))
    return Operand(source.let(f"math.log({operand.value}) if {valid} else 0.0"), valid)


def _is_nan(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    (operand,) = operands
    return Operand(source.let(both(operand.valid, f"{operand.value} != {operand.value}")))


def _extreme(source: Loop, node: Call, operands: Sequence[Operand]) -> Operand:
    """Skip nulls; of equal values keep the first."""
    source.ordered |= node.type == STRING
    best = source.result(node.type, operands[0])
    for other in operands[1:]:
        sides = (other.value, best.value) if _options(node)["smallest"] else (best.value, other.value)
        better = _comparison("<", node.type, *sides)
        with source.block(f"if {both(other.valid, f'(not {best.valid}) | {better}')}:"):
            source.set(best, other)
    return best


_CASTS: Mapping[ArrowKernel, CastWriter] = {
    pc.cast: _plain_cast,
    casts._same: _same,
    casts._not_zero: _not_zero,
    casts._fraction_to_integer: _cut,
    casts._between_times: _between_times,
    moments.to_seconds: _seconds,
    mathematics._same: _same,
}
_COMPARISONS: Mapping[ArrowKernel, str] = {
    pc.equal: "=",
    pc.not_equal: "<>",
    pc.less: "<",
    pc.less_equal: "<=",
    pc.greater: ">",
    pc.greater_equal: ">=",
}
_STRICT: Mapping[ArrowKernel, Strict] = {
    pc.add_checked: partial(_operation, sign="+", name="added"),
    pc.subtract_checked: partial(_operation, sign="-", name="subtracted"),
    pc.multiply_checked: partial(_operation, sign="*", name="multiplied"),
    intervals.added: partial(_moment, name="added"),
    intervals.subtracted: partial(_moment, name="subtracted"),
    intervals.multiplied: partial(_moment, name="multiplied"),
    pc.divide_checked: _divide,
    pc.remainder: _remainder,
    pc.remainder_checked: _remainder,
    pc.negate_checked: _negate,
    arithmetic._absolute: _absolute,
    **dict.fromkeys((*_COMPARISONS, comparison._floating), _compare),
    pc.invert: _invert,
    mathematics._whole_double: _floor_or_ceil,
    pc.sqrt: partial(_function_of_doubles, name="math.sqrt"),
    pc.exp: partial(_function_of_doubles, name="math.exp"),
    mathematics._power: partial(_function_of_doubles, name="power"),
}
_LENIENT: Mapping[ArrowKernel, Lenient] = {
    comparison._is_null: _is_null,
    pc.is_valid: _is_valid,
    comparison._null_safe_equal: _null_safe_equal,
    comparison._is_in: _is_in,
    mathematics._ln: _logarithm,
    mathematics._isnan: _is_nan,
    mathematics._pick: _extreme,
    casts._try: _try_cast,
}
