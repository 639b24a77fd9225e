"""Write the loop that updates variables tuple by tuple, as source text for Numba.

    typed trees of the updates --> source of one function, and the columns it reads

Whatever depends on columns only is left to Arrow: it is computed for all rows before the loop, and enters it
as one more column. That is not done where it might raise on a row that SQL would not evaluate it on. There it
is compiled, or where it cannot be, it is tried and rows without a value raise when the loop comes to need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from riprap.expressions import literals
from riprap.expressions.comparison import is_not_null, is_null
from riprap.expressions.compiled import Input, Program
from riprap.expressions.errors import EvaluationError, Misuse
from riprap.expressions.logic import CaseWhen, Coalesce, Connective, case, coalesce, connect, negation
from riprap.expressions.scalars import can_write, write_call
from riprap.expressions.source import DTYPES, Loop, Operand, both
from riprap.expressions.tree import Call, Column, Expression, Literal, Order, Risk
from riprap.expressions.types import BOOLEAN, is_decimal, is_fractional

_CAN = (
    "What depends on a variable may use + - * / % div, comparisons, and, or, not, is null, in, between, case, if, "
    "coalesce, nullif, least, greatest, abs, floor, ceil, sqrt, exp, ln, pow, isnan, and casts between numbers, "
    "boolean, dates and timestamps; intervals beside timestamps"
)
_NO_DECIMALS = "Decimals do not mix with variables: write 1.5e0 for a double, or cast(x as double)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The rows on which SQL evaluates an expression: where these conditions on columns hold.

    If not `exact`, conditions that depend on variables narrow them down further.
    """

    conditions: tuple[Expression, ...] = ()
    exact: bool = True

    @property
    def everywhere(self) -> bool:
        return self.exact and not self.conditions


def write_program(variables: Sequence[tuple[str, Expression]], *, columns_too: bool = False) -> Program:
    """Write the program that gives each variable its next value, computed from the tuple and the old values.

    With `columns_too` what depends on columns only is compiled as well, for tests.
    """
    names = {name: number for number, (name, _) in enumerate(variables)}
    loop = _Loop(variables=names, columns_too=columns_too)
    values = [loop.write(update, Reach()) for _, update in variables]
    return loop.program([update.type for _, update in variables], values)


