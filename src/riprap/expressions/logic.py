"""Build and, or, not and the conditionals. Each evaluates an argument only on the rows where Spark would.

That matters when the argument may raise: `case when b <> 0 then a / b end` has no division by zero. An
argument that cannot raise is evaluated on all rows, which is quicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.casts import coerce
from riprap.expressions.coercion import common_type
from riprap.expressions.comparison import compare
from riprap.expressions.errors import Misuse
from riprap.expressions.tree import (
    Columns,
    Expression,
    Literal,
    Value,
    call,
    columns_of,
    risk_of,
    spread,
    value_where,
)
from riprap.expressions.types import BOOLEAN, NULL, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Connective(Expression):
    """`left and right`, or `left or right`, in three-valued logic."""

    left: Expression
    right: Expression
    conjunction: bool

    def value(self, columns: Columns, rows: int) -> Value:
        left = self.left.value(columns, rows)
        if self.right.risk:
            decided = pc.fill_null(left if not self.conjunction else pc.invert(left), False)
            right = value_where(self.right, columns, rows, spread(pc.invert(decided), rows))
        else:
            right = self.right.value(columns, rows)
        return pc.and_kleene(left, right) if self.conjunction else pc.or_kleene(left, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWhen(Expression):
    """The first branch whose condition is true, else the default."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression

    def value(self, columns: Columns, rows: int) -> Value:
        left = pa.repeat(True, rows)
        parts: list[tuple[pa.BooleanArray, Value]] = []
        for condition, result in self.branches:
            met = spread(pc.fill_null(value_where(condition, columns, rows, left), False), rows)
            taken = pc.and_(left, met)
            parts.append((taken, value_where(result, columns, rows, taken)))
            left = pc.and_not(left, met)
        answer = value_where(self.default, columns, rows, left)
        for taken, value in reversed(parts):
            answer = pc.if_else(taken, value, answer)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalesce(Expression):
    """The first argument that is not null."""

    arguments: tuple[Expression, ...]

    def value(self, columns: Columns, rows: int) -> Value:
        answer = self.arguments[0].value(columns, rows)
        for argument in self.arguments[1:]:
            if argument.risk:
                missing = spread(pc.is_null(answer), rows)
                answer = pc.coalesce(answer, value_where(argument, columns, rows, missing))
            else:
                answer = pc.coalesce(answer, argument.value(columns, rows))
        return answer


def connect(word: str, left: Expression, right: Expression) -> Expression:
    """Build `left and right` or `left or right`."""
    left, right = _boolean(word, left), _boolean(word, right)
    return Connective(
        sql=f"{left.operand} {word} {right.operand}",
        type=BOOLEAN,
        columns=columns_of(left, right),
        atomic=False,
        risk=risk_of(left, right),
        left=left,
        right=right,
        conjunction=word == "and",
    )


def negation(argument: Expression) -> Expression:
    """Build `not argument`."""
    argument = _boolean("not", argument)
    return call(f"not {argument.operand}", BOOLEAN, pc.invert, argument, atomic=False)


def case(branches: Sequence[tuple[Expression, Expression]], default: Expression | None) -> Expression:
    """Build `case when condition then result ... else default end`."""
    sql = "case " + " ".join(f"when {condition.sql} then {result.sql}" for condition, result in branches)
    sql += f" else {default.sql} end" if default is not None else " end"
    return _case(sql, branches, default)


def if_(arguments: Sequence[Expression]) -> Expression:
    """Build `if(condition, then, otherwise)`."""
    condition, then, otherwise = arguments
    sql = f"if({', '.join(each.sql for each in arguments)})"
    return _case(sql, [(condition, then)], otherwise)


def nullif(arguments: Sequence[Expression]) -> Expression:
    """Build `nullif(value, other)`: null where they are equal, else value."""
    value, other = arguments
    if value.type == NULL:
        raise Misuse("nullif(null, ...) has no type", "Write cast(null as int)")
    sql = f"nullif({value.sql}, {other.sql})"
    return _case(sql, [(compare("=", value, other), null_of(value.type))], value)


def coalesce(arguments: Sequence[Expression]) -> Expression:
    """Build `coalesce(first, second, ...)`."""
    type = _result_type("coalesce", arguments)
    sql = f"coalesce({', '.join(each.sql for each in arguments)})"
    parts = tuple(coerce(each, type) for each in arguments)
    return Coalesce(sql=sql, type=type, columns=columns_of(*parts), risk=risk_of(*parts), arguments=parts)


def null_of(type: pa.DataType) -> Literal:
    return Literal(sql="null", type=type, columns=frozenset(), scalar=pa.scalar(None, type))


def _case(
    sql: str, branches: Sequence[tuple[Expression, Expression]], default: Expression | None
) -> Expression:
    results = [result for _, result in branches] + ([default] if default is not None else [])
    type = _result_type("case", results)
    typed = tuple((_boolean("when", condition), coerce(result, type)) for condition, result in branches)
    otherwise = coerce(default, type) if default is not None else null_of(type)
    every = [otherwise, *(each for branch in typed for each in branch)]
    return CaseWhen(
        sql=sql,
        type=type,
        columns=columns_of(*every),
        risk=risk_of(*every),
        branches=typed,
        default=otherwise,
    )


def _result_type(name: str, results: Sequence[Expression]) -> pa.DataType:
    type = common_type(results)
    if type == NULL:
        raise Misuse(f"{name} of nulls only has no type", "Write cast(null as int)")
    return type


def _boolean(word: str, argument: Expression) -> Expression:
    if argument.type == NULL and word != "when":
        return coerce(argument, BOOLEAN)
    if argument.type != BOOLEAN:
        raise Misuse(
            f"{word} needs a condition, got {type_name(argument.type)}: {argument.sql}",
            "Write a comparison, such as x <> 0",
        )
    return argument
