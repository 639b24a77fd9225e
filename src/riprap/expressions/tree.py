"""The typed expression tree: what every node has, and the nodes that are not functions.

A node computes a *value* for a batch: an Arrow array, or a scalar that stands for every row. Scalars keep
literals out of memory; `evaluate` turns them into arrays at the root. Kernels are module-level functions,
so trees pickle.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.dialects.spark import Spark

from riprap.expressions.errors import EvaluationError, KernelFailure
from riprap.expressions.types import normalise, type_name

Value: TypeAlias = Any  # pa.Array | pa.Scalar, which carry no types
Columns = Mapping[str, pa.Array]
ArrowKernel = Callable[..., Value]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = frozenset(Spark.Tokenizer.KEYWORDS)


class Risk(enum.IntEnum):
    """What may happen when a node is evaluated on a row that SQL would not have evaluated it on."""

    NONE = 0
    RAISES = 1  # tried on all rows first: cheap, and a failure is repaired by trying the chosen rows only
    USER_CODE = 2  # only ever called with the rows SQL would call it with


class Order(enum.Enum):
    """Which arguments Spark evaluates on a row. It skips the rest as soon as one is null."""

    ALL = "all"
    LEFT_FIRST = "left first"
    RIGHT_FIRST = "right first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A typed SQL expression over named columns.

    `sql` is Spark SQL text that Spark accepts as it is; `atomic` says that it needs no parentheses inside
    another.
    """

    sql: str
    type: pa.DataType
    columns: frozenset[str]
    atomic: bool = True
    risk: Risk = Risk.NONE

    def evaluate(self, columns: Columns, rows: int) -> pa.Array:
        """Compute the expression for every row; raise EvaluationError when a row has no value."""
        if rows == 0:
            return pa.array([], self.type)
        return spread(self.value(columns, rows), rows)

    def value(self, columns: Columns, rows: int) -> Value:
        """Compute the expression for `rows` > 0 rows, as an array or as one scalar for all of them."""
        raise NotImplementedError

    @property
    def operand(self) -> str:
        """The text of this node inside a larger expression."""
        return self.sql if self.atomic else f"({self.sql})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Expression):
    key: str

    def value(self, columns: Columns, rows: int) -> Value:
        array = columns[self.key]
        if isinstance(array, pa.ChunkedArray) or array.type != self.type:
            array = normalise(array)
            if array.type != self.type:
                raise TypeError(
                    f"column {self.key} is {array.type}, but the graph was built with {self.type}"
                )
        return array


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Expression):
    scalar: pa.Scalar

    def value(self, columns: Columns, rows: int) -> Value:
        return self.scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expression):
    """Apply a kernel to the values of the arguments."""

    kernel: ArrowKernel = field(compare=False)
    arguments: tuple[Expression, ...]
    order: Order = Order.ALL
    careful: bool = False  # some argument may raise, and Spark may not evaluate it on every row

    def value(self, columns: Columns, rows: int) -> Value:
        if self.careful:
            values = self._in_order(columns, rows)
        else:
            values = [argument.value(columns, rows) for argument in self.arguments]
        try:
            return self.kernel(*values)
        except (KernelFailure, pa.ArrowInvalid) as error:
            raise EvaluationError(self.sql, self._problem(error)) from None

    def _in_order(self, columns: Columns, rows: int) -> list[Value]:
        arguments = self.arguments[::-1] if self.order is Order.RIGHT_FIRST else self.arguments
        values: list[Value] = []
        needed = pa.repeat(True, rows)
        for argument in arguments:
            values.append(value_where(argument, columns, rows, needed))
            needed = pc.and_(needed, spread(pc.is_valid(values[-1]), rows))
        return values[::-1] if self.order is Order.RIGHT_FIRST else values

    def _problem(self, error: Exception) -> str:
        if isinstance(error, KernelFailure):
            return str(error)
        if "zero" in str(error):
            return "division by zero"
        return f"{type_name(self.type)} overflow"


def call(
    sql: str,
    type: pa.DataType,
    kernel: ArrowKernel,
    *arguments: Expression,
    order: Order = Order.ALL,
    raises: bool = False,
    atomic: bool = True,
    risk: Risk | None = None,
) -> Call:
    """Make a call node; what it reads and risks follows from its arguments."""
    own = risk if risk is not None else (Risk.RAISES if raises else Risk.NONE)
    later = arguments[:-1] if order is Order.RIGHT_FIRST else arguments[1:]
    return Call(
        sql=sql,
        type=type,
        columns=columns_of(*arguments),
        atomic=atomic,
        risk=risk_of(*arguments, own=own),
        kernel=kernel,
        arguments=arguments,
        order=order,
        careful=order is not Order.ALL and any(argument.risk for argument in later),
    )


def columns_of(*expressions: Expression) -> frozenset[str]:
    return frozenset().union(*(expression.columns for expression in expressions))


def risk_of(*expressions: Expression, own: Risk = Risk.NONE) -> Risk:
    return max([own, *(expression.risk for expression in expressions)])


def spread(value: Value, rows: int) -> pa.Array:
    """Turn a scalar into an array of equal rows; leave an array as it is."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    return value


def value_where(expression: Expression, columns: Columns, rows: int, chosen: pa.BooleanArray) -> Value:
    """Evaluate only on the rows SQL would evaluate; the others hold anything, mostly null."""
    if expression.risk is Risk.NONE:
        return expression.value(columns, rows)
    if expression.risk is Risk.RAISES:
        try:
            return expression.value(columns, rows)
        except EvaluationError:
            pass
    count = chosen.true_count
    if count == rows:
        return expression.value(columns, rows)
    if count == 0:
        return pa.scalar(None, expression.type)
    some = {name: columns[name].filter(chosen) for name in expression.columns}
    positions = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
    return expression.evaluate(some, count).take(pc.if_else(chosen, positions, pa.scalar(None, pa.int64())))


def quoted(name: str) -> str:
    """Write an identifier, in backticks where Spark needs or might need them.

    >>> quoted("price"), quoted("a b"), quoted("date")
    ('price', '`a b`', '`date`')
    """
    if _PLAIN.fullmatch(name) and name.upper() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"
