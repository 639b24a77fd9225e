"""How tuples are put in order: a list of expressions, each rising or falling, with nulls at either end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from riprap.expressions.errors import ExpressionError
from riprap.expressions.parsing import PREFIX, Binder, Dialect, Functions, syntax_error
from riprap.expressions.scope import Scope
from riprap.expressions.tree import Expression
from riprap.expressions.types import type_name

# What makes a list an order for the parser.
_LEAD = "* order by "


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One expression to order by, rising unless it is ``descending``. NaN is the greatest number; -0.0 equals 0.0."""

    expression: Expression
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        nulls = (
            "" if self.nulls_first != self.descending else f" nulls {'first' if self.nulls_first else 'last'}"
        )
        return f"{self.expression.sql}{' desc' if self.descending else ''}{nulls}"


def parse_order(text: str, scope: Scope, functions: Functions | None = None) -> tuple[Ordering, ...]:
    """Parse an order, such as a sort's. As in Spark nulls come first where values rise and last where they fall.

    >>> schema = pa.schema({"price": pa.float64(), "seq": pa.int64()})
    >>> [str(each) for each in parse_order("price desc, seq % 2 nulls last", Scope.of(schema))]
    ['price desc', 'seq % 2 nulls last']
    """
    if not text.strip():
        raise ExpressionError(text, "the order is empty", "Write columns, such as price desc, seq")
    try:
        return tuple(_parse(_LEAD + text, scope, functions or {}))
    except ExpressionError as error:
        raise _without_lead(text, error) from None


def _parse(text: str, scope: Scope, functions: Functions) -> Iterator[Ordering]:
    binder = Binder(text=text, scope=scope, functions=functions)
    for item in _items(text):
        expression = binder.bind(item.this)
        if not expression.columns:
            raise binder.error(item, f"{expression.sql} is the same for every tuple", "Order by columns")
        if pa.types.is_list(expression.type):
            raise binder.error(
                item, f"{expression.sql} is {type_name(expression.type)}", "Order by single values"
            )
        yield Ordering(
            expression=expression,
            descending=bool(item.args.get("desc")),
            nulls_first=bool(item.args.get("nulls_first")),
        )


def _items(text: str) -> list[exp.Ordered]:
    try:
        statements = sqlglot.parse(PREFIX + text, dialect=Dialect)
    except SqlglotError as error:
        raise syntax_error(text, error) from None
    select = statements[0] if len(statements) == 1 else None
    order = select.args.get("order") if isinstance(select, exp.Select) else None
    if select is None or order is None:
        raise ExpressionError(text, "not an order", "Write columns, such as price desc, seq")
    extra = [n for n, value in select.args.items() if value and n not in ("expressions", "kind", "order")]
    extra += ["with fill" for item in order.expressions if item.args.get("with_fill")]
    if extra:
        raise ExpressionError(text, f"{extra[0].rstrip('_')} has no place in an order")
    return list(order.expressions)


def _without_lead(text: str, error: ExpressionError) -> ExpressionError:
    """Tell a problem of the text that was parsed as one of the user's."""
    if error.start is None or error.end is None or error.start < len(_LEAD):
        return ExpressionError(text, error.problem, error.hint)
    return ExpressionError(text, error.problem, error.hint, error.start - len(_LEAD), error.end - len(_LEAD))