@dataclass(slots=True, kw_only=True)
class _Loop:
    variables: dict[str, int]
    columns_too: bool
    source: Loop = field(default_factory=Loop)
    inputs: dict[Input, int] = field(default_factory=dict)

    def write(self, node: Expression, reach: Reach) -> Operand:
        """Write a node and everything below it that is not an input."""
        if node.type not in DTYPES:
            raise self._unsupported(node)
        if isinstance(node, Literal):
            return self.source.literal(node.scalar)
        if isinstance(node, Column) and node.key in self.variables:
            number = self.variables[node.key]
            return Operand(f"b{number}", f"bv{number}")
        if node.columns.isdisjoint(self.variables):
            if not self.columns_too and not node.columns and node.risk is not Risk.USER_CODE:
                try:
                    return self.source.literal(node.evaluate({}, 1)[0])
                except EvaluationError:
                    pass  # it may be in a branch that no row takes
            if self._as_input(node, reach):
                return self._input(node, reach)
        if not can_write(node):
            raise self._unsupported(node)
        if isinstance(node, Connective):
            return self._connective(node, reach)
        if isinstance(node, CaseWhen):
            return self._case(node, reach)
        if isinstance(node, Coalesce):
            return self._coalesce(node, reach)
        assert isinstance(node, Call)
        return self._call(node, reach)

    def _as_input(self, node: Expression, reach: Reach) -> bool:
        if isinstance(node, Column) or not can_write(node):
            return True
        return not self.columns_too and (node.risk is Risk.NONE or reach.everywhere)

    def _input(self, node: Expression, reach: Reach) -> Operand:
        doubtful = node.risk is not Risk.NONE and not reach.exact
        if node.risk is not Risk.NONE and reach.conditions:
            condition = reach.conditions[0]
            for more in reach.conditions[1:]:
                condition = connect("and", condition, more)
            node = case([(condition, node)], None)
        number = self.inputs.setdefault(Input(expression=node, doubtful=doubtful), len(self.inputs))
        if doubtful:
            self.source.line(f"if xb{number}[i]:")
            self.source.line(f"    return i, {-number - 1}")
        return Operand(f"a{number}", f"av{number}")

    def _call(self, node: Call, reach: Reach) -> Operand:
        if not node.careful:
            return write_call(self.source, node, [self.write(each, reach) for each in node.arguments])
        backwards = node.order is Order.RIGHT_FIRST
        first, second = node.arguments[::-1] if backwards else node.arguments
        head = self.write(first, reach)
        if head.valid == "True":
            tail = self.write(second, reach)
            return write_call(self.source, node, [tail, head] if backwards else [head, tail])
        result = self.source.result(node.type)
        with self.source.block(f"if {head.valid}:"):
            tail = self.write(second, self._narrowed(reach, is_not_null(first)))
            head_value = Operand(head.value)
            done = write_call(self.source, node, [tail, head_value] if backwards else [head_value, tail])
            self.source.set(result, done)
        return result

    def _connective(self, node: Connective, reach: Reach) -> Operand:
        """Write `and` or `or`; the right side only matters where the left does not decide."""
        source, left = self.source, self.write(node.left, reach)
        if not node.right.risk:
            return self._connected(node, left, self.write(node.right, reach))
        result = source.result(BOOLEAN, Operand(str(not node.conjunction)))
        undecided = f"{left.value} | (not {left.valid})" if node.conjunction else f"not {left.value}"
        decided = coalesce([node.left, literals.boolean(node.conjunction)])
        needed = decided if node.conjunction else negation(decided)
        with source.block(f"if {undecided}:"):
            right = self.write(node.right, self._narrowed(reach, needed))
            source.set(result, self._connected(node, left, right))
        return result

    def _connected(self, node: Connective, left: Operand, right: Operand) -> Operand:
        valid = both(left.valid, right.valid)
        if node.conjunction:
            value = self.source.let(both(left.value, right.value))
            sides = " | ".join(f"({both(side.valid, f'not {side.value}')})" for side in (left, right))
        else:
            value = self.source.let(f"{left.value} | {right.value}")
            sides = f"{left.value} | {right.value}"
        return Operand(value, valid if valid == "True" else self.source.let(f"({valid}) | {sides}"))

    def _case(self, node: CaseWhen, reach: Reach) -> Operand:
        """Write the branches one after the other, each where none before it was taken."""
        source, result = self.source, self.source.result(node.type)
        pending = source.let("True")
        for condition, value in node.branches:
            with source.block(f"if {pending}:"):
                met = self.write(condition, reach)
                with source.block(f"if {met.value}:"):
                    source.set(result, self.write(value, self._narrowed(reach, condition)))
                    source.line(f"{pending} = False")
            reach = self._narrowed(reach, negation(coalesce([condition, literals.boolean(False)])))
        with source.block(f"if {pending}:"):
            source.set(result, self.write(node.default, reach))
        return result

    def _coalesce(self, node: Coalesce, reach: Reach) -> Operand:
        first, *others = node.arguments
        result = self.source.result(node.type, self.write(first, reach))
        for before, argument in zip(node.arguments, others, strict=False):
            reach = self._narrowed(reach, is_null(before))
            with self.source.block(f"if not {result.valid}:"):
                self.source.set(result, self.write(argument, reach))
        return result

    def _narrowed(self, reach: Reach, condition: Expression) -> Reach:
        """Keep the rows where a condition holds, as far as columns decide it."""
        if condition.columns.isdisjoint(self.variables):
            return Reach(conditions=(*reach.conditions, condition), exact=reach.exact)
        if isinstance(condition, Connective) and condition.conjunction:
            return self._narrowed(self._narrowed(reach, condition.left), condition.right)
        return Reach(conditions=reach.conditions, exact=False)

    def _unsupported(self, node: Expression) -> Misuse:
        parts = node.arguments if isinstance(node, Call) else ()
        decimal = any(is_decimal(each.type) for each in (node, *parts))
        return Misuse(
            f"{node.sql} depends on a variable, where it is not supported",
            _NO_DECIMALS if decimal else _CAN,
        )

    def program(self, types: Sequence[pa.DataType], values: Sequence[Operand]) -> Program:
        """Put the function around the lines."""
        arguments = ["code", "texts"]
        head = [f"    t{number} = np.int64(texts[{number}])" for number in self.source.texts.values()]
        head += ["    for i in range(len(code)):", "        k = np.uint64(code[i])"]
        for each, number in self.inputs.items():
            arguments += [f"x{number}", f"xv{number}", *([f"xb{number}"] if each.doubtful else [])]
            head += _load("a", f"x{number}[i]", f"xv{number}[i]", number, each.expression.type)
        tail: list[str] = []
        for number, (type, value) in enumerate(zip(types, values, strict=True)):
            arguments += [f"{name}{number}" for name in ("s", "sv", "o", "ov")]
            head += _load("b", f"s{number}[k]", f"sv{number}[k]", number, type)
            tail += [f"        s{number}[k] = o{number}[i] = {value.value}"]
            tail += [f"        sv{number}[k] = ov{number}[i] = {value.valid}"]
        first = f"def loop({', '.join(arguments)}):"
        return Program(
            source="\n".join([first, *head, *self.source.lines, *tail, "    return -1, 0", ""]),
            inputs=tuple(self.inputs),
            texts=tuple(self.source.texts),
            ordered=self.source.ordered,
            failures=tuple(self.source.failures),
            types=tuple(types),
        )


def _load(name: str, value: str, valid: str, number: int, type: pa.DataType) -> list[str]:
    wide = value if is_fractional(type) or type == BOOLEAN else f"np.int64({value})"
    return [f"        {name}{number} = {wide}", f"        {name}v{number} = {valid}"]
